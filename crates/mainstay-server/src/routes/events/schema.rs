//! How the API's description shows what the log takes and gives. The log's own types do the work; a test holds these
//! against them.

#![allow(dead_code, reason = "only their descriptions are used")]

use serde_json::Value;
use utoipa::ToSchema;

/// Events to be appended together or not at all.
#[derive(ToSchema)]
#[schema(as = Append)]
pub(super) struct Append {
    /// The events, in order.
    #[schema(min_items = 1, max_items = 100)]
    events: Vec<NewEvent>,
    /// What must not have happened.
    condition: Option<Condition>,
}

/// An event to be appended.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct NewEvent {
    /// What happened.
    #[schema(min_length = 1, max_length = 512)]
    r#type: String,
    /// What there is to know about it; at most 64 KiB, kept as it is written.
    data: Value,
    /// The id; one is made when there is none.
    #[schema(min_length = 1, max_length = 256)]
    event_id: Option<String>,
    /// What it is about.
    #[schema(max_items = 64)]
    tags: Option<Vec<String>>,
    /// The stream it belongs to.
    stream: Option<NewStream>,
    /// The scope whose version it moves.
    scope: Option<ScopeClaim>,
    /// What else is to be noted; at most 64 KiB.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Value>,
    /// What makes a repeated append recognisable. Either every event of an append has one, or none.
    #[schema(min_length = 1, max_length = 512)]
    idempotency_key: Option<String>,
    /// What it belongs together with; one is made when there is none.
    #[schema(min_length = 1, max_length = 256)]
    correlation_id: Option<String>,
    /// What caused it.
    #[schema(min_length = 1, max_length = 256)]
    causation_id: Option<String>,
    /// What kind of event it is.
    category: Option<Category>,
    /// The version of the shape of its data.
    #[schema(minimum = 1, maximum = 2147483647, default = 1)]
    schema_version: Option<u32>,
    /// The bounded context it belongs to.
    #[schema(min_length = 1, max_length = 256)]
    bounded_context: Option<String>,
    /// Whose it is; a token's tenant is the default, and no other is taken from it.
    #[schema(min_length = 1, max_length = 256)]
    tenant_id: Option<String>,
    /// Where it stands in a trace; the request's by default.
    trace: Option<EventTrace>,
}

/// What kind of event it is.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
enum Category {
    Domain,
    Integration,
    Trigger,
    Fat,
}

/// The stream that an event is appended to.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct NewStream {
    /// Its type.
    #[schema(min_length = 1, max_length = 512)]
    r#type: String,
    /// Which one.
    #[schema(min_length = 1, max_length = 512)]
    id: String,
    /// The version it must have before this event; 0 for a stream that does not exist.
    #[schema(minimum = 0)]
    expected_version: Option<u64>,
}

/// The scope that an append claims.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct ScopeClaim {
    /// `tenant:{tenantId}:{scopeType}:{scopeId}`.
    #[schema(example = "tenant:acme:course:c1")]
    key: String,
    /// The version it must have; the append moves it to the next.
    #[schema(minimum = 0)]
    expected_version: u64,
}

/// What must not have happened, as dcb.events has it.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct Condition {
    /// No event that any of these items means may be there…
    #[schema(min_items = 1, max_items = 64)]
    fail_if_events_match: Vec<Item>,
    /// …after this position: the head of what the decision rests on.
    #[schema(minimum = 0)]
    after: Option<u64>,
}

/// One way to match: any of the types and all of the tags. Without both it means every event.
#[derive(ToSchema)]
struct Item {
    #[schema(max_items = 64)]
    types: Option<Vec<String>>,
    #[schema(max_items = 64)]
    tags: Option<Vec<String>>,
}

/// Where an event stands in a trace.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct EventTrace {
    trace_id: String,
    span_id: String,
    parent_span_id: Option<String>,
}

/// What came of an append.
#[derive(ToSchema)]
#[schema(as = Appended)]
pub(super) struct Appended {
    /// Whether it was done now or before, with the same idempotency key and content.
    status: AppendStatus,
    /// The events, in order.
    events: Vec<AppendedEvent>,
    /// The log's last position after it.
    head: u64,
}

#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
enum AppendStatus {
    Appended,
    Duplicate,
}

/// An event that is in the log.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct AppendedEvent {
    event_id: String,
    position: u64,
    /// Its version in its stream, if it is in one.
    version: Option<u64>,
}

/// A part of the log.
#[derive(ToSchema)]
#[schema(as = Page)]
pub(super) struct Page {
    events: Vec<Event>,
    /// The log's last position on the snapshot that was read.
    head: u64,
    /// Which life of the log it is: it changes when a backup is restored.
    epoch: u64,
    /// The `after` of the next page, or its `until` where the order is backward, when there is more.
    next: Option<u64>,
}

/// A part of a stream.
#[derive(ToSchema)]
#[schema(as = Stream)]
pub(super) struct Stream {
    /// The version of the stream; 0 when there is none.
    version: u64,
    events: Vec<Event>,
    /// The log's last position on the snapshot that was read.
    head: u64,
    /// Which life of the log it is.
    epoch: u64,
    /// The `after` of the next page, when there is more.
    next: Option<u64>,
}

/// An event of the log.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct Event {
    event_id: String,
    /// The place in the log, from 1, without gaps, in the order of commits.
    position: u64,
    r#type: String,
    stream: Option<EventStream>,
    tags: Vec<String>,
    /// As it was given; null once it was erased.
    data: Value,
    /// True when data and metadata were erased.
    erased: Option<bool>,
    metadata: Option<Value>,
    category: Category,
    schema_version: u32,
    bounded_context: Option<String>,
    tenant_id: Option<String>,
    correlation_id: String,
    causation_id: Option<String>,
    trace: Option<EventTrace>,
    idempotency_key: Option<String>,
    scope: Option<EventScope>,
    /// When it was committed, in milliseconds since the epoch. It never goes back along the log.
    timestamp: i64,
}

/// An event's place in its stream.
#[derive(ToSchema)]
struct EventStream {
    r#type: String,
    id: String,
    version: u64,
}

/// The scope that an event moved, and to which version.
#[derive(ToSchema)]
struct EventScope {
    key: String,
    version: u64,
}

/// Why the state of the log speaks against an append. Which members there are depends on `code`.
#[derive(ToSchema)]
#[schema(as = AppendConflict, rename_all = "camelCase")]
pub(super) struct Conflict {
    /// `APPEND_CONDITION_FAILED`, `VERSION_CONFLICT`, `IDEMPOTENCY_CONFLICT`, `AFTER_BEYOND_HEAD` or `EVENT_ID_TAKEN`.
    code: String,
    detail: String,
    status: u16,
    title: String,
    r#type: String,
    /// The newest event that the condition forbids.
    witness: Option<Witness>,
    expected_version: Option<u64>,
    current_version: Option<u64>,
    existing_event_id: Option<String>,
    /// The log's last position.
    head: Option<u64>,
}

/// The event for which an append was refused.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct Witness {
    position: u64,
    event_id: String,
    r#type: String,
}
