//! How the API's description shows the workshop to operators.

#![allow(dead_code, reason = "these types only describe")]

use super::super::schema::{LetterAttempt, WorkNative, WorkResult, WorkState};
use serde_json::Value;
use utoipa::ToSchema;

/// States as they are asked for.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) enum WorkStateAsked {
    Pending,
    Running,
    Completed,
    Failed,
    Ready,
    Delayed,
    Behind,
    Success,
    Canceled,
}

/// A pool or a function that is gone.
#[derive(ToSchema)]
#[schema(as = WorkNameDeleted)]
pub(super) struct Deleted {
    name: String,
}

/// A page of items.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct WorkPage {
    work: Vec<WorkDetails>,
    /// The `cursor` of the next page, when there may be more.
    next: Option<String>,
    /// Whether only part was looked at, as much as one request may: there is a `next`. Absent when not.
    is_partial: Option<bool>,
}

/// Items that wait, as they can start.
#[derive(ToSchema)]
pub(super) struct WorkDetailsList {
    work: Vec<WorkDetails>,
}

/// An item in full.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct WorkDetails {
    work_id: String,
    pool: String,
    function: String,
    state: WorkState,
    native: WorkNative,
    /// Executions that have ended, and count.
    attempts: u32,
    /// How often it was tried before now; the same.
    previous_attempts: u32,
    /// What the last one that failed failed with.
    last_error: Option<String>,
    /// The failures so far, the newest last; only so many are kept.
    errors: Vec<LetterAttempt>,
    /// What it is called with. Of an item that has ended it is known only while its dead letter is.
    args: Option<Value>,
    context: Option<Value>,
    key: Option<String>,
    /// Lower numbers first; known while it has not ended.
    priority: Option<i32>,
    on_complete: Option<String>,
    correlation_id: Option<String>,
    trace_id: Option<String>,
    /// The item that this one tries again.
    retry_of: Option<String>,
    /// The item that tries this one again.
    retried_as: Option<String>,
    /// Whether it left a dead letter that nobody has dealt with.
    is_dead_letter: bool,
    enqueued_at: i64,
    /// When it may start, while it waits.
    due_at: Option<i64>,
    ended_at: Option<i64>,
    result: Option<WorkResult>,
}

/// An item in full. Without `found`, there is nothing else.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct WorkDetailsFound {
    found: bool,
    work_id: Option<String>,
    pool: Option<String>,
    function: Option<String>,
    state: Option<WorkState>,
    native: Option<WorkNative>,
    /// Executions that have ended, and count.
    attempts: Option<u32>,
    /// How often it was tried before now; the same.
    previous_attempts: Option<u32>,
    last_error: Option<String>,
    errors: Option<Vec<LetterAttempt>>,
    /// What it is called with. Of an item that has ended it is known only while its dead letter is.
    args: Option<Value>,
    context: Option<Value>,
    key: Option<String>,
    priority: Option<i32>,
    on_complete: Option<String>,
    correlation_id: Option<String>,
    trace_id: Option<String>,
    /// The item that this one tries again.
    retry_of: Option<String>,
    /// The item that tries this one again.
    retried_as: Option<String>,
    /// Whether it left a dead letter that nobody has dealt with.
    is_dead_letter: Option<bool>,
    enqueued_at: Option<i64>,
    due_at: Option<i64>,
    ended_at: Option<i64>,
    result: Option<WorkResult>,
}

/// What came of letting an item start now.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct WorkRunNow {
    work_id: String,
    starts: WorkStarts,
}

/// It starts now, could start already, or waits for nothing but its key.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
enum WorkStarts {
    Now,
    Already,
    Behind,
}

/// A run of a durable function. Without `found`, there is nothing else.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct DurableFunctionRun {
    found: bool,
    run_id: Option<String>,
    pool: Option<String>,
    function: Option<String>,
    state: Option<WorkState>,
    native: Option<WorkNative>,
    attempt_count: Option<u32>,
    last_error: Option<String>,
    /// What is kept beside it: for instance `eventId` and `projectionName`.
    context: Option<Value>,
    enqueued_at: Option<i64>,
    due_at: Option<i64>,
    ended_at: Option<i64>,
}

/// A page of the keys of a pool that are in use.
#[derive(ToSchema)]
pub(super) struct KeyQueues {
    keys: Vec<KeyQueue>,
    /// The `cursor` of the next page, when there is more.
    next: Option<String>,
}

/// What there is of one key: one item in front, and others behind it.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct KeyQueue {
    key: String,
    /// How many items there are, with the one in front.
    depth: u64,
    /// Whether the one in front runs.
    is_running: bool,
    /// The item in front. It is looked for among what runs and what can start soon, so it may be unknown.
    front: Option<KeyFront>,
    /// When the oldest that is known was enqueued.
    oldest_at: Option<i64>,
}

/// The item of a key that the others wait for.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct KeyFront {
    work_id: String,
    function: String,
    native: WorkNative,
    attempts: u32,
    enqueued_at: i64,
    due_at: Option<i64>,
}
