//! `GET /admin/metrics`: figures of the whole system.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Figures of the whole system, by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct MetricsReport {
    /// When they were read, in milliseconds since the epoch.
    pub timestamp: i64,
    /// `projection.lag_events`: events that each projection is behind.
    pub projection_lags: BTreeMap<String, u64>,
    /// `dlq.size`: dead letters and quarantined events of each projection, counted up to 1000.
    pub dlq_sizes: BTreeMap<String, u64>,
    /// Pending dead letters of each kind, counted up to 1000.
    pub dead_letters_by_kind: BTreeMap<String, u64>,
    /// `workpool.queue_depth`: items of each pool that wait.
    pub workpool_depths: BTreeMap<String, u64>,
    /// `events.throughput`: events that this server appended within a minute, by the type of their stream.
    pub event_throughput: BTreeMap<String, u64>,
    /// `command.latency_ms`: how long commands took at this server since it started.
    pub command_latencies: Vec<CommandLatency>,
    /// `circuit_breaker.state`: `closed`, `open` or `half_open` for each circuit that has counted something.
    pub circuit_breaker_states: BTreeMap<String, String>,
    /// `retrier.attempts`: attempts of the retrier at this server since it started, by operation and status.
    pub retrier_attempts: BTreeMap<String, BTreeMap<String, u64>>,
    /// Why nothing could be read from the database, as an error code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How long commands of a type took that ended with a status, in milliseconds. Quantiles are right within a factor of two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CommandLatency {
    /// The type of the commands.
    pub command_type: String,
    /// `success`, `rejected`, `failed`, `deferred`, `duplicate` or `error`.
    pub status: String,
    /// Commands that were counted.
    pub count: u64,
    /// The mean.
    pub mean_ms: f64,
    /// The median.
    pub p50_ms: f64,
    /// The 95th percentile.
    pub p95_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
}
