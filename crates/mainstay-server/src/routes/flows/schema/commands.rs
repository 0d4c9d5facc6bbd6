//! Descriptions of commands.

use serde_json::Value;
use utoipa::ToSchema;

/// What came of a command.
#[derive(ToSchema)]
#[schema(as = CommandResult, rename_all = "camelCase")]
pub(in crate::routes::flows) struct Result {
    /// What came of it.
    status: ResultStatus,
    /// What its handler says, if it was a success.
    data: Option<Value>,
    /// Where its events are.
    events: Option<Vec<AppendedEvent>>,
    /// Why it was rejected, for programs.
    code: Option<String>,
    /// Why it was rejected or failed, for people.
    reason: Option<String>,
    /// What else there is to know about a rejection.
    context: Option<Value>,
    /// When it is decided again, if somebody else was first.
    deferred: Option<Deferred>,
}

#[derive(ToSchema)]
#[schema(as = CommandResultStatus, rename_all = "lowercase")]
enum ResultStatus {
    Success,
    Rejected,
    Failed,
    Deferred,
}

/// An event that a command led to.
#[derive(ToSchema)]
#[schema(as = CommandEvent, rename_all = "camelCase")]
struct AppendedEvent {
    event_id: String,
    position: u64,
    /// Its version in its stream, if it is in one.
    version: Option<u64>,
}

/// When a command is decided again.
#[derive(ToSchema)]
#[schema(as = CommandDeferred, rename_all = "camelCase")]
struct Deferred {
    /// Retries of one key take turns.
    retry_key: String,
    /// When it is tried again, in milliseconds since the epoch.
    scheduled_at: i64,
    /// The item of work that does it.
    work_id: String,
    /// Which retry it is, from 1.
    retry_attempt: u32,
    /// How long that was from then.
    scheduled_after_ms: u64,
}

/// A command and what came of it.
#[derive(ToSchema)]
#[schema(as = DispatchedCommand, rename_all = "camelCase")]
pub(in crate::routes::flows) struct Dispatched {
    command_id: String,
    correlation_id: String,
    /// Whether it was decided before, and this is what came of it then.
    is_duplicate: bool,
    result: Result,
}

/// A command that is known.
#[derive(ToSchema)]
#[schema(as = CommandStatus, rename_all = "camelCase")]
pub(in crate::routes::flows) struct Status {
    command_id: String,
    command_type: String,
    correlation_id: String,
    /// The tenant that it belongs to.
    tenant_id: Option<String>,
    state: State,
    /// How often it was decided again.
    attempt: u32,
    /// When it was first dispatched.
    created_at: i64,
    /// When it ended.
    executed_at: Option<i64>,
    result: Result,
}

/// How far a command is.
#[derive(ToSchema)]
#[schema(as = CommandState, rename_all = "lowercase")]
pub(super) enum State {
    /// It waits to be decided again.
    Pending,
    /// It was decided, be it that it failed with an event.
    Executed,
    /// It was rejected.
    Rejected,
    /// It could not be decided.
    Failed,
}

/// The payload of a command.
pub(in crate::routes::flows) type Payload = Value;

/// A command that was not carried out, or that nobody here knows.
#[derive(ToSchema)]
#[schema(as = CommandRejected, rename_all = "camelCase")]
pub(in crate::routes::flows) struct Rejected {
    r#type: String,
    title: String,
    status: u16,
    /// Why, for people.
    detail: String,
    /// Why, for programs: the code of whoever rejected it.
    code: String,
    /// `rejected`, unless nobody knows such commands.
    outcome: Option<String>,
    /// What else there is to know: `retryAfterMs` of a command that was too much.
    context: Option<Value>,
    command_id: Option<String>,
    correlation_id: Option<String>,
    is_duplicate: Option<bool>,
}
