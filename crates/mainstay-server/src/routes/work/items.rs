//! `/v1/work/{id}` and `GET /v1/pools/{pool}/work`.

use super::{Shop, schema};
use crate::masked::Masked;
use crate::routes::limit;
use crate::{Answer, App, Json, Path, Problem, Query};
use axum::extract::State;
use mainstay_work::{Canceled, Error, MAX_WAIT, Status, Work};
use serde::{Deserialize, Serialize};
use std::time::Duration;
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

impl Cancelled {
    pub(super) fn new(work_id: String, canceled: Canceled) -> Self {
        Self { work_id, canceled }
    }
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

/// Whether to wait.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Patience {
    /// Wait so many milliseconds for its end; told as it stands then, ended or not.
    #[param(minimum = 0, maximum = 60000)]
    wait_ms: Option<u64>,
}

/// Items.
#[derive(Debug, Serialize)]
pub(super) struct Items {
    work: Vec<Status>,
}

/// Look at the items of a pool that wait, as they can start
///
/// Members that are secret by their names are hidden.
#[utoipa::path(get, path = "/v1/pools/{pool}/work", operation_id = "listPendingWork", tag = "work",
    params(("pool" = String, Path, description = "The pool"), Parameters),
    responses((status = 200, body = schema::WorkList)))]
pub(super) async fn pending(
    Shop(work): Shop,
    Path(pool): Path<String>,
    Query(parameters): Query<Parameters>,
) -> Answer<Masked<Items>> {
    let limit = limit(parameters.limit)?;
    Ok(Masked(Items { work: work.pending(&pool, limit).await? }))
}

/// Look at an item
///
/// One that is unknown, or was forgotten after its retention of seven days, is no error: `found` is false.
/// Members that are secret by their names are hidden.
#[utoipa::path(get, path = "/v1/work/{id}", operation_id = "getWork", tag = "work",
    params(("id" = String, Path, description = "The item"), Patience),
    responses((status = 200, body = schema::WorkFound)))]
pub(super) async fn get(
    State(app): State<App>,
    Shop(work): Shop,
    Path(id): Path<String>,
    Query(patience): Query<Patience>,
) -> Answer<Masked<Found>> {
    let wait = Duration::from_millis(patience.wait_ms.unwrap_or(0));
    if wait > MAX_WAIT {
        return Err(Problem::invalid_parameter("waitMs", "must be a number from 0 to 60000"));
    }
    if !wait.is_zero() {
        tokio::select! {
            ended = work.wait_for(&id, wait) => match ended {
                Ok(_) | Err(Error::NotEnded { .. } | Error::NotFound(_)) => {}
                Err(error) => return Err(error.into()),
            },
            () = app.shutdown().requested() => {}
        }
    }
    Ok(Masked(work.status(&id).await?.into()))
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
pub(super) async fn find(work: &Work, id: &str, pool: &str) -> Answer<Masked<Found>> {
    let status = work.status(id).await?.filter(|status| status.pool == pool);
    Ok(Masked(status.into()))
}

/// Cancels an item, if it is one of this pool.
pub(super) async fn cancel_of(work: &Work, id: String, pool: &str) -> Answer<Json<Cancelled>> {
    if work.status(&id).await?.is_none_or(|status| status.pool != pool) {
        return Err(Error::NotFound(id).into());
    }
    let canceled = work.cancel(&id).await?;
    Ok(Json(Cancelled { work_id: id, canceled }))
}
