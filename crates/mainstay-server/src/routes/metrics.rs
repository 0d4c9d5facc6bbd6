//! `/metrics`: figures for Prometheus.

use crate::app::App;
use crate::{Permission, Routes, metrics};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use utoipa_axum::routes;

pub(super) fn routes() -> Routes {
    Routes::default().add(Permission::Local, routes!(all))
}

/// What the server and its store measure about themselves
#[utoipa::path(get, path = "/metrics", operation_id = "metrics", tag = "operate",
    responses((status = 200, body = String, content_type = "text/plain; version=0.0.4")))]
async fn all(State(app): State<App>) -> impl IntoResponse {
    ([(CONTENT_TYPE, metrics::MEDIA_TYPE)], metrics::render(&app.measured()))
}
