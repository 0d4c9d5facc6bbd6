//! `POST /v1/events`.

use super::{log_of, schema};
use crate::access::Named;
use crate::{Answer, App, Json, Principal, Problem, Trace, error};
use axum::extract::State;
use mainstay_events::{Append, Appended, Error};

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
    if principal.role.is_scoped() {
        check(&principal, &asked)?;
    }
    // A caller who says where it stands in a trace has its events stand there too.
    if trace.parent_span_id.is_some() {
        for event in asked.events.iter_mut().filter(|event| event.trace.is_none()) {
            event.trace = Some(trace.clone());
        }
    }
    let appended = log_of(&app, &principal).append(asked).await;
    Ok(Json(appended.map_err(|error| without_others(&principal, error))?))
}

/// Refuses events, and conditions over events, that the scope of a publisher does not name.
fn check(principal: &Principal, asked: &Append) -> Answer<()> {
    for (number, event) in asked.events.iter().enumerate() {
        principal.check(Named::EventType, &event.event_type, &format!("events[{number}].type"))?;
        if let Some(stream) = &event.stream {
            let field = format!("events[{number}].stream.type");
            principal.check(Named::StreamType, &stream.stream_type, &field)?;
        }
        if event.scope.is_some() {
            let field = format!("events[{number}].scope");
            let detail = format!("{field}: a publisher moves no version of a scope");
            return Err(Problem::new(&error::NOT_IN_SCOPE, detail).of_field(field));
        }
    }
    let items = asked.condition.iter().flat_map(|condition| condition.fail_if_events_match.items());
    for (number, item) in items.enumerate() {
        let field = format!("condition.failIfEventsMatch[{number}].types");
        if item.types.is_empty() {
            let detail = format!("{field}: a publisher asks about named types of events only");
            return Err(Problem::new(&error::NOT_IN_SCOPE, detail).of_field(field));
        }
        for event_type in &item.types {
            principal.check(Named::EventType, event_type, &field)?;
        }
    }
    Ok(())
}

/// An error as a publisher is told of it, which reads no events: which event was in the way is not part of it.
fn without_others(principal: &Principal, error: Error) -> Problem {
    let names_an_event = matches!(
        error,
        Error::ConditionFailed { .. } | Error::IdempotencyConflict { .. } | Error::EventIdTaken { .. }
    );
    match principal.role.is_scoped() && names_an_event {
        true => Problem::new(error.entry(), error.entry().meaning),
        false => error.into(),
    }
}
