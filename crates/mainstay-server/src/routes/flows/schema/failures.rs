//! Descriptions of events that read models could not take, and their letters.

use serde_json::Value;
use utoipa::ToSchema;

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(in crate::routes::flows) struct PoisonEvents {
    poison_events: Vec<PoisonEvent>,
    /// The `cursor` of the next page, unless this is the last.
    next: Option<String>,
}

/// An event that was put aside.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct PoisonEvent {
    event_id: String,
    /// The tenant of the event.
    tenant_id: Option<String>,
    projection_name: String,
    position: u64,
    event_type: String,
    status: PoisonStatus,
    attempts: u32,
    error: String,
    failed_at: i64,
}

/// A quarantined event with what the event says.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(in crate::routes) struct QuarantinedEvent {
    #[schema(inline)]
    #[serde(flatten)]
    event: PoisonEvent,
    correlation_id: String,
    /// What the event says; missing once it was erased.
    payload: Option<Value>,
}

#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
enum PoisonStatus {
    Failing,
    Quarantined,
    Replayed,
    Ignored,
}

/// How many events were put aside.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(in crate::routes::flows) struct PoisonStats {
    total: u64,
    by_projection: std::collections::BTreeMap<String, u64>,
}

#[derive(ToSchema)]
pub(in crate::routes::flows) struct ProjectionLetters {
    letters: Vec<ProjectionLetter>,
    /// The `cursor` of the next page, unless this is the last.
    next: Option<String>,
}

/// An event that a projection could not take.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(in crate::routes) struct ProjectionLetter {
    event_id: String,
    /// The tenant of the event.
    tenant_id: Option<String>,
    projection_name: String,
    position: u64,
    event_type: String,
    correlation_id: String,
    error: String,
    status: LetterStatus,
    failed_at: i64,
    retry_started_at: Option<i64>,
    retry_run_id: Option<String>,
    last_retry_at: Option<i64>,
    retry_count: u32,
    last_error: Option<String>,
    resolved_at: Option<i64>,
    trace_context: Option<Value>,
    /// What the event says; missing once it was erased, and where a page would be too large.
    payload: Option<Value>,
}

#[derive(ToSchema)]
#[schema(as = ProjectionLetterStatus, rename_all = "lowercase")]
pub(in crate::routes::flows) enum LetterStatus {
    Pending,
    Retrying,
    Resolved,
    Ignored,
}

/// How many dead letters projections have.
#[derive(ToSchema)]
#[schema(as = ProjectionLetterStats, rename_all = "camelCase")]
pub(in crate::routes::flows) struct LetterStats {
    total: u64,
    /// By `{projection}:{status}`.
    by_projection_and_status: std::collections::BTreeMap<String, u64>,
    /// When the oldest failed that nobody has dealt with.
    oldest_pending: Option<i64>,
}
