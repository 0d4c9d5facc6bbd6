//! `/admin/poison-events` and `/admin/projection-letters`: events that read models could not take.

use super::Models;
use super::schema::failures as schema;
use crate::extract::{OfTenant, Whose};
use crate::masked::Masked;
use crate::routes::limit;
use crate::{Answer, App, Json, Path, Problem, Query};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use mainstay_flows::projections::Projections;
use mainstay_flows::projections::failures::{
    Letter, LetterFilter, LetterStats, LetterStatus, PoisonEvent, PoisonStats,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// The read models, for what events of one id have failed for.
pub(super) struct Failed(Projections);

impl FromRequestParts<App> for Failed {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Models(models) = Models::from_request_parts(parts, app).await?;
        let whose = Whose::from_request_parts(parts, app).await?;
        Ok(Self(whose.tenant().map_or_else(|| models.clone(), |tenant| models.for_tenant(tenant))))
    }
}

/// Which poison events are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PoisonParameters {
    /// Of this projection.
    projection: Option<String>,
    /// At most so many.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// A page of poison events.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PoisonEvents {
    poison_events: Vec<PoisonEvent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Which letters are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LetterParameters {
    /// Of this projection.
    projection: Option<String>,
    /// Of this status.
    #[param(value_type = Option<schema::LetterStatus>)]
    status: Option<LetterStatus>,
    /// Of events that belong together under this id.
    correlation_id: Option<String>,
    /// At most so many.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// A page of letters.
#[derive(Debug, Serialize)]
pub(super) struct Letters {
    letters: Vec<Letter>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// How a letter is tried again through the retrier.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RunLetter {
    /// An action of the application's that sees to the event; the event is applied unless given.
    action: Option<String>,
}

/// A run of the retrier.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunBegun {
    /// The run.
    run_id: String,
}

/// How seeing to a letter by hand has ended.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CompletedLetter {
    /// The `retryRunId` of the letter that was taken.
    run_id: String,
    /// Why it could not be seen to; it was unless given.
    #[schema(min_length = 1, max_length = 4096)]
    error: Option<String>,
}

/// The work that tries an event again.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct TriedAgain {
    /// The item of work.
    pub(super) work_id: String,
}

/// How many it was done about.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Counted {
    /// How many.
    pub(super) count: u64,
}

/// `{position}.{projection}`, as a cursor has it.
fn place(cursor: Option<&str>) -> Answer<Option<(u64, String)>> {
    let Some(cursor) = cursor else { return Ok(None) };
    let read = cursor.split_once('.').and_then(|(at, name)| Some((at.parse().ok()?, name.to_owned())));
    read.map(Some).ok_or_else(|| Problem::invalid_parameter("cursor", "is none that was given out"))
}

/// A cursor that was read and written once more, for fuzzing.
pub(crate) fn failure_cursor(text: &str) -> Option<String> {
    place(Some(text)).ok().flatten().map(|(position, projection)| cursor(position, &projection))
}

fn cursor(position: u64, projection: &str) -> String {
    format!("{position}.{projection}")
}

/// List events that were put aside, in the order of the log
#[utoipa::path(get, path = "/admin/poison-events", operation_id = "listPoisonEvents", tag = "projections",
    params(PoisonParameters), responses((status = 200, body = schema::PoisonEvents)))]
pub(super) async fn poison_events(
    Models(models): Models,
    Query(asked): Query<PoisonParameters>,
) -> Answer<Json<PoisonEvents>> {
    let (limit, after) = (limit(asked.limit)?, place(asked.cursor.as_deref())?);
    let poison_events = models.quarantined(asked.projection.as_deref(), after, limit).await?;
    let last = poison_events.last().filter(|_| poison_events.len() == limit);
    let next = last.map(|last| cursor(last.position, &last.projection_name));
    Ok(Json(PoisonEvents { poison_events, next }))
}

/// Count events that were put aside
#[utoipa::path(get, path = "/admin/poison-events/stats", operation_id = "getPoisonEventStats", tag = "projections",
    responses((status = 200, body = schema::PoisonStats)))]
pub(super) async fn poison_stats(Models(models): Models) -> Answer<Json<PoisonStats>> {
    Ok(Json(models.poison_stats().await?))
}

/// Try an event again that was put aside
#[utoipa::path(post, path = "/admin/poison-events/{projection}/{eventId}/unquarantine",
    operation_id = "unquarantineEvent", tag = "projections",
    params(("projection" = String, Path, description = "The projection"),
        ("eventId" = String, Path, description = "The event"), OfTenant),
    responses((status = 200, body = TriedAgain)))]
pub(super) async fn unquarantine(
    Failed(models): Failed,
    Path((projection, event_id)): Path<(String, String)>,
) -> Answer<Json<TriedAgain>> {
    Ok(Json(TriedAgain { work_id: models.unquarantine(&projection, &event_id).await? }))
}

/// Leave an event for good that was put aside
#[utoipa::path(post, path = "/admin/poison-events/{projection}/{eventId}/ignore", operation_id = "ignorePoisonEvent",
    tag = "projections", params(("projection" = String, Path, description = "The projection"),
        ("eventId" = String, Path, description = "The event"), OfTenant),
    responses((status = 200, body = Counted)))]
pub(super) async fn ignore_poison(
    Failed(models): Failed,
    Path((projection, event_id)): Path<(String, String)>,
) -> Answer<Json<Counted>> {
    models.ignore_quarantined(&projection, &event_id).await?;
    Ok(Json(Counted { count: 1 }))
}

/// List dead letters of projections, in the order of the log
#[utoipa::path(get, path = "/admin/projection-letters", operation_id = "listProjectionLetters", tag = "projections",
    params(LetterParameters), responses((status = 200, body = schema::ProjectionLetters)))]
pub(super) async fn letters(
    Models(models): Models,
    Query(asked): Query<LetterParameters>,
) -> Answer<Masked<Letters>> {
    let (limit, after) = (limit(asked.limit)?, place(asked.cursor.as_deref())?);
    let LetterParameters { projection, status, correlation_id, .. } = asked;
    let letters = models.letters(LetterFilter { projection, status, correlation_id, after }, limit).await?;
    let last = letters.last().filter(|_| letters.len() == limit);
    let next = last.map(|last| cursor(last.position, &last.projection_name));
    Ok(Masked(Letters { letters, next }))
}

/// Count dead letters of projections
#[utoipa::path(get, path = "/admin/projection-letters/stats", operation_id = "getProjectionLetterStats",
    tag = "projections", responses((status = 200, body = schema::LetterStats)))]
pub(super) async fn letter_stats(Models(models): Models) -> Answer<Json<LetterStats>> {
    Ok(Json(models.letter_stats().await?))
}

/// Look at a dead letter of a projection
#[utoipa::path(get, path = "/admin/projection-letters/{projection}/{eventId}", operation_id = "getProjectionLetter",
    tag = "projections", params(("projection" = String, Path, description = "The projection"),
        ("eventId" = String, Path, description = "The event"), OfTenant),
    responses((status = 200, body = schema::ProjectionLetter)))]
pub(super) async fn letter(
    Failed(models): Failed,
    Path((projection, event_id)): Path<(String, String)>,
) -> Answer<Masked<Letter>> {
    Ok(Masked(models.letter(&projection, &event_id).await?))
}

/// Try a dead letter of a projection again
#[utoipa::path(post, path = "/admin/projection-letters/{projection}/{eventId}/retry",
    operation_id = "retryProjectionLetter", tag = "projections",
    params(("projection" = String, Path, description = "The projection"),
        ("eventId" = String, Path, description = "The event"), OfTenant),
    responses((status = 200, body = TriedAgain)))]
pub(super) async fn retry_letter(
    Failed(models): Failed,
    Path((projection, event_id)): Path<(String, String)>,
) -> Answer<Json<TriedAgain>> {
    Ok(Json(TriedAgain { work_id: models.retry_letter(&projection, &event_id).await? }))
}

/// Try a dead letter of a projection again through the retrier
#[utoipa::path(post, path = "/admin/projection-letters/{projection}/{eventId}/run",
    operation_id = "runProjectionLetter", tag = "projections",
    params(("projection" = String, Path, description = "The projection"),
        ("eventId" = String, Path, description = "The event"), OfTenant),
    request_body = RunLetter, responses((status = 200, body = RunBegun)))]
pub(super) async fn run_letter(
    Failed(models): Failed,
    Path((projection, event_id)): Path<(String, String)>,
    Json(asked): Json<RunLetter>,
) -> Answer<Json<RunBegun>> {
    let run_id = models.run_letter(&projection, &event_id, asked.action.as_deref()).await?;
    Ok(Json(RunBegun { run_id }))
}

/// Take a dead letter of a projection to see to it by hand
#[utoipa::path(post, path = "/admin/projection-letters/{projection}/{eventId}/prepare",
    operation_id = "prepareProjectionLetter", tag = "projections",
    params(("projection" = String, Path, description = "The projection"),
        ("eventId" = String, Path, description = "The event"), OfTenant),
    responses((status = 200, body = schema::ProjectionLetter)))]
pub(super) async fn prepare_letter(
    Failed(models): Failed,
    Path((projection, event_id)): Path<(String, String)>,
) -> Answer<Masked<Letter>> {
    Ok(Masked(models.prepare_letter(&projection, &event_id).await?))
}

/// Say how seeing to a dead letter by hand has ended
#[utoipa::path(post, path = "/admin/projection-letters/complete", operation_id = "completeProjectionLetter",
    tag = "projections", request_body = CompletedLetter, responses((status = 200, body = Counted)))]
pub(super) async fn complete_letter(
    Models(models): Models,
    Json(asked): Json<CompletedLetter>,
) -> Answer<Json<Counted>> {
    let is_known = models.complete_letter(&asked.run_id, asked.error.map_or(Ok(()), Err)).await?;
    Ok(Json(Counted { count: u64::from(is_known) }))
}

/// Leave a dead letter of a projection for good
#[utoipa::path(post, path = "/admin/projection-letters/{projection}/{eventId}/ignore",
    operation_id = "ignoreProjectionLetter", tag = "projections",
    params(("projection" = String, Path, description = "The projection"),
        ("eventId" = String, Path, description = "The event"), OfTenant),
    responses((status = 200, body = Counted)))]
pub(super) async fn ignore_letter(
    Failed(models): Failed,
    Path((projection, event_id)): Path<(String, String)>,
) -> Answer<Json<Counted>> {
    models.ignore_letter(&projection, &event_id).await?;
    Ok(Json(Counted { count: 1 }))
}
