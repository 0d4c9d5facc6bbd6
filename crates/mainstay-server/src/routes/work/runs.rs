//! `/v1/runs` and `/v1/timers`: the retrier and timers.

use super::items::{Cancelled, Found, cancel_of, find};
use super::problem::about;
use super::{Shop, schema};
use crate::masked::Masked;
use crate::{Answer, Json, Path, Problem, Trace};
use mainstay_work::{NewWork, RETRIER_POOL, RunOptions, TIMER_POOL};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::time::Duration;
use utoipa::ToSchema;

/// An action that is to be tried until it succeeds.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewRun {
    /// The action.
    function: String,
    /// What it is called with: any JSON of at most 64 KiB.
    #[schema(value_type = serde_json::Value)]
    args: Box<RawValue>,
    /// How often it is tried again: 4 means five executions.
    #[schema(minimum = 0, maximum = 1000000, default = 4)]
    max_failures: Option<u32>,
    /// How long the first wait is.
    #[schema(minimum = 1, default = 250)]
    initial_backoff_ms: Option<u64>,
    /// What each wait is multiplied with.
    #[schema(default = 2.0)]
    base: Option<f64>,
    /// The function that is told how it ended.
    on_complete: Option<String>,
    /// What it is told beside.
    #[schema(value_type = Option<serde_json::Value>)]
    context: Option<Box<RawValue>>,
}

/// A function that is to be called once.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewTimer {
    /// The function.
    function: String,
    /// What it is called with: any JSON of at most 64 KiB.
    #[schema(value_type = serde_json::Value)]
    args: Box<RawValue>,
    /// At this moment, in milliseconds since the epoch. Either this or `afterMs`.
    at_ms: Option<i64>,
    /// After so many milliseconds.
    after_ms: Option<u64>,
}

/// A run that was started.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Started {
    run_id: String,
}

/// A timer that was set.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Set {
    timer_id: String,
}

/// Run an action, again and again if it fails
///
/// It runs in the pool `retrier`. Only actions: what a mutation does is undone when it fails, and a pool tries it again
/// just as well.
#[utoipa::path(post, path = "/v1/runs", operation_id = "startRun", tag = "work",
    request_body = NewRun, responses((status = 200, body = schema::RunStarted)))]
pub(super) async fn run(
    Shop(work): Shop,
    Trace(trace): Trace,
    Json(asked): Json<NewRun>,
) -> Answer<Json<Started>> {
    let usual = RunOptions::default();
    let options = RunOptions {
        max_failures: asked.max_failures.unwrap_or(usual.max_failures),
        initial_backoff_ms: asked.initial_backoff_ms.unwrap_or(usual.initial_backoff_ms),
        base: asked.base.unwrap_or(usual.base),
        on_complete: asked.on_complete,
        context: asked.context,
        trace: Some(trace),
    };
    Ok(Json(Started { run_id: work.run(&asked.function, &asked.args, options).await? }))
}

/// Look at a run; one that is unknown is no error
#[utoipa::path(get, path = "/v1/runs/{id}", operation_id = "getRun", tag = "work",
    params(("id" = String, Path, description = "The run")), responses((status = 200, body = schema::WorkFound)))]
pub(super) async fn get_run(Shop(work): Shop, Path(id): Path<String>) -> Answer<Masked<Found>> {
    find(&work, &id, RETRIER_POOL).await
}

/// Cancel a run
#[utoipa::path(delete, path = "/v1/runs/{id}", operation_id = "cancelRun", tag = "work",
    params(("id" = String, Path, description = "The run")), responses((status = 200, body = schema::WorkCanceled)))]
pub(super) async fn cancel_run(Shop(work): Shop, Path(id): Path<String>) -> Answer<Json<Cancelled>> {
    cancel_of(&work, id, RETRIER_POOL).await
}

/// Call a function once, at a moment or after a while
///
/// It runs in the pool `timers`, and survives restarts.
#[utoipa::path(post, path = "/v1/timers", operation_id = "setTimer", tag = "work",
    request_body = NewTimer, responses((status = 200, body = schema::TimerSet)))]
pub(super) async fn set_timer(
    Shop(work): Shop,
    Trace(trace): Trace,
    Json(asked): Json<NewTimer>,
) -> Answer<Json<Set>> {
    let timer = NewWork::new(TIMER_POOL, asked.function, &asked.args)?;
    let timer = match (asked.at_ms, asked.after_ms) {
        (Some(moment), None) => timer.run_at_ms(moment),
        (None, Some(delay)) => timer.run_after(Duration::from_millis(delay)),
        (None, None) => return Err(Problem::invalid_field("atMs", "is missing, and so is afterMs")),
        (Some(_), Some(_)) => {
            return Err(Problem::invalid_field("atMs", "cannot be given together with afterMs"));
        }
    };
    let set = work.enqueue(timer.trace(trace)).await.map_err(|error| {
        about(error, |field| match field {
            "runAtMs" => Some("atMs".to_owned()),
            "runAfterMs" => Some("afterMs".to_owned()),
            _ => None,
        })
    })?;
    Ok(Json(Set { timer_id: set.work_id }))
}

/// Look at a timer; one that is unknown is no error
#[utoipa::path(get, path = "/v1/timers/{id}", operation_id = "getTimer", tag = "work",
    params(("id" = String, Path, description = "The timer")), responses((status = 200, body = schema::WorkFound)))]
pub(super) async fn get_timer(Shop(work): Shop, Path(id): Path<String>) -> Answer<Masked<Found>> {
    find(&work, &id, TIMER_POOL).await
}

/// Cancel a timer
#[utoipa::path(delete, path = "/v1/timers/{id}", operation_id = "cancelTimer", tag = "work",
    params(("id" = String, Path, description = "The timer")), responses((status = 200, body = schema::WorkCanceled)))]
pub(super) async fn cancel_timer(Shop(work): Shop, Path(id): Path<String>) -> Answer<Json<Cancelled>> {
    cancel_of(&work, id, TIMER_POOL).await
}
