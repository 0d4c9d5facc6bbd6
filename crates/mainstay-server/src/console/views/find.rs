//! From an id to what it names: an event, an item of work, a dead letter, a stream, or else what belongs together under it.

use super::super::ROOT;
use super::super::api::path;
use super::super::parts::Told;
use super::super::visit::Visit;
use axum::response::{IntoResponse, Redirect, Response};

pub(super) async fn go(visit: &Visit) -> Response {
    let Some(id) = visit.asked.get("id") else { return Redirect::to(ROOT).into_response() };
    Redirect::to(&place(visit, id).await).into_response()
}

async fn place(visit: &Visit, id: &str) -> String {
    if let Some((kind, id)) = id.split_once('/') {
        return path(&["console", "streams", kind, id]);
    }
    if visit.get(&path(&["v1", "events", id])).await.is_ok() {
        return path(&["console", "events", id]);
    }
    if visit.get(&path(&["admin", "work", id])).await.is_ok_and(|item| item.is("found")) {
        return path(&["console", "work", id]);
    }
    if visit.get(&path(&["admin", "dead-letters", id])).await.is_ok() {
        return path(&["console", "dead-letters", id]);
    }
    path(&["console", "traces", id])
}
