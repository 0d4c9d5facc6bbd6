//! `/v1/publications` and `/admin/publications`: events for other contexts, and those that did not come there.

use super::failures::{Counted, TriedAgain};
use super::schema::publications as schema;
use crate::access::Named;
use crate::extract::{OfTenant, Whose};
use crate::masked::Masked;
use crate::routes::limit;
use crate::{Answer, App, Json, Path, Principal, Problem, Query};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use mainstay_events::Log;
use mainstay_flows::Error;
use mainstay_flows::delivery::publications::{
    self, Letter, LetterFilter, LetterPage, LetterStats, LetterStatus, Publication, PublicationFilter,
    PublicationPage, Publisher, Status,
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

impl Contexts {
    fn of(self, whose: &Whose) -> Publisher {
        whose.tenant().map_or_else(|| self.0.clone(), |tenant| self.0.for_tenant(tenant))
    }
}

/// The publisher and the log as the caller's tenant sees them.
pub(super) struct Outgoing {
    publisher: Publisher,
    log: Log,
    principal: Principal,
}

impl FromRequestParts<App> for Outgoing {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let whose = Whose::from_request_parts(parts, app).await?;
        let log = whose.tenant().map_or_else(|| app.log().clone(), |tenant| app.log().for_tenant(tenant));
        let principal = Principal::from_request_parts(parts, app).await?;
        Ok(Self { publisher: Contexts(app.publications().clone()).of(&whose), log, principal })
    }
}

impl Outgoing {
    /// Whether the caller may ask about an event. The scope of a publisher's token must name its types.
    async fn sees(&self, event_id: &str) -> Answer<bool> {
        let Self { log, principal, .. } = self;
        if !principal.role.is_scoped() {
            return Ok(true);
        }
        let is_named = |event: mainstay_events::Event| {
            let stream = event.stream().map(|stream| stream.stream_type.to_owned());
            principal.names(Named::EventType, event.event_type())
                && stream.is_none_or(|stream| principal.names(Named::StreamType, &stream))
        };
        Ok(log.find(event_id).await?.is_some_and(is_named))
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
#[serde(rename_all = "camelCase")]
pub(super) struct Publications {
    publications: Vec<Publication>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_partial: bool,
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
#[serde(rename_all = "camelCase")]
pub(super) struct Letters {
    letters: Vec<Letter>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_partial: bool,
}

/// Publish an event of the log to other contexts
///
/// For each target a row is kept until the event was delivered or is a dead letter; it and the work that delivers are one
/// transaction. An event that was published to a target before is not published to it again.
#[utoipa::path(post, path = "/v1/publications", operation_id = "publishEvent", tag = "publications",
    params(OfTenant), request_body = Publish, responses((status = 200, body = schema::Published)))]
pub(super) async fn publish(outgoing: Outgoing, Json(asked): Json<Publish>) -> Answer<Json<Published>> {
    for (number, target) in asked.target_contexts.iter().enumerate() {
        outgoing.principal.check(Named::Target, target, &format!("targetContexts[{number}]"))?;
    }
    if !outgoing.sees(&asked.event_id).await? {
        return Err(mainstay_events::Error::NotFound(asked.event_id).into());
    }
    let publications =
        outgoing.publisher.publish(&asked.event_id, &asked.source_context, &asked.target_contexts).await?;
    Ok(Json(Published { publications }))
}

/// See where the publications of an event stand
#[utoipa::path(get, path = "/v1/publications/{eventId}", operation_id = "getPublicationStatus", tag = "publications",
    params(("eventId" = String, Path, description = "The event"), OfTenant),
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
    let page = publisher.page(PublicationFilter { target, status, after }, limit).await?;
    let PublicationPage { publications, next, is_partial } = page;
    Ok(Json(Publications { publications, next, is_partial }))
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
    let page = publisher.letter_page(LetterFilter { target, status, correlation_id, after }, limit).await?;
    let LetterPage { letters, next, is_partial } = page;
    Ok(Masked(Letters { letters, next, is_partial }))
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
        ("eventId" = String, Path, description = "The event"), OfTenant),
    responses((status = 200, body = schema::PublicationLetter)))]
pub(super) async fn letter(
    contexts: Contexts,
    whose: Whose,
    Path((target, event_id)): Path<(String, String)>,
) -> Answer<Masked<Letter>> {
    Ok(Masked(contexts.of(&whose).letter(&event_id, &target).await?))
}

/// Try a publication again that was not delivered
#[utoipa::path(post, path = "/admin/publications/letters/{target}/{eventId}/retry",
    operation_id = "retryPublicationLetter", tag = "publications",
    params(("target" = String, Path, description = "The target"),
        ("eventId" = String, Path, description = "The event"), OfTenant),
    responses((status = 200, body = TriedAgain)))]
pub(super) async fn retry_letter(
    contexts: Contexts,
    whose: Whose,
    Path((target, event_id)): Path<(String, String)>,
) -> Answer<Json<TriedAgain>> {
    Ok(Json(TriedAgain { work_id: contexts.of(&whose).retry_letter(&event_id, &target).await? }))
}

/// Leave a publication for good that was not delivered
#[utoipa::path(post, path = "/admin/publications/letters/{target}/{eventId}/ignore",
    operation_id = "ignorePublicationLetter", tag = "publications",
    params(("target" = String, Path, description = "The target"),
        ("eventId" = String, Path, description = "The event"), OfTenant),
    responses((status = 200, body = Counted)))]
pub(super) async fn ignore_letter(
    contexts: Contexts,
    whose: Whose,
    Path((target, event_id)): Path<(String, String)>,
) -> Answer<Json<Counted>> {
    contexts.of(&whose).ignore_letter(&event_id, &target).await?;
    Ok(Json(Counted { count: 1 }))
}
