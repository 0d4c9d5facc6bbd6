//! How the API's description shows what the workshop takes and gives. The workshop's own types do the work.

#![allow(dead_code, reason = "only their descriptions are used")]

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// An item, or a batch of them.
#[derive(ToSchema, Serialize)]
#[serde(untagged)]
#[expect(clippy::large_enum_variant, reason = "only described, never made")]
pub(super) enum EnqueueWork {
    One(NewWork),
    Many(NewWorkBatch),
}

/// Items that are enqueued together or not at all.
#[derive(ToSchema, Serialize)]
pub(super) struct NewWorkBatch {
    #[schema(min_items = 1, max_items = 1000)]
    items: Vec<NewWork>,
}

/// An item of work.
#[derive(ToSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewWork {
    /// What is to be done.
    #[schema(min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9._:/-]+$", example = "sendEmail")]
    function: String,
    /// What it is called with; at most 64 KiB.
    args: Value,
    /// Items of one key run one at a time, in the order they came, also across retries.
    #[schema(min_length = 1, max_length = 512)]
    key: Option<String>,
    /// Not before so many milliseconds have passed.
    #[schema(minimum = 0, maximum = 253402300799999_i64)]
    run_after_ms: Option<u64>,
    /// Not before this moment, in milliseconds since the epoch; not together with `runAfterMs`.
    #[schema(minimum = 0, maximum = 253402300799999_i64)]
    run_at_ms: Option<i64>,
    /// Lower numbers first.
    #[schema(minimum = -32768, maximum = 32767, default = 0)]
    priority: Option<i16>,
    /// How failures are tried again, instead of the pool's own way.
    retry: Option<Retry>,
    /// The function that is told how it ended: `{workId, context, result: {kind, returnValue?, error?}}`.
    #[schema(min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9._:/-]+$")]
    on_complete: Option<String>,
    /// What is kept beside the item, and told to `onComplete`; at most 64 KiB.
    context: Option<Value>,
    /// What makes the same item recognisable when it is sent again.
    dedupe: Option<Dedupe>,
    /// Not started any more once so many milliseconds have passed: it ends failed instead.
    #[schema(minimum = 0)]
    deadline_ms: Option<u64>,
}

/// What makes an item recognisable.
#[derive(ToSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Dedupe {
    /// For so long, another item of this pool and key is not enqueued but answered with this one.
    #[schema(min_length = 1, max_length = 512)]
    key: String,
    #[schema(minimum = 0)]
    window_ms: u64,
}

/// How failures are tried again. What is left out has its default.
#[derive(ToSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Retry {
    /// Executions in all; 1 never repeats.
    #[schema(minimum = 1, maximum = 4294967295_i64, default = 5)]
    max_attempts: Option<u32>,
    /// How long the first wait is, before jitter.
    #[schema(minimum = 1, default = 250)]
    initial_backoff_ms: Option<u64>,
    /// What each wait is multiplied with.
    #[schema(exclusive_minimum = 0.0, default = 2.0)]
    base: Option<f64>,
    /// The longest wait.
    #[schema(minimum = 1, default = 30000)]
    max_backoff_ms: Option<u64>,
}

/// What came of enqueueing, item by item.
#[derive(ToSchema)]
pub(super) struct WorkEnqueued {
    work: Vec<EnqueuedItem>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct EnqueuedItem {
    /// The item: the new one, or the one that it would have repeated.
    work_id: String,
    /// Whether its dedupe key was in use, so that nothing was enqueued.
    is_duplicate: bool,
}

/// Where an item stands.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) enum WorkState {
    Pending,
    Running,
    Completed,
    Failed,
}

/// Where an item stands, exactly.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) enum WorkNative {
    /// It may start at any moment.
    Ready,
    /// It waits for its time.
    Delayed,
    /// It waits behind another item of its key.
    Behind,
    Running,
    Success,
    Failed,
    Canceled,
}

/// What came of an item.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct WorkResult {
    kind: WorkResultKind,
    /// What it returned.
    return_value: Option<Value>,
    /// What it failed with.
    error: Option<String>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
enum WorkResultKind {
    Success,
    Failed,
    Canceled,
}

/// What is known of an item. Without `found`, there is nothing else.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct WorkFound {
    found: bool,
    work_id: Option<String>,
    pool: Option<String>,
    function: Option<String>,
    state: Option<WorkState>,
    native: Option<WorkNative>,
    /// Executions that have ended, and count.
    attempts: Option<u32>,
    /// What the last one that failed failed with.
    last_error: Option<String>,
    context: Option<Value>,
    key: Option<String>,
    enqueued_at: Option<i64>,
    /// When it may start, while it waits.
    due_at: Option<i64>,
    ended_at: Option<i64>,
    result: Option<WorkResult>,
}

/// Items that wait, in the order they came.
#[derive(ToSchema)]
pub(super) struct WorkList {
    work: Vec<WorkStatus>,
}

/// What is known of an item.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct WorkStatus {
    work_id: String,
    pool: String,
    function: String,
    state: WorkState,
    native: WorkNative,
    /// Executions that have ended, and count.
    attempts: u32,
    /// What the last one that failed failed with.
    last_error: Option<String>,
    context: Option<Value>,
    key: Option<String>,
    enqueued_at: i64,
    /// When it may start, while it waits.
    due_at: Option<i64>,
    ended_at: Option<i64>,
    result: Option<WorkResult>,
}

/// What came of cancelling an item.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct WorkCanceled {
    work_id: String,
    canceled: CanceledHow,
}

/// Whether it waited and has ended cancelled, runs and was told to stop, or had ended before.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
enum CanceledHow {
    AtOnce,
    Asked,
    TooLate,
}

/// A page of pools, by name.
#[derive(ToSchema)]
pub(super) struct Pools {
    pools: Vec<PoolStatus>,
    /// For the next page.
    next: Option<String>,
}

/// A pool, and how it is doing.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct PoolStatus {
    name: String,
    settings: PoolSettings,
    /// Whether nothing is started.
    is_paused: bool,
    /// When it was last paused, resumed or given other settings.
    changed_at: i64,
    /// Items that wait: for their turn, their time or their key.
    pending: u64,
    /// Items that were taken and have not ended.
    running: u64,
    /// How long the one in front has waited.
    oldest_age_ms: Option<i64>,
    /// Starts per second, lately.
    started_per_second: f64,
    /// Ends per second, lately.
    ended_per_second: f64,
}

/// The settings of a pool. What is left out has its default.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct PoolSettings {
    /// How many items run at once, over all nodes.
    #[schema(minimum = 1, maximum = 10000, default = 10)]
    max_parallelism: Option<u32>,
    /// How failures are tried again, unless an item says otherwise.
    retry: Option<Retry>,
    /// How much is told of it.
    log_level: Option<PoolLogLevel>,
    /// How many items may start per second, over all nodes.
    #[schema(minimum = 1, maximum = 1000000)]
    rate_per_second: Option<u32>,
}

#[derive(ToSchema)]
#[schema(rename_all = "UPPERCASE")]
enum PoolLogLevel {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

/// What a worker was given.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct Claimed {
    /// The lease of these items: a secret text that the worker sends with all that it does about them; null when there are
    /// none.
    #[schema(pattern = r"^[0-9]+\.[0-9a-f]{32}$")]
    lease: Option<String>,
    /// When the lease is over, by the database's clock.
    until_ms: Option<i64>,
    items: Vec<ClaimedItem>,
}

/// An item for a worker.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct ClaimedItem {
    /// The item; also the idempotency key of its effects.
    work_id: String,
    function: String,
    /// Which execution this is, from 1.
    attempt: u32,
    args: Value,
    context: Option<Value>,
    key: Option<String>,
    trace: Option<WorkTrace>,
}

/// Where an item stands in a trace.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct WorkTrace {
    trace_id: String,
    span_id: String,
    parent_span_id: Option<String>,
}

/// What came of extending a lease.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct LeaseExtended {
    /// When the lease is over now, by the database's clock.
    until_ms: i64,
    /// Items of it that somebody has cancelled.
    canceled: Vec<String>,
}

/// The lease that was given back.
#[derive(ToSchema)]
pub(super) struct LeaseGivenBack {
    lease: String,
}

/// The item that ended, or waits to be tried again.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct WorkEnded {
    work_id: String,
}

/// The run that was started.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct RunStarted {
    run_id: String,
}

/// The timer that was set.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct TimerSet {
    timer_id: String,
}

/// What kind of failure it was. The first five are tried again, and so are those of queues that pass.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) enum FailureClass {
    TemporaryServiceUnavailable,
    NetworkTimeout,
    RateLimitExceeded,
    ProviderThrottling,
    TransientDatabaseError,
    InvalidMessage,
    AuthenticationFailure,
    AuthorizationFailure,
    ValidationError,
    PermanentServiceError,
    ServiceBusUnavailable,
    MessageLockLost,
    SessionLockLost,
    QuotaExceeded,
    InvalidOperation,
    UnauthorizedAccess,
    SqsUnavailable,
    VisibilityTimeoutExpired,
    MessageNotInflight,
    ThrottlingException,
    InvalidParameterValue,
    AccessDenied,
}

/// Crons, by name.
#[derive(ToSchema)]
pub(super) struct Crons {
    crons: Vec<CronStatus>,
}

/// Work that the clock enqueues.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct NewCron {
    schedule: CronSchedule,
    /// Into which pool.
    pool: String,
    /// What.
    function: String,
    /// With what; at most 64 KiB.
    args: Value,
    /// Under which key: with one, a tick never runs beside the one before.
    #[schema(min_length = 1, max_length = 512)]
    key: Option<String>,
    /// What becomes of ticks at which no node was there.
    missed: Option<CronMissed>,
}

/// Either `cron` and `timeZone`, or `everyMs` and `fromMs`.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct CronSchedule {
    /// Five fields: minute, hour, day, month, weekday; six with the second first; or a nickname such as `@daily`.
    #[schema(example = "30 2 * * *")]
    cron: Option<String>,
    /// A name of the IANA database; UTC unless given.
    #[schema(example = "Europe/Berlin")]
    time_zone: Option<String>,
    /// Every so many milliseconds…
    #[schema(minimum = 1)]
    every_ms: Option<u64>,
    /// …counted from this moment.
    from_ms: Option<i64>,
}

/// Nothing, or each is enqueued as soon as a node is there.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
enum CronMissed {
    Skip,
    CatchUp,
}

/// A cron, and how it is doing.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct CronStatus {
    name: String,
    schedule: CronSchedule,
    pool: String,
    function: String,
    args: Value,
    key: Option<String>,
    missed: CronMissed,
    /// Its next tick, in milliseconds since the epoch.
    next_at: i64,
    /// Whether nothing is enqueued.
    is_paused: bool,
    /// How often it has enqueued something.
    fired: u64,
    /// The last tick that did.
    last_at: Option<i64>,
    /// The last tick that could not, unless a later one did.
    failed_at: Option<i64>,
    /// The reason, with its code.
    error: Option<String>,
}

/// The cron that is gone.
#[derive(ToSchema)]
pub(super) struct CronRemoved {
    name: String,
}

/// What was done about a letter.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) enum LetterStatus {
    Pending,
    Retried,
    Ignored,
    /// Its failure is to be recorded as an event first. Then it is pending.
    Recording,
}

/// An item that ended failed.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(in crate::routes) struct Letter {
    work_id: String,
    pool: String,
    function: String,
    /// `work`, or `onComplete` for the telling of an item's end.
    kind: String,
    status: LetterStatus,
    failed_at: i64,
    error: String,
    /// How often it was tried.
    attempts: u32,
    /// The failures of its last ten executions; the newest is last.
    errors: Vec<LetterAttempt>,
    args: Value,
    context: Option<Value>,
    key: Option<String>,
    /// The item that tries it again.
    retried_as: Option<String>,
}

/// A failure of one execution.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct LetterAttempt {
    /// Which execution it was, from 1.
    attempt: u32,
    at_ms: i64,
    failure: LetterFailure,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(in crate::routes) struct LetterFailure {
    class: FailureClass,
    message: String,
    retry_after_ms: Option<u64>,
}

/// A letter that is tried again, as another item.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct LetterRetried {
    work_id: String,
    retried_as: String,
}
