//! How the API's description shows what the offices take and give.

#![allow(dead_code, reason = "only their descriptions are used")]

use serde_json::Value;
use utoipa::ToSchema;

/// What came of a command.
#[derive(ToSchema)]
#[schema(as = CommandResult, rename_all = "camelCase")]
pub(super) struct Result {
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
pub(super) struct Dispatched {
    command_id: String,
    correlation_id: String,
    /// Whether it was decided before, and this is what came of it then.
    is_duplicate: bool,
    result: Result,
}

/// A command that is known.
#[derive(ToSchema)]
#[schema(as = CommandStatus, rename_all = "camelCase")]
pub(super) struct Status {
    command_id: String,
    command_type: String,
    correlation_id: String,
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
enum State {
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
pub(super) type Payload = Value;

/// A command that was not carried out, or that nobody here knows.
#[derive(ToSchema)]
#[schema(as = CommandRejected, rename_all = "camelCase")]
pub(super) struct Rejected {
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

#[derive(ToSchema)]
pub(super) struct Projections {
    projections: Vec<Projection>,
}

/// How a read model is doing.
#[derive(ToSchema)]
#[schema(as = Projection, rename_all = "camelCase")]
pub(super) struct Projection {
    projection: String,
    description: String,
    category: Category,
    kind: Kind,
    status: ProjectionStatus,
    /// Its lowest checkpoint.
    last_global_position: u64,
    /// How many events it has still to look at.
    lag: u64,
    /// How many lanes it has.
    partitions: u32,
    /// How many events its handler has taken.
    events_processed: u64,
    /// How many were given up.
    events_failed: u64,
    /// Why it cannot go on.
    error_message: Option<String>,
    /// Which generation readers see.
    generation: i64,
    /// Whether its managed tables have changed, so that it waits to be rebuilt.
    is_outdated: bool,
    updated_at: i64,
}

#[derive(ToSchema)]
#[schema(as = ProjectionCategory, rename_all = "lowercase")]
enum Category {
    Logic,
    View,
    Reporting,
    Integration,
}

#[derive(ToSchema)]
#[schema(as = ProjectionKind)]
enum Kind {
    #[schema(rename = "primary")]
    Primary,
    #[schema(rename = "secondary")]
    Secondary,
    #[schema(rename = "cross-context")]
    CrossContext,
}

#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
enum ProjectionStatus {
    Active,
    Rebuilding,
    Paused,
    Error,
}

#[derive(ToSchema)]
pub(super) struct Checkpoints {
    checkpoints: Vec<Checkpoint>,
}

/// Where a lane of a read model is.
#[derive(ToSchema)]
#[schema(as = Checkpoint, rename_all = "camelCase")]
struct Checkpoint {
    projection: String,
    /// The lane, from 0.
    partition: u32,
    /// Everything up to here is in the read model, or was given up.
    last_global_position: u64,
    last_event_id: Option<String>,
    updated_at: i64,
}

/// A replay that was begun.
#[derive(ToSchema)]
#[schema(as = TriggeredReplay, rename_all = "camelCase")]
pub(super) struct Triggered {
    replay_id: String,
    /// How many events it goes through.
    total_events: u64,
}

#[derive(ToSchema)]
#[schema(as = TriggeredReplays)]
pub(super) struct TriggeredAll {
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
pub(super) struct Replays {
    replays: Vec<Replay>,
}

/// How far a replay is.
#[derive(ToSchema)]
#[schema(as = Replay, rename_all = "camelCase")]
pub(super) struct Replay {
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
pub(super) struct Cancelled {
    success: bool,
    events_processed_before_cancel: u64,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct PoisonEvents {
    poison_events: Vec<PoisonEvent>,
    /// The `cursor` of the next page, unless this is the last.
    next: Option<String>,
}

/// An event that was put aside.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct PoisonEvent {
    event_id: String,
    projection_name: String,
    position: u64,
    event_type: String,
    status: PoisonStatus,
    attempts: u32,
    error: String,
    failed_at: i64,
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
pub(super) struct PoisonStats {
    total: u64,
    by_projection: std::collections::BTreeMap<String, u64>,
}

#[derive(ToSchema)]
pub(super) struct ProjectionLetters {
    letters: Vec<ProjectionLetter>,
    /// The `cursor` of the next page, unless this is the last.
    next: Option<String>,
}

/// An event that a projection could not take.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(in crate::routes) struct ProjectionLetter {
    event_id: String,
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
pub(super) enum LetterStatus {
    Pending,
    Retrying,
    Resolved,
    Ignored,
}

/// How many dead letters projections have.
#[derive(ToSchema)]
#[schema(as = ProjectionLetterStats, rename_all = "camelCase")]
pub(super) struct LetterStats {
    total: u64,
    /// By `{projection}:{status}`.
    by_projection_and_status: std::collections::BTreeMap<String, u64>,
    /// When the oldest failed that nobody has dealt with.
    oldest_pending: Option<i64>,
}

/// Everything that one correlation led to, each kind in the order of time.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct EventFlow {
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
    /// When that was last set.
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

/// What becomes of an intent that nobody completes in time.
#[derive(ToSchema)]
#[schema(as = IntentPolicy, rename_all = "lowercase")]
pub(super) enum IntentPolicy {
    Abandon,
    Alert,
    Retry,
}

/// How far an intent is.
#[derive(ToSchema)]
#[schema(as = IntentStatus, rename_all = "lowercase")]
pub(super) enum IntentStatus {
    Pending,
    Completed,
    Failed,
    Abandoned,
}

/// How an operation has ended.
#[derive(ToSchema)]
#[schema(as = IntentCompletionStatus, rename_all = "lowercase")]
pub(super) enum IntentCompletionStatus {
    Success,
    Failure,
    Abandoned,
}

/// What the events of an operation are called; those that are left away are called after it.
#[derive(ToSchema)]
#[schema(as = IntentEventNames, rename_all = "camelCase")]
pub(super) struct IntentEventNames {
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
pub(super) struct RecordedIntent {
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
pub(super) struct CompletedIntent {
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
pub(super) struct Intent {
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
pub(super) struct IntentPage {
    intents: Vec<Intent>,
    next: Option<String>,
}
/// Where a publication stands.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(super) enum PublicationStatus {
    Pending,
    Delivered,
    Failed,
    DeadLetter,
    Retried,
}

/// One event for one target, and where it stands.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct Publication {
    publication_id: String,
    /// The source's event.
    event_id: String,
    event_type: String,
    source_context: String,
    target_context: String,
    correlation_id: Option<String>,
    status: PublicationStatus,
    /// How many attempts have ended, and count.
    attempt_count: u32,
    /// What the last one that failed failed with.
    error: Option<String>,
    /// The item of work that delivers it, or did.
    work_id: Option<String>,
    created_at: i64,
    delivered_at: Option<i64>,
}

/// The publications of an event, one for each target.
#[derive(ToSchema)]
pub(super) struct EventPublications {
    publications: Vec<Publication>,
}

/// A page of publications, the oldest first.
#[derive(ToSchema)]
pub(super) struct Publications {
    publications: Vec<Publication>,
    /// For the next page.
    next: Option<String>,
}

/// What came of publishing to one target.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct PublishedTo {
    /// The publication: the new one, or the one that was there.
    publication_id: String,
    target_context: String,
    /// Whether the event was published to this target before, so that nothing was done.
    is_duplicate: bool,
}

/// What came of publishing, target by target.
#[derive(ToSchema)]
pub(super) struct Published {
    publications: Vec<PublishedTo>,
}

/// What was done about a publication's dead letter.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) enum PublicationLetterStatus {
    Pending,
    Retried,
    Ignored,
}

/// An event as a target is to see it.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct PublicEvent {
    event_id: String,
    #[schema(rename = "type")]
    event_type: String,
    data: Value,
    schema_version: u32,
    /// What it is about: `Order/ord-1`.
    subject: Option<String>,
    correlation_id: Option<String>,
    causation_id: Option<String>,
    tenant_id: Option<String>,
    trace: Option<Value>,
    timestamp: Option<i64>,
}

/// A publication that was not delivered.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(in crate::routes) struct PublicationLetter {
    publication_id: String,
    /// The source's event.
    event_id: String,
    source_context: String,
    target_context: String,
    correlation_id: Option<String>,
    status: PublicationLetterStatus,
    /// Why it was not delivered.
    error: String,
    failed_at: i64,
    attempt_count: u32,
    /// How often it was tried again by an operator, or by itself.
    retry_count: u32,
    retried_at: Option<i64>,
    /// When it came after all.
    resolved_at: Option<i64>,
    /// The item of work that delivers it, or did.
    work_id: Option<String>,
    event: PublicEvent,
}

/// A page of publications that were not delivered, the oldest first.
#[derive(ToSchema)]
pub(super) struct PublicationLetters {
    letters: Vec<PublicationLetter>,
    /// For the next page.
    next: Option<String>,
}

/// How many publications were not delivered.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct PublicationLetterStats {
    total: u64,
    /// By `{target}:{status}`; every target has its number of pending ones.
    by_target_and_status: std::collections::BTreeMap<String, u64>,
    /// When the oldest failed that nobody has dealt with.
    oldest_pending: Option<i64>,
}
