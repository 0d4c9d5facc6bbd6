//! Descriptions of what belongs together.

use super::commands::State;
use serde_json::Value;
use utoipa::ToSchema;

/// Everything that one correlation led to, each kind in the order of time.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(in crate::routes::flows) struct EventFlow {
    correlation_id: String,
    /// The command that began it.
    command: Option<FlowCommand>,
    /// All commands.
    commands: Vec<FlowCommand>,
    /// The events, at most a thousand.
    events: Vec<FlowEvent>,
    /// Which read models have taken which events.
    projection_updates: Vec<ProjectionUpdate>,
    /// Which could not.
    dead_letters: Vec<FlowLetter>,
    /// Sagas; none yet.
    sagas: Vec<Value>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct FlowCommand {
    command_id: String,
    command_type: String,
    status: State,
    created_at: i64,
    completed_at: Option<i64>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct FlowEvent {
    event_id: String,
    event_type: String,
    /// The stream it is in, `{type}/{id}`.
    stream_id: Option<String>,
    global_position: u64,
    timestamp: i64,
    causation_id: Option<String>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct ProjectionUpdate {
    projection_name: String,
    event_id: String,
    /// Where the event's lane is now.
    last_global_position: u64,
    /// When the event was there at the latest; within five seconds for the last week.
    updated_at: i64,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct FlowLetter {
    projection_name: String,
    event_id: String,
    /// What was done about it; `quarantined` for a poison event.
    status: String,
    error: String,
    failed_at: i64,
}
