//! `/health/live`, `/livez`, `/health/ready`, `/readyz`: whether the server lives, and whether it can work.

use crate::app::App;
use crate::{Answer, Json, Permission, Query, Routes};
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

/// A probe that waits longer than this has given up by then, and so may we.
const BOUND: Duration = Duration::from_secs(1);

pub(super) fn routes() -> Routes {
    Routes::default()
        .add(Permission::Public, routes!(live))
        .add(Permission::Public, routes!(livez))
        .add(Permission::Public, routes!(ready))
        .add(Permission::Public, routes!(readyz))
}

/// How the server is.
#[derive(Debug, Serialize, ToSchema)]
struct Health {
    status: Status,
    /// How its parts are.
    #[serde(skip_serializing_if = "Option::is_none")]
    components: Option<Components>,
}

#[derive(Debug, Serialize, ToSchema)]
struct Components {
    store: Component,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Component {
    status: Status,
    /// How long it took to answer.
    latency_ms: u64,
    /// Why it does not, as an error code.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Status {
    /// It works.
    Up,
    /// It does not.
    Down,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Verbosity {
    /// Tell how the parts are, too.
    #[serde(default)]
    #[param(required = false)]
    verbose: bool,
}

/// Whether the process answers at all
#[utoipa::path(get, path = "/health/live", tag = "health", responses((status = 200, body = Health)))]
async fn live() -> Json<Health> {
    Json(Health { status: Status::Up, components: None })
}

/// Whether the process answers at all
#[utoipa::path(get, path = "/livez", tag = "health", responses((status = 200, body = Health)))]
async fn livez() -> Json<Health> {
    live().await
}

/// Whether the server can work: its store answers
#[utoipa::path(get, path = "/health/ready", tag = "health",
    responses((status = 200, body = Health), (status = 503, body = Health)))]
async fn ready(State(app): State<App>) -> Answer<(StatusCode, Json<Health>)> {
    Ok(answer(&app, true).await)
}

/// Whether the server can work: its store answers
#[utoipa::path(get, path = "/readyz", tag = "health", params(Verbosity),
    responses((status = 200, body = Health), (status = 503, body = Health)))]
async fn readyz(
    State(app): State<App>,
    Query(Verbosity { verbose }): Query<Verbosity>,
) -> Answer<(StatusCode, Json<Health>)> {
    Ok(answer(&app, verbose).await)
}

async fn answer(app: &App, is_verbose: bool) -> (StatusCode, Json<Health>) {
    let store = store(app).await;
    let status = store.status;
    let code = if status == Status::Up { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(Health { status, components: is_verbose.then_some(Components { store }) }))
}

async fn store(app: &App) -> Component {
    let asked = Instant::now();
    let asking = app.store().read(async |tx| tx.now_ms().await);
    let code = match tokio::time::timeout(BOUND, asking).await {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(error.code()),
        Err(_) => Some("STORE_BUSY"),
    };
    let status = if code.is_none() { Status::Up } else { Status::Down };
    Component { status, latency_ms: asked.elapsed().as_millis() as u64, code }
}
