//! Descriptions of publications.

use serde_json::Value;
use utoipa::ToSchema;

/// Where a publication stands.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(in crate::routes::flows) enum PublicationStatus {
    Pending,
    Delivered,
    Failed,
    DeadLetter,
    Retried,
}

/// One event for one target, and where it stands.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(in crate::routes::flows) struct Publication {
    publication_id: String,
    /// The source's event.
    event_id: String,
    /// The tenant of the event.
    tenant_id: Option<String>,
    event_type: String,
    source_context: String,
    target_context: String,
    correlation_id: Option<String>,
    status: PublicationStatus,
    /// What was done about its dead letter, if it has one.
    letter: Option<PublicationLetterStatus>,
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
pub(in crate::routes::flows) struct EventPublications {
    publications: Vec<Publication>,
}

/// A page of publications, the oldest first.
#[derive(ToSchema)]
pub(in crate::routes::flows) struct Publications {
    publications: Vec<Publication>,
    /// For the next page.
    next: Option<String>,
    /// Whether the page ended before it was full: there is a `next`, where more may be.
    #[schema(rename = "isPartial")]
    is_partial: Option<bool>,
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
pub(in crate::routes::flows) struct Published {
    publications: Vec<PublishedTo>,
}

/// What was done about a publication's dead letter.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(in crate::routes::flows) enum PublicationLetterStatus {
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
    /// The tenant of the event.
    tenant_id: Option<String>,
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
pub(in crate::routes::flows) struct PublicationLetters {
    letters: Vec<PublicationLetter>,
    /// For the next page.
    next: Option<String>,
    /// Whether the page ended before it was full: there is a `next`, where more may be.
    #[schema(rename = "isPartial")]
    is_partial: Option<bool>,
}

/// How many publications were not delivered.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(in crate::routes::flows) struct PublicationLetterStats {
    total: u64,
    /// By `{target}:{status}`; every target has its number of pending ones.
    by_target_and_status: std::collections::BTreeMap<String, u64>,
    /// When the oldest failed that nobody has dealt with.
    oldest_pending: Option<i64>,
}
