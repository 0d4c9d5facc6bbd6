//! `POST /v1/events`.

use super::{log_of, schema};
use crate::{Answer, App, Json, Principal, Trace};
use axum::extract::State;
use mainstay_events::{Append, Appended};

/// Append events, all or none
///
/// With a condition, they are appended only if no event that it forbids is there; with an idempotency key, only once,
/// however often the request is sent.
#[utoipa::path(post, path = "/v1/events", operation_id = "appendEvents", tag = "events",
    request_body = schema::Append, responses(
        (status = 200, body = schema::Appended),
        (status = 409, description = "The state of the log speaks against it; the document says what it is.",
            content_type = "application/problem+json", body = schema::Conflict)))]
pub(super) async fn append(
    State(app): State<App>,
    principal: Principal,
    Trace(trace): Trace,
    Json(mut asked): Json<Append>,
) -> Answer<Json<Appended>> {
    // A caller who says where it stands in a trace has its events stand there too.
    if trace.parent_span_id.is_some() {
        for event in asked.events.iter_mut().filter(|event| event.trace.is_none()) {
            event.trace = Some(trace.clone());
        }
    }
    Ok(Json(log_of(&app, &principal).append(asked).await?))
}
