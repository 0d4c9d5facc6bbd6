//! `GET /v1/events` and `GET /v1/events/{eventId}`.

use super::select::{Order, Parameters};
use super::{log_of, schema};
use crate::extract::{OfTenant, Whose};
use crate::{Answer, App, Path, Principal, Query};
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use mainstay_events::{Error, Event, Page};
use std::io::Write;

/// Read a page of events
///
/// In the order of their positions; `next` is the `after` of the next page. With `order=backward` the newest come first, and
/// `next` is the `until` of the next page. A page holds at most 4 MiB of events.
#[utoipa::path(get, path = "/v1/events", operation_id = "readEvents", tag = "events",
    params(Parameters), responses((status = 200, body = schema::Page)))]
pub(super) async fn read(
    State(app): State<App>,
    principal: Principal,
    Query(parameters): Query<Parameters>,
) -> Answer<Response> {
    let (limit, expected, order) = (parameters.limit()?, parameters.epoch(), parameters.order());
    let (log, selection) = (log_of(&app, &principal), parameters.selection()?);
    let page = match order {
        Order::Forward => log.read(&selection, limit).await?,
        Order::Backward => log.read_backwards(&selection, limit).await?,
    };
    check_epoch(expected, page.epoch)?;
    Ok(json(|out| write_page(out, &page, page.next)))
}

/// Look at one event in full, by its id
#[utoipa::path(get, path = "/v1/events/{eventId}", operation_id = "getEvent", tag = "events",
    params(("eventId" = String, Path, description = "The event"), OfTenant),
    responses((status = 200, body = schema::Event)))]
pub(super) async fn get(
    State(app): State<App>,
    whose: Whose,
    Path(event_id): Path<String>,
) -> Answer<Response> {
    let found = match whose.tenant() {
        Some(tenant) => app.log().for_tenant(tenant).find(&event_id).await?,
        None => app.log().find(&event_id).await?,
    };
    let event = found.ok_or(Error::NotFound(event_id))?;
    let mut body = Vec::new();
    Event::write_json(&event, &mut body);
    Ok(([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response())
}

/// Refuses positions of another life of the log.
pub(super) fn check_epoch(expected: Option<u64>, found: u64) -> Answer<()> {
    match expected {
        Some(expected) if expected != found => Err(Error::EpochChanged { expected, found }.into()),
        _ => Ok(()),
    }
}

/// An answer of JSON that is written by hand, because most of it is JSON already.
pub(super) fn json(write: impl FnOnce(&mut Vec<u8>)) -> Response {
    let mut body = Vec::with_capacity(64 << 10);
    body.push(b'{');
    write(&mut body);
    body.push(b'}');
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

/// The members of a page.
pub(super) fn write_page(out: &mut Vec<u8>, page: &Page, next: Option<u64>) {
    out.extend_from_slice(b"\"events\":[");
    for (number, event) in page.events.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        Event::write_json(event, out);
    }
    // Writing to a Vec cannot fail.
    let _ = write!(out, "],\"head\":{},\"epoch\":{}", page.head, page.epoch);
    if let Some(next) = next {
        let _ = write!(out, ",\"next\":{next}");
    }
}
