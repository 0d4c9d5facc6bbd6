//! `GET /v1/streams/{type}/{id}`.

use super::read::{json, write_page};
use super::select::{limit, position};
use super::{log_of, schema};
use crate::{Answer, App, Path, Principal, Problem, Query};
use axum::extract::State;
use axum::response::Response;
use mainstay_core::query::MAX_NAME_BYTES;
use mainstay_events::Event;
use serde::Deserialize;
use std::io::Write;
use utoipa::IntoParams;

/// Which part of a stream is wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Parameters {
    /// After this version.
    #[param(minimum = 0, maximum = 9223372036854775807_i64)]
    after: Option<u64>,
    /// At most so many events.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Read a stream
///
/// Its events in order, and its version; 0 when there is no such stream. `next` is the `after` of the next page.
#[utoipa::path(get, path = "/v1/streams/{type}/{id}", operation_id = "readStream", tag = "events",
    params(("type" = String, Path, description = "The type of the stream"),
        ("id" = String, Path, description = "Which one"), Parameters),
    responses((status = 200, body = schema::Stream)))]
pub(super) async fn read(
    State(app): State<App>,
    principal: Principal,
    Path((stream_type, id)): Path<(String, String)>,
    Query(parameters): Query<Parameters>,
) -> Answer<Response> {
    let limit = limit(parameters.limit)?;
    let after = position("after", parameters.after.unwrap_or(0))?;
    for (field, text) in [("type", &stream_type), ("id", &id)] {
        if text.len() > MAX_NAME_BYTES || text.contains(char::is_control) {
            let detail = format!("{field}: has at most {MAX_NAME_BYTES} bytes and no control characters");
            return Err(Problem::new(&crate::error::PATH_INVALID, detail).of_field(field));
        }
    }
    let stream = log_of(&app, &principal).read_stream(&stream_type, &id, after, limit).await?;
    let last = stream.page.events.last().and_then(Event::stream).map(|place| place.version);
    let next = stream.page.next.and(last);
    Ok(json(|out| {
        // Writing to a Vec cannot fail.
        let _ = write!(out, "\"version\":{},", stream.version);
        write_page(out, &stream.page, next);
    }))
}
