//! `/openapi.json`: the description of the API.

use crate::app::App;
use crate::{Permission, Routes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use utoipa_axum::routes;

pub(super) fn routes() -> Routes {
    Routes::default().add(Permission::Public, routes!(description))
}

/// This description
#[utoipa::path(get, path = "/openapi.json", operation_id = "openapi", tag = "operate",
    responses((status = 200, body = Object, content_type = "application/json")))]
async fn description(State(app): State<App>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], app.openapi().to_owned())
}
