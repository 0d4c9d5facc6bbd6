//! Descriptions of intents.

use serde_json::Value;
use utoipa::ToSchema;

/// What becomes of an intent that nobody completes in time.
#[derive(ToSchema)]
#[schema(as = IntentPolicy, rename_all = "lowercase")]
pub(in crate::routes::flows) enum IntentPolicy {
    Abandon,
    Alert,
    Retry,
}

/// How far an intent is.
#[derive(ToSchema)]
#[schema(as = IntentStatus, rename_all = "lowercase")]
pub(in crate::routes::flows) enum IntentStatus {
    Pending,
    Completed,
    Failed,
    Abandoned,
}

/// How an operation has ended.
#[derive(ToSchema)]
#[schema(as = IntentCompletionStatus, rename_all = "lowercase")]
pub(in crate::routes::flows) enum IntentCompletionStatus {
    Success,
    Failure,
    Abandoned,
}

/// What the events of an operation are called; those that are left away are called after it.
#[derive(ToSchema)]
#[schema(as = IntentEventNames, rename_all = "camelCase")]
pub(in crate::routes::flows) struct IntentEventNames {
    #[schema(min_length = 1, max_length = 128)]
    started: Option<String>,
    #[schema(min_length = 1, max_length = 128)]
    completed: Option<String>,
    #[schema(min_length = 1, max_length = 128)]
    failed: Option<String>,
    #[schema(min_length = 1, max_length = 128)]
    abandoned: Option<String>,
}

/// What becomes of an intent that nobody completes in time, and whom to call then.
#[derive(ToSchema)]
#[schema(as = IntentOnTimeout, rename_all = "camelCase")]
struct IntentOnTimeout {
    policy: IntentPolicy,
    handler: Option<String>,
    max_retries: Option<u32>,
}

/// An intent that was recorded.
#[derive(ToSchema)]
#[schema(as = RecordedIntent, rename_all = "camelCase")]
pub(in crate::routes::flows) struct RecordedIntent {
    /// By which it is completed: `{operationType}:{streamType}:{streamId}:{startMs}`.
    intent_key: String,
    /// The event that it began with.
    intent_event_id: String,
    correlation_id: String,
    /// When it began, in milliseconds since the epoch.
    started_at: i64,
    /// When its time is up.
    timeout_at: i64,
    /// Whether it was recorded before.
    is_duplicate: bool,
}

/// An intent that was completed.
#[derive(ToSchema)]
#[schema(as = CompletedIntent, rename_all = "camelCase")]
pub(in crate::routes::flows) struct CompletedIntent {
    intent_key: String,
    status: IntentStatus,
    /// The event that it ended with.
    completion_event_id: String,
    /// Whether it was completed before, in the same way.
    is_duplicate: bool,
}

/// A long operation between two events.
#[derive(ToSchema)]
#[schema(as = Intent, rename_all = "camelCase")]
pub(in crate::routes::flows) struct Intent {
    intent_key: String,
    operation_type: String,
    stream_type: String,
    stream_id: String,
    bounded_context: String,
    tenant_id: Option<String>,
    correlation_id: String,
    status: IntentStatus,
    timeout_ms: u64,
    on_timeout: IntentOnTimeout,
    started_at: i64,
    /// When its time is up, or was.
    timeout_at: i64,
    /// How often its time was up.
    timeouts: u32,
    /// How long ago it began, in milliseconds.
    time_since_intent: i64,
    ended_at: Option<i64>,
    intent_event_id: String,
    completion_event_id: Option<String>,
    result: Option<Value>,
    /// Why it was not done.
    error: Option<String>,
    metadata: Option<Value>,
}

/// A page of intents.
#[derive(ToSchema)]
#[schema(as = IntentPage)]
pub(in crate::routes::flows) struct IntentPage {
    intents: Vec<Intent>,
    next: Option<String>,
}
