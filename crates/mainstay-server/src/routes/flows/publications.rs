//! `/v1/publications` and `/admin/publications`: events for other contexts, and those that did not come there.

use super::failures::{Counted, TriedAgain};
use super::schema::publications as schema;
use crate::masked::Masked;
use crate::routes::events::log_of;
use crate::routes::limit;
use crate::{Answer, App, Json, Path, Principal, Problem, Query};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use mainstay_events::Log;
use mainstay_flows::Error;
use mainstay_flows::delivery::publications::{
    self, Letter, LetterFilter, LetterStats, LetterStatus, Publication, PublicationFilter, Publisher, Status,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// The publisher, for whoever may see what was published by all.
pub(super) struct Contexts(Publisher);

impl FromRequestParts<App> for Contexts {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        Principal::from_request_parts(parts, app).await?.unconfined("A publication")?;
        Ok(Self(app.publications().clone()))
    }
}

/// The publisher, for whoever asks about an event that it sees.
pub(super) struct Outgoing {
    publisher: Publisher,
    log: Log,
    is_confined: bool,
}

impl FromRequestParts<App> for Outgoing {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let principal = Principal::from_request_parts(parts, app).await?;
        let (publisher, is_confined) = (app.publications().clone(), principal.tenant.is_some());
        Ok(Self { publisher, log: log_of(app, &principal), is_confined })
    }
}

impl Outgoing {
    /// Whether an event may be asked about: a token that is confined to a tenant knows of its own only.
    async fn sees(&self, event_id: &str) -> Answer<bool> {
        Ok(!self.is_confined || self.log.find(event_id).await?.is_some())
    }
}

/// Which event goes where.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Publish {
    /// An event of the log.
    #[schema(min_length = 1, max_length = 256)]
    event_id: String,
    /// The context that it comes from.
    #[schema(min_length = 1, max_length = 64)]
    source_context: String,
    /// The contexts that it goes to.
    #[schema(min_items = 1, max_items = 100)]
    target_contexts: Vec<String>,
}

/// What came of publishing, target by target.
#[derive(Debug, Serialize)]
pub(super) struct Published {
    publications: Vec<publications::Published>,
}

/// The publications of an event.
#[derive(Debug, Serialize)]
pub(super) struct EventPublications {
    publications: Vec<Publication>,
}

/// Which publications are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PublicationParameters {
    /// To this target.
    target: Option<String>,
    /// Of this status.
    #[param(value_type = Option<schema::PublicationStatus>)]
    status: Option<Status>,
    /// At most so many.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// A page of publications.
#[derive(Debug, Serialize)]
pub(super) struct Publications {
    publications: Vec<Publication>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Which letters are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LetterParameters {
    /// To this target.
    target: Option<String>,
    /// Of this status.
    #[param(value_type = Option<schema::PublicationLetterStatus>)]
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

/// Which letters it is done about, the oldest first.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = SomePublicationLetters)]
pub(super) struct SomeLetters {
    /// To this target; to all unless given.
    target: Option<String>,
    /// Of this status, `pending` or `ignored`; pending ones unless given. Only pending ones are ignored.
    #[schema(value_type = Option<schema::PublicationLetterStatus>)]
    status: Option<LetterStatus>,
    /// Of events that belong together under this id.
    correlation_id: Option<String>,
    /// At most so many.
    #[schema(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
}

impl SomeLetters {
    fn wanted(self) -> Answer<(LetterFilter, Option<usize>)> {
        let Self { target, status, correlation_id, limit: asked } = self;
        let asked = asked.map(|asked| limit(Some(asked))).transpose()?;
        Ok((LetterFilter { target, status, correlation_id, after: None }, asked))
    }
}

/// Publish an event of the log to other contexts
///
/// For each target a row is kept until the event was delivered or is a dead letter; it and the work that delivers are one
/// transaction. An event that was published to a target before is not published to it again.
#[utoipa::path(post, path = "/v1/publications", operation_id = "publishEvent", tag = "publications",
    request_body = Publish, responses((status = 200, body = schema::Published)))]
pub(super) async fn publish(outgoing: Outgoing, Json(asked): Json<Publish>) -> Answer<Json<Published>> {
    if !outgoing.sees(&asked.event_id).await? {
        return Err(mainstay_events::Error::NotFound(asked.event_id).into());
    }
    let publications =
        outgoing.publisher.publish(&asked.event_id, &asked.source_context, &asked.target_contexts).await?;
    Ok(Json(Published { publications }))
}

/// See where the publications of an event stand
#[utoipa::path(get, path = "/v1/publications/{eventId}", operation_id = "getPublicationStatus", tag = "publications",
    params(("eventId" = String, Path, description = "The event")),
    responses((status = 200, body = schema::EventPublications)))]
pub(super) async fn status(
    outgoing: Outgoing,
    Path(event_id): Path<String>,
) -> Answer<Json<EventPublications>> {
    let publications = outgoing.publisher.status(&event_id).await?;
    if publications.is_empty() || !outgoing.sees(&event_id).await? {
        return Err(Error::PublicationNotFound(event_id).into());
    }
    Ok(Json(EventPublications { publications }))
}

/// List publications, the oldest first
#[utoipa::path(get, path = "/admin/publications", operation_id = "listPublications", tag = "publications",
    params(PublicationParameters), responses((status = 200, body = schema::Publications)))]
pub(super) async fn list(
    Contexts(publisher): Contexts,
    Query(asked): Query<PublicationParameters>,
) -> Answer<Json<Publications>> {
    let PublicationParameters { target, status, limit: asked, cursor: after } = asked;
    let limit = limit(asked)?;
    let publications = publisher.list(PublicationFilter { target, status, after }, limit).await?;
    let last = publications.last().filter(|_| publications.len() == limit);
    let next = last.map(|last| last.publication_id.clone());
    Ok(Json(Publications { publications, next }))
}

/// List publications that were not delivered, the oldest first
#[utoipa::path(get, path = "/admin/publications/letters", operation_id = "listPublicationLetters",
    tag = "publications", params(LetterParameters), responses((status = 200, body = schema::PublicationLetters)))]
pub(super) async fn letters(
    Contexts(publisher): Contexts,
    Query(asked): Query<LetterParameters>,
) -> Answer<Masked<Letters>> {
    let LetterParameters { target, status, correlation_id, limit: asked, cursor: after } = asked;
    let limit = limit(asked)?;
    let letters = publisher.letters(LetterFilter { target, status, correlation_id, after }, limit).await?;
    let last = letters.last().filter(|_| letters.len() == limit);
    let next = last.map(|last| last.publication_id.clone());
    Ok(Masked(Letters { letters, next }))
}

/// Count publications that were not delivered
#[utoipa::path(get, path = "/admin/publications/letters/stats", operation_id = "getPublicationLetterStats",
    tag = "publications", responses((status = 200, body = schema::PublicationLetterStats)))]
pub(super) async fn letter_stats(Contexts(publisher): Contexts) -> Answer<Json<LetterStats>> {
    Ok(Json(publisher.letter_stats().await?))
}

/// Look at a publication that was not delivered
#[utoipa::path(get, path = "/admin/publications/letters/{target}/{eventId}", operation_id = "getPublicationLetter",
    tag = "publications", params(("target" = String, Path, description = "The target"),
        ("eventId" = String, Path, description = "The event")),
    responses((status = 200, body = schema::PublicationLetter)))]
pub(super) async fn letter(
    Contexts(publisher): Contexts,
    Path((target, event_id)): Path<(String, String)>,
) -> Answer<Masked<Letter>> {
    Ok(Masked(publisher.letter(&event_id, &target).await?))
}

/// Try a publication again that was not delivered
#[utoipa::path(post, path = "/admin/publications/letters/{target}/{eventId}/retry",
    operation_id = "retryPublicationLetter", tag = "publications",
    params(("target" = String, Path, description = "The target"),
        ("eventId" = String, Path, description = "The event")),
    responses((status = 200, body = TriedAgain)))]
pub(super) async fn retry_letter(
    Contexts(publisher): Contexts,
    Path((target, event_id)): Path<(String, String)>,
) -> Answer<Json<TriedAgain>> {
    Ok(Json(TriedAgain { work_id: publisher.retry_letter(&event_id, &target).await? }))
}

/// Leave a publication for good that was not delivered
#[utoipa::path(post, path = "/admin/publications/letters/{target}/{eventId}/ignore",
    operation_id = "ignorePublicationLetter", tag = "publications",
    params(("target" = String, Path, description = "The target"),
        ("eventId" = String, Path, description = "The event")),
    responses((status = 200, body = Counted)))]
pub(super) async fn ignore_letter(
    Contexts(publisher): Contexts,
    Path((target, event_id)): Path<(String, String)>,
) -> Answer<Json<Counted>> {
    publisher.ignore_letter(&event_id, &target).await?;
    Ok(Json(Counted { count: 1 }))
}

/// Try publications again that were not delivered
#[utoipa::path(post, path = "/admin/publications/letters/retry", operation_id = "retryPublicationLetters",
    tag = "publications", request_body = SomeLetters, responses((status = 200, body = Counted)))]
pub(super) async fn retry_letters(
    Contexts(publisher): Contexts,
    Json(asked): Json<SomeLetters>,
) -> Answer<Json<Counted>> {
    let (wanted, limit) = asked.wanted()?;
    Ok(Json(Counted { count: publisher.retry_letters(wanted, limit).await? as u64 }))
}

/// Leave publications for good that were not delivered
#[utoipa::path(post, path = "/admin/publications/letters/ignore", operation_id = "ignorePublicationLetters",
    tag = "publications", request_body = SomeLetters, responses((status = 200, body = Counted)))]
pub(super) async fn ignore_letters(
    Contexts(publisher): Contexts,
    Json(asked): Json<SomeLetters>,
) -> Answer<Json<Counted>> {
    let (wanted, limit) = asked.wanted()?;
    Ok(Json(Counted { count: publisher.ignore_letters(wanted, limit).await? as u64 }))
}
