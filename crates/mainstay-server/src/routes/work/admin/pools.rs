//! `/admin/pools`.

use super::super::Shop;
use super::super::pools::{Page, Pools};
use super::super::schema::{PoolStatus as PoolSchema, Pools as PoolsSchema};
use super::schema;
use crate::masked::Masked;
use crate::routes::limit;
use crate::{Answer, Json, Path, Problem, Query};
use mainstay_work::{Details, KeyQueue, PoolStatus};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

/// How many are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Most {
    /// At most so many items.
    #[param(minimum = 1, maximum = 1000, default = 50)]
    limit: Option<usize>,
}

/// Which page of keys is wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct KeyPage {
    /// At most so many keys.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<usize>,
    /// The `next` of the page before.
    #[param(max_length = 512)]
    cursor: Option<String>,
}

/// Items.
#[derive(Debug, Serialize)]
pub(super) struct Items {
    work: Vec<Details>,
}

/// A page of keys.
#[derive(Debug, Serialize)]
pub(super) struct Keys {
    keys: Vec<KeyQueue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A pool that is gone.
#[derive(Debug, Serialize)]
pub(super) struct Deleted {
    name: String,
}

/// List the pools by their names: how much waits and runs of each, how many may, how long the oldest has waited, how fast it goes
#[utoipa::path(get, path = "/admin/pools", operation_id = "listWorkPools", tag = "work", params(Page),
    responses((status = 200, body = PoolsSchema)))]
pub(super) async fn list(Shop(work): Shop, Query(asked): Query<Page>) -> Answer<Json<Pools>> {
    asked.of(&work).await
}

/// Look at a pool
#[utoipa::path(get, path = "/admin/pools/{pool}", operation_id = "getWorkPool", tag = "work",
    params(("pool" = String, Path, description = "The pool")), responses((status = 200, body = PoolSchema)))]
pub(super) async fn get(Shop(work): Shop, Path(pool): Path<String>) -> Answer<Json<PoolStatus>> {
    Ok(Json(work.pool_status(&pool).await?))
}

/// Delete a pool that is empty
///
/// Refused while anything of it waits or runs, it has pending dead letters, a cron enqueues into it, or this server or its
/// configuration declares it. From then on nothing can be enqueued into it, on any node. Items that ended in it are kept for
/// their time.
#[utoipa::path(delete, path = "/admin/pools/{pool}", operation_id = "deleteWorkPool", tag = "work",
    params(("pool" = String, Path, description = "The pool")), responses((status = 200, body = schema::Deleted)))]
pub(super) async fn delete(Shop(work): Shop, Path(pool): Path<String>) -> Answer<Json<Deleted>> {
    work.delete_pool(&pool).await?;
    Ok(Json(Deleted { name: pool }))
}

/// Delete a function that was declared for workers elsewhere and that nothing uses
///
/// Refused while a pool exists that has had work of it, a cron calls it, or this server registers it.
#[utoipa::path(delete, path = "/admin/functions/{function}", operation_id = "deleteWorkFunction", tag = "work",
    params(("function" = String, Path, description = "The function")),
    responses((status = 200, body = schema::Deleted)))]
pub(super) async fn delete_function(Shop(work): Shop, Path(function): Path<String>) -> Answer<Json<Deleted>> {
    work.delete_function(&function).await?;
    Ok(Json(Deleted { name: function }))
}

/// Look at the items of a pool that wait, as they can start
///
/// First those whose turn it is, then those that wait for their time, then those behind others of their key.
#[utoipa::path(get, path = "/admin/pools/{pool}/work", operation_id = "listPendingWorkpoolItems", tag = "work",
    params(("pool" = String, Path, description = "The pool"), Most),
    responses((status = 200, body = schema::WorkDetailsList)))]
pub(super) async fn work(
    Shop(work): Shop,
    Path(pool): Path<String>,
    Query(asked): Query<Most>,
) -> Answer<Masked<Items>> {
    Ok(Masked(Items { work: work.upcoming(&pool, limit(asked.limit)?).await? }))
}

/// List the keys of a pool that are in use: how much waits of each, and whether one runs
#[utoipa::path(get, path = "/admin/pools/{pool}/keys", operation_id = "listPoolKeys", tag = "work",
    params(("pool" = String, Path, description = "The pool"), KeyPage),
    responses((status = 200, body = schema::KeyQueues)))]
pub(super) async fn keys(
    Shop(work): Shop,
    Path(pool): Path<String>,
    Query(asked): Query<KeyPage>,
) -> Answer<Json<Keys>> {
    let limit = asked.limit.unwrap_or(50);
    if !(1..=200).contains(&limit) {
        return Err(Problem::invalid_parameter("limit", "must be a number from 1 to 200"));
    }
    let page = work.keys(&pool, asked.cursor.as_deref(), limit).await?;
    Ok(Json(Keys { keys: page.keys, next: page.next }))
}

/// Let nothing of a pool start; what runs goes on
#[utoipa::path(post, path = "/admin/pools/{pool}/pause", operation_id = "pauseWorkPool", tag = "work",
    params(("pool" = String, Path, description = "The pool")), responses((status = 200, body = PoolSchema)))]
pub(super) async fn pause(Shop(work): Shop, Path(pool): Path<String>) -> Answer<Json<PoolStatus>> {
    work.pause(&pool).await?;
    Ok(Json(work.pool_status(&pool).await?))
}

/// Let a pool's items start again
#[utoipa::path(post, path = "/admin/pools/{pool}/resume", operation_id = "resumeWorkPool", tag = "work",
    params(("pool" = String, Path, description = "The pool")), responses((status = 200, body = PoolSchema)))]
pub(super) async fn resume(Shop(work): Shop, Path(pool): Path<String>) -> Answer<Json<PoolStatus>> {
    work.resume(&pool).await?;
    Ok(Json(work.pool_status(&pool).await?))
}
