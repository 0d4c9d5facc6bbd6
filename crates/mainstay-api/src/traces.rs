//! `GET /admin/traces/{correlationId}`: everything that one correlation led to.

use serde::{Deserialize, Serialize};

/// Everything that one correlation led to, each list in the order of time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct EventFlow {
    /// The correlation.
    pub correlation_id: String,
    /// The first command.
    pub command: Option<FlowCommand>,
    /// All commands.
    pub commands: Vec<FlowCommand>,
    /// The events, at most a thousand.
    pub events: Vec<FlowEvent>,
    /// Read models that have applied an event.
    pub projection_updates: Vec<ProjectionUpdate>,
    /// Read models that failed to apply an event.
    pub dead_letters: Vec<FlowLetter>,
    /// Sagas. There are none yet.
    pub sagas: Vec<serde_json::Value>,
}

/// A command of a flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct FlowCommand {
    /// Id of the command.
    pub command_id: String,
    /// Type of the command.
    pub command_type: String,
    /// `pending`, `executed`, `rejected` or `failed`.
    pub status: String,
    /// When it was dispatched, in milliseconds since the epoch.
    pub created_at: i64,
    /// When it ended, in milliseconds since the epoch.
    pub completed_at: Option<i64>,
}

/// An event of a flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct FlowEvent {
    /// Id of the event.
    pub event_id: String,
    /// The tenant of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// Type of the event.
    pub event_type: String,
    /// Type of the event's stream.
    pub stream_type: Option<String>,
    /// Id of the event's stream.
    pub stream_id: Option<String>,
    /// Position in the log.
    pub global_position: u64,
    /// When it was appended, in milliseconds since the epoch.
    pub timestamp: i64,
    /// Id of the command or event that caused it.
    pub causation_id: Option<String>,
}

/// An event that a read model has applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProjectionUpdate {
    /// The projection.
    pub projection_name: String,
    /// The event.
    pub event_id: String,
    /// Position that the event's lane has reached.
    pub last_global_position: u64,
    /// When the event was applied at the latest, in milliseconds since the epoch: exact where the lane paused behind it,
    /// within five seconds for the last week, else when the lane was rebuilt or last moved.
    pub updated_at: i64,
}

/// An event that a read model failed to apply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct FlowLetter {
    /// The projection.
    pub projection_name: String,
    /// The event.
    pub event_id: String,
    /// The tenant of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// Status of the dead letter; `quarantined` for a quarantined event.
    pub status: String,
    /// The error.
    pub error: String,
    /// When it failed, in milliseconds since the epoch.
    pub failed_at: i64,
}
