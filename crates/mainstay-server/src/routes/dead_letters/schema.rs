//! How the API's description shows the inbox of dead letters.

#![allow(dead_code, reason = "only their descriptions are used")]

use crate::routes::{flows, work};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// What was done about a letter.
#[derive(ToSchema)]
#[schema(as = DeadLetterStatus, rename_all = "camelCase")]
pub(super) enum Status {
    Pending,
    Retrying,
    Resolved,
    Ignored,
}

/// What is done about letters.
#[derive(ToSchema)]
#[schema(as = DeadLetterAction, rename_all = "camelCase")]
pub(super) enum Action {
    Retry,
    Ignore,
    Purge,
}

/// How far an operation is.
#[derive(ToSchema)]
#[schema(as = DeadLetterOperationStatus, rename_all = "camelCase")]
pub(super) enum OperationStatus {
    Previewed,
    Running,
    Done,
    Cancelled,
    Failed,
}

/// Which letters.
#[derive(ToSchema)]
#[schema(as = DeadLetterFilter, rename_all = "camelCase")]
pub(super) struct Filter {
    /// Of this kind.
    #[schema(min_length = 1, max_length = 128)]
    kind: Option<String>,
    /// Of this function, projection or target.
    #[schema(min_length = 1, max_length = 256)]
    name: Option<String>,
    /// Of work of this pool; letters of other sources have none.
    #[schema(min_length = 1, max_length = 256)]
    pool: Option<String>,
    /// Of this status.
    status: Option<Status>,
    /// Of this group of errors.
    #[schema(pattern = "^[0-9a-f]{16}$")]
    group: Option<String>,
    /// With an error that has this text in it, in small or capital letters.
    #[schema(min_length = 1, max_length = 256)]
    error: Option<String>,
    /// Of what belongs together under this id.
    #[schema(min_length = 1, max_length = 256)]
    correlation_id: Option<String>,
    /// That failed at this moment or later, in milliseconds since the epoch.
    #[schema(minimum = 0)]
    failed_since: Option<i64>,
    /// That failed before this moment.
    #[schema(minimum = 0)]
    failed_before: Option<i64>,
}

/// A dead letter, as it is listed.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct DeadLetter {
    letter_id: String,
    /// `work`, `onComplete`, `append`, `publication`, `projection`, `quarantinedEvent`, or a kind that work was enqueued with.
    kind: String,
    /// The function, projection or target that failed.
    name: String,
    /// What it is about: the item of work, the event, the publication.
    reference: String,
    status: Status,
    /// Letters of one group have failed in the same way.
    group: String,
    failed_at: i64,
    /// When something was last done about it.
    changed_at: i64,
    /// How often it was tried again.
    retry_count: u32,
    correlation_id: Option<String>,
    /// What happened, as much of it as fits into a list.
    error: String,
}

/// A page of dead letters.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct DeadLetters {
    letters: Vec<DeadLetter>,
    /// The `cursor` of the next page, when there may be more.
    next: Option<String>,
    /// Whether only part was looked at, as much as one request may: there is a `next`. Absent when not.
    is_partial: Option<bool>,
}

/// A dead letter with all that is known of it.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct DeadLetterDetail {
    #[schema(inline)]
    #[serde(flatten)]
    letter: DeadLetter,
    /// What has failed so far, the newest last.
    attempts: Vec<DeadLetterAttempt>,
    /// Of an item of work.
    work: Option<work::schema::Letter>,
    /// Of a projection.
    projection: Option<flows::schema::failures::ProjectionLetter>,
    /// Of an event that a projection has quarantined.
    quarantined_event: Option<flows::schema::failures::QuarantinedEvent>,
    /// Of a publication.
    publication: Option<flows::schema::publications::PublicationLetter>,
}

/// An attempt that failed.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct DeadLetterAttempt {
    work_id: Option<String>,
    /// Which execution it was, from 1.
    attempt: u32,
    at_ms: i64,
    failure: work::schema::LetterFailure,
}

/// How many letters there are of one kind, name and status.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct DeadLetterCount {
    kind: String,
    name: String,
    status: Status,
    count: u64,
    oldest_failed_at: i64,
}

/// How many dead letters there are.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct DeadLetterStats {
    total: u64,
    /// Those that nobody has dealt with.
    pending: u64,
    /// When the oldest of those failed.
    oldest_pending: Option<i64>,
    counts: Vec<DeadLetterCount>,
    /// Letters of the kind `projection`, under `{projection}:{status}`.
    by_projection_and_status: BTreeMap<String, u64>,
    /// Whether only the newest letters were looked at, as many as a search may. Absent when not.
    is_partial: Option<bool>,
}

/// Letters that have failed in the same way.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct DeadLetterGroup {
    group: String,
    kind: String,
    name: String,
    count: u64,
    oldest_failed_at: i64,
    newest_failed_at: i64,
    /// One of them.
    example_letter_id: String,
    /// What happened to that one.
    error: String,
}

/// Groups of dead letters.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct DeadLetterGroups {
    groups: Vec<DeadLetterGroup>,
    /// Whether only the newest letters were looked at, as many as a search may. Absent when not.
    is_partial: Option<bool>,
}

/// A letter about which nothing could be done.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct DeadLetterFailure {
    letter_id: String,
    code: String,
    error: String,
}

/// What is done about dead letters, and what came of it.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct DeadLetterOperation {
    operation_id: String,
    action: Action,
    filter: Filter,
    /// The only letter that it is about, if it is about one.
    letter_id: Option<String>,
    /// Who wanted it: the id of a token, `local` or `upkeep`.
    asked_by: String,
    /// Who let it run, if it was previewed before.
    run_by: Option<String>,
    /// Who stopped it.
    cancelled_by: Option<String>,
    status: OperationStatus,
    /// What it would touch.
    preview: Vec<DeadLetterCount>,
    /// How many letters that were.
    total: u64,
    /// Whether letters were left that the preview has not looked at. Of the oldest letters only those that were counted are
    /// touched; otherwise all that the filter names. Absent when not.
    is_partial: Option<bool>,
    /// About how many it was done.
    done: u64,
    /// How many were dealt with by somebody else meanwhile.
    skipped: u64,
    /// About how many it could not be done.
    failed: u64,
    /// How many were left as they were, because the node that came to them knows no such projection or target. Another one may.
    left: u64,
    /// The first twenty of those that failed or were left.
    failures: Vec<DeadLetterFailure>,
    /// Why it could not go on.
    error: Option<String>,
    created_at: i64,
    started_at: Option<i64>,
    updated_at: i64,
    ended_at: Option<i64>,
}

/// A page of operations on dead letters.
#[derive(ToSchema)]
pub(super) struct DeadLetterOperations {
    operations: Vec<DeadLetterOperation>,
    /// The `cursor` of the next page, when there may be more.
    next: Option<String>,
}
