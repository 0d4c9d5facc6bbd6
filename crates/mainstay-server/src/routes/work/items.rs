//! `/v1/work/{id}` and `GET /v1/pools/{pool}/work`.

use super::{Shop, limit, schema};
use crate::{Answer, Json, Path, Query};
use mainstay_work::{Canceled, Error, Status, Work};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

/// What is known of an item, if anything is (item 266).
#[derive(Debug, Serialize)]
pub(super) struct Found {
    found: bool,
    #[serde(flatten)]
    status: Option<Status>,
}

impl From<Option<Status>> for Found {
    fn from(status: Option<Status>) -> Self {
        Self { found: status.is_some(), status }
    }
}

/// What came of cancelling.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cancelled {
    work_id: String,
    canceled: Canceled,
}

/// How many are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Parameters {
    /// At most so many items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Items.
#[derive(Debug, Serialize)]
pub(super) struct Items {
    work: Vec<Status>,
}

/// Look at the items of a pool that wait, in the order they came
#[utoipa::path(get, path = "/v1/pools/{pool}/work", operation_id = "listPendingWork", tag = "work",
    params(("pool" = String, Path, description = "The pool"), Parameters),
    responses((status = 200, body = schema::WorkList)))]
pub(super) async fn pending(
    Shop(work): Shop,
    Path(pool): Path<String>,
    Query(parameters): Query<Parameters>,
) -> Answer<Json<Items>> {
    let limit = limit(parameters.limit)?;
    Ok(Json(Items { work: work.pending(&pool, limit).await? }))
}

/// Look at an item
///
/// One that is unknown, or was forgotten after its retention of seven days, is no error: `found` is false.
#[utoipa::path(get, path = "/v1/work/{id}", operation_id = "getWork", tag = "work",
    params(("id" = String, Path, description = "The item")), responses((status = 200, body = schema::WorkFound)))]
pub(super) async fn get(Shop(work): Shop, Path(id): Path<String>) -> Answer<Json<Found>> {
    Ok(Json(work.status(&id).await?.into()))
}

/// Cancel an item: one that waits never starts, one that runs is told to stop
///
/// Its `onComplete` is told.
#[utoipa::path(delete, path = "/v1/work/{id}", operation_id = "cancelWork", tag = "work",
    params(("id" = String, Path, description = "The item")), responses((status = 200, body = schema::WorkCanceled)))]
pub(super) async fn cancel(Shop(work): Shop, Path(id): Path<String>) -> Answer<Json<Cancelled>> {
    let canceled = work.cancel(&id).await?;
    Ok(Json(Cancelled { work_id: id, canceled }))
}

/// What is known of an item, if it is one of this pool.
pub(super) async fn find(work: &Work, id: &str, pool: &str) -> Answer<Json<Found>> {
    let status = work.status(id).await?.filter(|status| status.pool == pool);
    Ok(Json(status.into()))
}

/// Cancels an item, if it is one of this pool.
pub(super) async fn cancel_of(work: &Work, id: String, pool: &str) -> Answer<Json<Cancelled>> {
    if work.status(&id).await?.is_none_or(|status| status.pool != pool) {
        return Err(Error::NotFound(id).into());
    }
    let canceled = work.cancel(&id).await?;
    Ok(Json(Cancelled { work_id: id, canceled }))
}
