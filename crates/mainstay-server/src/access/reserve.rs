//! Reserve of connections: it serves probes and admins when all ordinary places are taken.

use super::Role;
use super::guard::bearer;
use crate::app::App;
use crate::{Problem, error};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Mark of a request that came over a connection of the reserve.
#[derive(Clone, Copy)]
pub(crate) struct Reserved;

/// Refuses ordinary requests on connections of the reserve.
pub(crate) async fn admit(State(app): State<App>, request: Request, next: Next) -> Response {
    let is_ordinary = request.extensions().get::<Reserved>().is_none();
    if is_ordinary || is_probe(request.uri().path()) {
        return next.run(request).await;
    }
    let token = bearer(request.headers()).ok().flatten().map(str::to_owned);
    if is_of_admin(&app, token.as_deref()).await {
        return next.run(request).await;
    }
    app.figures().connections_refused.increment();
    let detail = "All connections are taken, or all that this address may have.";
    Problem::new(&error::CONNECTIONS_FULL, detail).into_response()
}

fn is_probe(path: &str) -> bool {
    path == "/health" || path.starts_with("/health/") || path == "/livez" || path == "/readyz"
}

async fn is_of_admin(app: &App, token: Option<&str>) -> bool {
    let Some(token) = token else { return false };
    let found = app.tokens().authenticate(token).await;
    found.is_ok_and(|found| found.is_some_and(|principal| principal.role == Role::Admin))
}
