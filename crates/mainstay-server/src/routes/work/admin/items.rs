//! `/admin/work` and `/admin/runs/{id}`.

use super::super::Shop;
use super::super::items::Cancelled;
use super::super::schema::{LetterRetried, WorkCanceled};
use super::schema;
use crate::masked::Masked;
use crate::routes::limit;
use crate::{Answer, Json, Path, Problem, Query};
use mainstay_work::{Details, Hastened, ListQuery, Native};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

/// How many items of each state a page looks at; the description of [`list`] says so.
pub(crate) const LOOKED_AT: usize = 5_000;

/// Which items are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Parameters {
    /// Of this pool.
    #[param(min_length = 1, max_length = 128)]
    pool: Option<String>,
    /// In this state: `pending`, `running`, `completed` or `failed`, or exactly `ready`, `delayed`, `behind`, `success`,
    /// `canceled`.
    #[param(inline, value_type = Option<schema::WorkStateAsked>)]
    state: Option<String>,
    /// Of this function.
    #[param(min_length = 1, max_length = 128)]
    function: Option<String>,
    /// Of this key.
    #[param(min_length = 1, max_length = 512)]
    key: Option<String>,
    /// That belong together under this id.
    #[param(min_length = 1, max_length = 512)]
    correlation_id: Option<String>,
    /// With this text in their arguments, as JSON has them. Of items that have ended no arguments are kept.
    #[param(min_length = 1, max_length = 256)]
    args: Option<String>,
    /// Whether the newest come first or the oldest; the newest unless given.
    #[serde(default)]
    #[param(inline)]
    order: Order,
    /// At most so many.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// Which end a list begins with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WorkOrder)]
enum Order {
    /// What was enqueued last.
    #[default]
    Newest,
    /// What was enqueued first.
    Oldest,
}

/// A page of items.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Items {
    work: Vec<Details>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_partial: bool,
}

/// All that is known of an item, if anything is.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    found: bool,
    #[serde(flatten)]
    item: Option<Details>,
}

/// What came of letting an item start now.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunNow {
    work_id: String,
    starts: Hastened,
}

/// An item that is tried again, as another one.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Retried {
    work_id: String,
    retried_as: String,
}

/// A run of a durable function (item 269).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Run {
    found: bool,
    #[serde(flatten)]
    run: Option<RunStatus>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RunStatus {
    run_id: String,
    pool: String,
    function: String,
    state: mainstay_work::State,
    native: Native,
    attempt_count: u32,
    last_error: Option<String>,
    context: Option<Box<RawValue>>,
    enqueued_at: i64,
    due_at: Option<i64>,
    ended_at: Option<i64>,
}

/// List the items of all pools: those that wait, those that run, and those that ended and are not forgotten
///
/// A page looks at the next 5,000 items and no further, so that every page costs the same: one that has a `next` may be
/// short, even empty, because what is looked for lies further on, and says so with `isPartial`. Searches in arguments, and by
/// correlation, look through at most 8 MiB of texts a page. They share a quarter of the store's readers: a search that
/// finds all of them busy for two seconds is answered with 503 `SEARCH_BUSY`.
#[utoipa::path(get, path = "/admin/work", operation_id = "listWork", tag = "work",
    params(Parameters), responses((status = 200, body = schema::WorkPage)))]
pub(super) async fn list(Shop(work): Shop, Query(asked): Query<Parameters>) -> Answer<Masked<Items>> {
    let limit = limit(asked.limit)?;
    let states = match asked.state.as_deref() {
        Some(state) => Native::named(state).ok_or_else(|| {
            let names = "pending, running, completed, failed, ready, delayed, behind, success or canceled";
            Problem::invalid_parameter("state", format!("must be {names}"))
        })?,
        None => Vec::new(),
    };
    let query = ListQuery {
        pool: asked.pool,
        states,
        function: asked.function,
        key: asked.key,
        correlation_id: asked.correlation_id,
        args: asked.args,
        is_oldest_first: asked.order == Order::Oldest,
        after: asked.cursor.as_deref().map(id_of).transpose()?,
    };
    let page = work.list(query, limit).await?;
    let next = page.next.as_deref().map(cursor_of);
    Ok(Masked(Items { work: page.work, next, is_partial: page.is_partial }))
}

/// Look at an item in full: what it is called with, and every failure that is known
///
/// One that is unknown, or was forgotten after its retention of seven days, is no error: `found` is false.
#[utoipa::path(get, path = "/admin/work/{id}", operation_id = "getWorkDetails", tag = "work",
    params(("id" = String, Path, description = "The item")),
    responses((status = 200, body = schema::WorkDetailsFound)))]
pub(super) async fn get(Shop(work): Shop, Path(id): Path<String>) -> Answer<Masked<Found>> {
    let item = work.details(&id).await?;
    Ok(Masked(Found { found: item.is_some(), item }))
}

/// Cancel an item: one that waits never starts, one that runs is told to stop
///
/// Its `onComplete` is told.
#[utoipa::path(post, path = "/admin/work/{id}/cancel", operation_id = "cancelWorkItem", tag = "work",
    params(("id" = String, Path, description = "The item")), responses((status = 200, body = WorkCanceled)))]
pub(super) async fn cancel(Shop(work): Shop, Path(id): Path<String>) -> Answer<Json<Cancelled>> {
    let canceled = work.cancel(&id).await?;
    Ok(Json(Cancelled::new(id, canceled)))
}

/// Let an item start now that waits for its time or to be tried again
///
/// One that is behind others of its key still waits for these. What runs or has ended is refused.
#[utoipa::path(post, path = "/admin/work/{id}/run-now", operation_id = "runWorkNow", tag = "work",
    params(("id" = String, Path, description = "The item")),
    responses((status = 200, body = schema::WorkRunNow)))]
pub(super) async fn run_now(Shop(work): Shop, Path(id): Path<String>) -> Answer<Json<RunNow>> {
    let starts = work.run_now(&id).await?;
    Ok(Json(RunNow { work_id: id, starts }))
}

/// Try an item again that ended failed, as a new item that is linked to it
///
/// It is its dead letter that is retried. A letter of a projection or a publication is retried at /admin/dead-letters.
#[utoipa::path(post, path = "/admin/work/{id}/retry", operation_id = "retryWork", tag = "work",
    params(("id" = String, Path, description = "The item")), responses((status = 200, body = LetterRetried)))]
pub(super) async fn retry(Shop(work): Shop, Path(id): Path<String>) -> Answer<Json<Retried>> {
    let retried_as = work.retry_failed(&id).await?;
    Ok(Json(Retried { work_id: id, retried_as }))
}

/// Look at a run of a durable function: where it stands, how often it was tried, what failed, and its context
///
/// Every item of work is one, be it of the retrier or of any pool. One that is unknown is no error: `found` is false.
#[utoipa::path(get, path = "/admin/runs/{id}", operation_id = "getDurableFunctionRun", tag = "work",
    params(("id" = String, Path, description = "The run")),
    responses((status = 200, body = schema::DurableFunctionRun)))]
pub(super) async fn get_run(Shop(work): Shop, Path(id): Path<String>) -> Answer<Masked<Run>> {
    let run = work.status(&id).await?.map(|status| RunStatus {
        run_id: status.work_id,
        pool: status.pool,
        function: status.function,
        state: status.state,
        native: status.native,
        attempt_count: status.attempts,
        last_error: status.last_error,
        context: status.context,
        enqueued_at: status.enqueued_at,
        due_at: status.due_at,
        ended_at: status.ended_at,
    });
    Ok(Masked(Run { found: run.is_some(), run }))
}

/// Where a page ends, in a form that nobody takes for an item.
fn cursor_of(id: &str) -> String {
    format!("w{}", id.trim_start_matches("work_").replace('-', ""))
}

/// Where a page begins with what was enqueued at this moment: an id begins with its time.
pub(crate) fn work_at(at_ms: i64) -> String {
    format!("w{:012x}70008000000000000000", at_ms.clamp(0, (1 << 48) - 1))
}

/// A cursor that was read and written once more, for fuzzing.
pub(crate) fn item_cursor(cursor: &str) -> Option<String> {
    id_of(cursor).ok().map(|id| cursor_of(&id))
}

fn id_of(cursor: &str) -> Answer<String> {
    let uuid = cursor.strip_prefix('w').filter(|hex| hex.len() == 32 && hex.is_ascii());
    let uuid = uuid.filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let id = uuid.map(|hex| {
        format!("work_{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    });
    id.ok_or_else(|| Problem::invalid_parameter("cursor", "is not the `next` of a page"))
}
