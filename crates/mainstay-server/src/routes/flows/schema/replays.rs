//! Descriptions of replays.

use utoipa::ToSchema;

/// A replay that was begun.
#[derive(ToSchema)]
#[schema(as = TriggeredReplay, rename_all = "camelCase")]
pub(in crate::routes::flows) struct Triggered {
    replay_id: String,
    /// How many events it goes through.
    total_events: u64,
}

#[derive(ToSchema)]
#[schema(as = TriggeredReplays)]
pub(in crate::routes::flows) struct TriggeredAll {
    replays: Vec<Begun>,
}

/// What came of beginning a replay.
#[derive(ToSchema)]
#[schema(as = BegunReplay, rename_all = "camelCase")]
struct Begun {
    projection_name: String,
    replay_id: Option<String>,
    total_events: Option<u64>,
    /// Why it was not begun.
    code: Option<String>,
    error: Option<String>,
}

#[derive(ToSchema)]
pub(in crate::routes::flows) struct Replays {
    replays: Vec<Replay>,
}

/// How far a replay is.
#[derive(ToSchema)]
#[schema(as = Replay, rename_all = "camelCase")]
pub(in crate::routes::flows) struct Replay {
    replay_id: String,
    projection_name: String,
    status: ReplayStatus,
    events_processed: u64,
    total_events: u64,
    percent_complete: f64,
    chunks_completed: u64,
    started_at: i64,
    updated_at: i64,
    completed_at: Option<i64>,
    /// How much longer it takes, if it goes on as so far.
    estimated_remaining_ms: Option<u64>,
    /// Why it cannot go on.
    error: Option<String>,
}

#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
enum ReplayStatus {
    Running,
    Paused,
    Completed,
    Failed,
    Cancelled,
}

/// A replay that was ended.
#[derive(ToSchema)]
#[schema(as = CancelledReplay, rename_all = "camelCase")]
pub(in crate::routes::flows) struct Cancelled {
    success: bool,
    events_processed_before_cancel: u64,
}
