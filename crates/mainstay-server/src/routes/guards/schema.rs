//! How the API's description shows what guards take and give. The guards' own types do the work.

#![allow(dead_code, reason = "only their descriptions are used")]

use serde::Serialize;
use utoipa::ToSchema;

/// How much of something a key may have.
#[derive(ToSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LimitDefinition {
    kind: LimitKind,
    /// How many tokens come in each period; of a window a whole number.
    #[schema(exclusive_minimum = 0.0)]
    rate: f64,
    period: Period,
    /// The most there can be; the rate unless given.
    #[schema(minimum = 1)]
    capacity: Option<f64>,
    /// In how many parts the budget is kept, for keys that many ask for at once; what is allowed is then approximate.
    #[schema(minimum = 1, maximum = 1024, default = 1)]
    shards: Option<u64>,
    /// When the first window begins, in milliseconds since the epoch.
    start: Option<i64>,
    /// How many tokens of a shard may be reserved ahead of their coming.
    #[schema(minimum = 0, default = 0)]
    max_reserved: Option<u64>,
}

#[derive(ToSchema, Serialize)]
enum LimitKind {
    #[serde(rename = "token bucket")]
    TokenBucket,
    #[serde(rename = "fixed window")]
    FixedWindow,
    #[serde(rename = "sliding window")]
    SlidingWindow,
}

/// As in `"1m"`, or in milliseconds.
#[derive(ToSchema, Serialize)]
#[serde(untagged)]
#[schema(as = LimitPeriod)]
enum Period {
    Text(String),
    Milliseconds(u64),
}

/// A limit and its name.
#[derive(ToSchema, Serialize)]
pub(super) struct Limit {
    name: String,
    #[serde(flatten)]
    definition: LimitDefinition,
}

/// A limit or a circuit that is gone.
#[derive(ToSchema)]
#[schema(as = GuardDeleted)]
pub(super) struct Deleted {
    name: String,
}

#[derive(ToSchema)]
pub(super) struct Limits {
    limits: Vec<Limit>,
    /// The `cursor` of the next page, unless this is the last.
    next: Option<String>,
}

/// Whether something may be had.
#[derive(ToSchema)]
#[schema(as = LimitDecision, rename_all = "camelCase")]
pub(super) struct Decision {
    allowed: bool,
    /// How many whole tokens are left.
    remaining: u64,
    /// When the same will be allowed if nobody else asks. Absent when it is allowed, null when it never will be.
    retry_after_ms: Option<u64>,
}

/// What came of a reservation.
#[derive(ToSchema)]
#[schema(as = LimitReservation, rename_all = "camelCase")]
pub(super) struct Reservation {
    /// Whether it was taken.
    ok: bool,
    /// How long to wait: if it was taken, until its tokens are there; if not, before asking again; null when asking will
    /// never help.
    retry_after_ms: Option<u64>,
}

/// How a key's budget stands.
#[derive(ToSchema)]
pub(super) struct LimitValue {
    /// How many whole tokens there are; below 0 when some were taken ahead.
    value: i64,
    /// The most there can be.
    capacity: u64,
    /// When that was so, in milliseconds since the epoch.
    at: i64,
}

#[derive(ToSchema)]
pub(super) struct ConsumeMany {
    #[schema(min_items = 1, max_items = 16)]
    limits: Vec<Wanted>,
}

/// What is wanted of a limit.
#[derive(ToSchema)]
struct Wanted {
    /// The limit.
    name: String,
    /// Whose budget.
    #[schema(min_length = 1, max_length = 512)]
    key: String,
    /// How many tokens.
    #[schema(minimum = 1, default = 1)]
    cost: Option<u64>,
}

/// What several limits said, in the order of what was wanted.
#[derive(ToSchema)]
pub(super) struct ManyDecided {
    /// Whether all of them allow it. Otherwise nothing was taken of any.
    allowed: bool,
    decisions: Vec<Decision>,
}

#[derive(ToSchema)]
pub(super) struct DeniedKeys {
    denied: Vec<DeniedKey>,
}

/// A key that was denied often.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct DeniedKey {
    key: String,
    /// How often it was denied, at most.
    at_most: u64,
    /// How often it was denied, at least.
    at_least: u64,
}

/// What opens a circuit and what closes it. What is left out has its default.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct CircuitSettings {
    /// Opens after so many failures one after another; not together with a window.
    #[schema(minimum = 1, maximum = 10000, default = 5)]
    failure_threshold: Option<u32>,
    /// How long it stays open before a probe is let through.
    #[schema(minimum = 1, maximum = 604800000, default = 30000)]
    reset_timeout_ms: Option<u64>,
    /// Closes after so many probes that succeeded one after another.
    #[schema(minimum = 1, maximum = 10000, default = 1)]
    success_threshold: Option<u32>,
    /// A probe of which nothing is heard for so long makes room for another.
    #[schema(minimum = 1, maximum = 86400000, default = 60000)]
    probe_timeout_ms: Option<u64>,
    /// Counts and tells, but refuses nothing.
    #[schema(default = false)]
    metrics_only: Option<bool>,
    /// How often a durable run is tried again before it counts as one failure.
    #[schema(minimum = 0, maximum = 10000, default = 3)]
    max_retries: Option<u32>,
    /// How long such a run waits before it is tried again first.
    #[schema(minimum = 1, maximum = 86400000, default = 250)]
    initial_backoff_ms: Option<u64>,
    /// Goes by the last so many calls.
    #[schema(minimum = 1, maximum = 10000)]
    window_calls: Option<u32>,
    /// Goes by the calls of the last so many milliseconds.
    #[schema(minimum = 100, maximum = 3600000)]
    window_ms: Option<u64>,
    /// Fewer calls than this say nothing.
    #[schema(minimum = 1, maximum = 10000, default = 10)]
    minimum_calls: Option<u32>,
    /// So many of a hundred that failed open it.
    #[schema(exclusive_minimum = 0.0, maximum = 100.0)]
    failure_percent: Option<f64>,
    /// A call that takes longer is slow.
    #[schema(minimum = 1, maximum = 86400000)]
    slow_after_ms: Option<u64>,
    /// So many of a hundred that were slow open it.
    #[schema(exclusive_minimum = 0.0, maximum = 100.0)]
    slow_percent: Option<f64>,
}

/// A circuit.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct Circuit {
    name: String,
    /// Where it acts as being, whoever decided it.
    state: CircuitState,
    /// Failures since the last success.
    failure_count: u32,
    /// Probes that succeeded one after another.
    success_count: u32,
    /// When a call failed last; times are in milliseconds since the epoch.
    last_failure_at: Option<i64>,
    opened_at: Option<i64>,
    /// The probe that is out.
    probe_run_id: Option<String>,
    /// When an open circuit becomes half open.
    probe_scheduled_at: Option<i64>,
    /// When a refused call may be made.
    retry_after_ms: Option<u64>,
    /// What an operator decided.
    forced: Option<CircuitForced>,
    config: CircuitSettings,
    /// When it changed last; absent when nothing was ever counted.
    updated_at: Option<i64>,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
enum CircuitState {
    Closed,
    Open,
    HalfOpen,
}

/// What an operator decided.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct CircuitForced {
    is_open: bool,
    actor: String,
    reason: String,
    at_ms: i64,
    until_ms: Option<i64>,
}

#[derive(ToSchema)]
pub(super) struct Circuits {
    circuits: Vec<Circuit>,
    /// The `cursor` of the next page, unless this is the last.
    next: Option<String>,
}

/// A page of changes of circuits, the newest first.
#[derive(ToSchema)]
pub(super) struct CircuitChanges {
    changes: Vec<CircuitChange>,
    /// The `cursor` of the next page, when there may be more.
    next: Option<String>,
}

/// A change of a circuit.
#[derive(ToSchema)]
struct CircuitChange {
    name: String,
    /// How it acted before.
    from: CircuitState,
    /// How it acts since.
    to: CircuitState,
    /// When that was, in milliseconds since the epoch.
    at: i64,
    /// Why.
    reason: String,
    /// Who decided it, if it was somebody.
    actor: Option<String>,
}
