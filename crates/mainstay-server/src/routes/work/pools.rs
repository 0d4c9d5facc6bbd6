//! `/v1/pools`: their settings, and how they are doing.

use super::{Shop, schema};
use crate::{Answer, Json, Path};
use mainstay_work::{Pool, PoolStatus};
use serde::Serialize;

/// Pools.
#[derive(Debug, Serialize)]
pub(super) struct Pools {
    pools: Vec<PoolStatus>,
}

/// List the pools, and how they are doing
#[utoipa::path(get, path = "/v1/pools", operation_id = "listPools", tag = "work",
    responses((status = 200, body = schema::Pools)))]
pub(super) async fn list(Shop(work): Shop) -> Answer<Json<Pools>> {
    Ok(Json(Pools { pools: work.pools().await? }))
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
