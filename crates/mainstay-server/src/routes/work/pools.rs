//! `/v1/pools`: their settings, and how they are doing.

use super::{Shop, schema};
use crate::routes::limit;
use crate::{Answer, Json, Path, Query};
use mainstay_work::{Pool, PoolPage, PoolStatus};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

/// Which page of pools is wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Page {
    /// At most so many pools.
    #[param(minimum = 1, maximum = 1000, default = 50)]
    limit: Option<usize>,
    /// The `next` of the page before.
    #[param(max_length = 512)]
    cursor: Option<String>,
}

/// A page of pools.
#[derive(Debug, Serialize)]
pub(super) struct Pools {
    pools: Vec<PoolStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl Page {
    pub(super) async fn of(self, work: &mainstay_work::Work) -> Answer<Json<Pools>> {
        let PoolPage { pools, next } = work.pool_page(self.cursor, limit(self.limit)?).await?;
        Ok(Json(Pools { pools, next }))
    }
}

/// List the pools by their names, and how they are doing
#[utoipa::path(get, path = "/v1/pools", operation_id = "listPools", tag = "work", params(Page),
    responses((status = 200, body = schema::Pools)))]
pub(super) async fn list(Shop(work): Shop, Query(asked): Query<Page>) -> Answer<Json<Pools>> {
    asked.of(&work).await
}

/// Look at a pool
#[utoipa::path(get, path = "/v1/pools/{pool}", operation_id = "getPool", tag = "work",
    params(("pool" = String, Path, description = "The pool")), responses((status = 200, body = schema::PoolStatus)))]
pub(super) async fn get(Shop(work): Shop, Path(pool): Path<String>) -> Answer<Json<PoolStatus>> {
    Ok(Json(work.pool_status(&pool).await?))
}

/// Make a pool, or change its settings
///
/// What is left out has its default. A pool that mainstay.toml names has the settings of that file again when a server
/// with it starts.
#[utoipa::path(put, path = "/v1/pools/{pool}", operation_id = "putPool", tag = "work",
    params(("pool" = String, Path, description = "The pool: 1 to 128 letters, digits or . _ - : /")),
    request_body = schema::PoolSettings, responses((status = 200, body = schema::PoolStatus)))]
pub(super) async fn put(
    Shop(work): Shop,
    Path(pool): Path<String>,
    Json(settings): Json<Pool>,
) -> Answer<Json<PoolStatus>> {
    work.put_pool(settings.named(&pool)).await?;
    Ok(Json(work.pool_status(&pool).await?))
}

/// Let nothing of a pool start; what runs goes on
#[utoipa::path(post, path = "/v1/pools/{pool}/pause", operation_id = "pausePool", tag = "work",
    params(("pool" = String, Path, description = "The pool")), responses((status = 200, body = schema::PoolStatus)))]
pub(super) async fn pause(Shop(work): Shop, Path(pool): Path<String>) -> Answer<Json<PoolStatus>> {
    work.pause(&pool).await?;
    Ok(Json(work.pool_status(&pool).await?))
}

/// Let a pool's items start again
#[utoipa::path(post, path = "/v1/pools/{pool}/resume", operation_id = "resumePool", tag = "work",
    params(("pool" = String, Path, description = "The pool")), responses((status = 200, body = schema::PoolStatus)))]
pub(super) async fn resume(Shop(work): Shop, Path(pool): Path<String>) -> Answer<Json<PoolStatus>> {
    work.resume(&pool).await?;
    Ok(Json(work.pool_status(&pool).await?))
}
