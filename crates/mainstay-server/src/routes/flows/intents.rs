//! `/v1/intents` and `/admin/intents`: long operations between two events.

use super::schema::commands::Payload;
use super::schema::intents as schema;
use crate::extract::{OfTenant, Whose};
use crate::masked::Masked;
use crate::routes::limit;
use crate::{Answer, App, Json, Path, Principal, Problem, Query, Trace};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use mainstay_flows::delivery::intents::{
    Completed, Completion, CompletionStatus, EventNames, Intent, IntentFilter, IntentPage, IntentStatus,
    Intents, NewIntent, OnTimeout, Orphans, Place, Policy, Recorded,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};

/// Intents as whoever asks sees them: a token that is confined to a tenant begins its own, and knows of no others.
pub(super) struct Book(Intents);

impl FromRequestParts<App> for Book {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let principal = Principal::from_request_parts(parts, app).await?;
        Ok(Self(match &principal.tenant {
            Some(tenant) => app.intents().for_tenant(tenant),
            None => app.intents().clone(),
        }))
    }
}

/// The intents that a key is looked up among.
pub(super) struct Keyed(Intents);

impl FromRequestParts<App> for Keyed {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let whose = Whose::from_request_parts(parts, app).await?;
        let all = app.intents();
        Ok(Self(whose.tenant().map_or_else(|| all.clone(), |tenant| all.for_tenant(tenant))))
    }
}

/// A long operation that begins.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = NewIntent)]
pub(super) struct New {
    /// What begins.
    #[schema(min_length = 1, max_length = 128)]
    operation_type: String,
    /// The type of the stream that its events belong to.
    #[schema(min_length = 1, max_length = 512)]
    stream_type: String,
    /// Which stream.
    #[schema(min_length = 1, max_length = 512)]
    stream_id: String,
    /// The bounded context that it belongs to.
    #[schema(min_length = 1, max_length = 256)]
    bounded_context: String,
    /// How long it may take; at most ten years.
    #[schema(minimum = 1, maximum = 315360000000_u64)]
    timeout_ms: u64,
    /// What becomes of it when nobody completes it in time.
    #[schema(value_type = schema::IntentPolicy)]
    on_timeout: Policy,
    /// The function that is called then, as work; `retry` needs one.
    handler: Option<String>,
    /// How often it is begun again, for the policy `retry`, which needs it.
    #[schema(minimum = 1, maximum = 1000)]
    max_retries: Option<u32>,
    /// When it began, in milliseconds since the epoch. With it, the intent may be recorded again and there is one.
    #[schema(minimum = 0, maximum = 253402300799999_i64)]
    started_at: Option<i64>,
    /// What its events are called, where that is not as its operation's.
    #[schema(value_type = Option<schema::IntentEventNames>)]
    events: Option<EventNames>,
    /// What it belongs together with; one is made when there is none.
    #[schema(min_length = 1, max_length = 256)]
    correlation_id: Option<String>,
    /// The command or event that caused it.
    #[schema(min_length = 1, max_length = 256)]
    causation_id: Option<String>,
    /// What else there is to know, at most 32 KiB; the handler is called with it.
    #[schema(value_type = Option<Payload>)]
    metadata: Option<Box<RawValue>>,
}

/// How an operation has ended.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = IntentCompletion)]
pub(super) struct End {
    /// How.
    #[schema(value_type = schema::IntentCompletionStatus)]
    status: CompletionStatus,
    /// What came of it.
    #[schema(value_type = Option<Payload>)]
    result: Option<Box<RawValue>>,
    /// Why it was not done.
    error: Option<String>,
}

/// Why an intent is given up.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AbandonIntent)]
pub(super) struct Abandon {
    /// Why.
    #[schema(min_length = 1)]
    reason: Option<String>,
}

/// Which intents without completion are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OrphanParameters {
    /// Of this operation.
    operation_type: Option<String>,
    /// That began at least so long ago; any unless given.
    older_than_ms: Option<u64>,
    /// At most so many.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// Which intents are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Parameters {
    /// Of this status.
    #[param(value_type = Option<schema::IntentStatus>)]
    status: Option<IntentStatus>,
    /// Of this operation.
    operation_type: Option<String>,
    /// That belong together under this id.
    correlation_id: Option<String>,
    /// At most so many.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

fn place(cursor: Option<&str>) -> Answer<Option<Place>> {
    let wrong = |_| Problem::invalid_parameter("cursor", "is not the `next` of a page");
    cursor.map(|cursor| cursor.parse().map_err(wrong)).transpose()
}

/// What a filter compares with; some texts are in no intent.
fn plain(name: &str, text: Option<String>) -> Answer<Option<String>> {
    match text {
        Some(text) if text.contains(char::is_control) => {
            Err(Problem::invalid_parameter(name, "must have no control characters"))
        }
        text => Ok(text),
    }
}

/// Record that a long operation begins
///
/// Its event, the intent and its timer are one transaction. When nobody completes it in time, `onTimeout` says what becomes of
/// it: `abandon` ends it with an event, `alert` tells and goes on, `retry` calls the handler and at last abandons it. A token
/// that is confined to a tenant cannot name a handler.
#[utoipa::path(post, path = "/v1/intents", operation_id = "recordIntent", tag = "intents", request_body = New,
    responses((status = 200, body = schema::RecordedIntent)))]
pub(super) async fn record(
    Book(intents): Book,
    principal: Principal,
    Trace(trace): Trace,
    Json(asked): Json<New>,
) -> Answer<Json<Recorded>> {
    // Who may not start work may not let it be started either.
    if asked.handler.is_some() {
        principal.unconfined("The handler of an intent is work, which")?;
    }
    let on_timeout =
        OnTimeout { policy: asked.on_timeout, handler: asked.handler, max_retries: asked.max_retries };
    let (stream, timeout) = ((asked.stream_type, asked.stream_id), Duration::from_millis(asked.timeout_ms));
    let mut new =
        NewIntent::new(asked.operation_type, stream, asked.bounded_context, timeout, on_timeout).trace(trace);
    new = asked.started_at.into_iter().fold(new, NewIntent::started_at_ms);
    new = asked.events.into_iter().fold(new, NewIntent::names);
    new = asked.correlation_id.into_iter().fold(new, NewIntent::correlation);
    new = asked.causation_id.into_iter().fold(new, NewIntent::causation);
    if let Some(metadata) = &asked.metadata {
        new = new.metadata(metadata)?;
    }
    Ok(Json(intents.record(new).await?))
}

/// Record that a long operation has ended
///
/// Whoever is first decides. Sent again in the same way, it is a success that changes nothing; an intent that has ended
/// otherwise is `INTENT_ALREADY_ENDED`.
#[utoipa::path(post, path = "/v1/intents/{intentKey}/complete", operation_id = "completeIntent", tag = "intents",
    params(("intentKey" = String, Path, description = "The intent"), OfTenant), request_body = End,
    responses((status = 200, body = schema::CompletedIntent)))]
pub(super) async fn complete(
    Keyed(intents): Keyed,
    Path(intent_key): Path<String>,
    Json(asked): Json<End>,
) -> Answer<Json<Completed>> {
    let mut completion = Completion::new(intent_key, asked.status);
    if let Some(result) = &asked.result {
        completion = completion.result(result)?;
    }
    completion = asked.error.into_iter().fold(completion, Completion::error);
    Ok(Json(intents.complete(completion).await?))
}

/// List operations that began and that nobody has ended, the oldest first
#[utoipa::path(get, path = "/v1/intents/orphans", operation_id = "listOrphanedIntents", tag = "intents",
    params(OrphanParameters), responses((status = 200, body = schema::IntentPage)))]
pub(super) async fn orphans(
    Book(intents): Book,
    Query(asked): Query<OrphanParameters>,
) -> Answer<Masked<IntentPage>> {
    let limit = limit(asked.limit)?;
    let orphans = Orphans {
        operation_type: plain("operationType", asked.operation_type)?,
        older_than_ms: asked.older_than_ms.unwrap_or(0),
        after: place(asked.cursor.as_deref())?,
    };
    Ok(Masked(intents.orphans(orphans, limit).await?))
}

/// List intents, the newest first
#[utoipa::path(get, path = "/admin/intents", operation_id = "listIntents", tag = "intents",
    params(Parameters), responses((status = 200, body = schema::IntentPage)))]
pub(super) async fn list(Book(intents): Book, Query(asked): Query<Parameters>) -> Answer<Masked<IntentPage>> {
    let limit = limit(asked.limit)?;
    let filter = IntentFilter {
        status: asked.status,
        operation_type: plain("operationType", asked.operation_type)?,
        correlation_id: plain("correlationId", asked.correlation_id)?,
        after: place(asked.cursor.as_deref())?,
    };
    Ok(Masked(intents.list(filter, limit).await?))
}

/// Look at an intent
#[utoipa::path(get, path = "/admin/intents/{intentKey}", operation_id = "getIntent", tag = "intents",
    params(("intentKey" = String, Path, description = "The intent"), OfTenant),
    responses((status = 200, body = schema::Intent)))]
pub(super) async fn get(Keyed(intents): Keyed, Path(intent_key): Path<String>) -> Answer<Masked<Intent>> {
    Ok(Masked(intents.get(&intent_key).await?))
}

/// Give an intent up, with an event
#[utoipa::path(post, path = "/admin/intents/{intentKey}/abandon", operation_id = "abandonIntent", tag = "intents",
    params(("intentKey" = String, Path, description = "The intent"), OfTenant), request_body = Abandon,
    responses((status = 200, body = schema::CompletedIntent)))]
pub(super) async fn abandon(
    Keyed(intents): Keyed,
    Path(intent_key): Path<String>,
    Json(asked): Json<Abandon>,
) -> Answer<Json<Completed>> {
    let reason = asked.reason.unwrap_or_else(|| "abandoned by an operator".to_owned());
    Ok(Json(intents.complete(Completion::abandoned(intent_key, reason)).await?))
}
