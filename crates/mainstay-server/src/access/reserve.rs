//! Reserve of connections: it serves probes and admins when all ordinary places are taken.
//!
//! | a request over a connection of the reserve | is |
//! |---|---|
//! | a probe | answered without its body; its place may be given to another connection meanwhile |
//! | of an admin without a tenant, once all of it is here | answered, and its place is kept until then |
//! | of an admin, for an answer that streams or waits, or for the console | refused |
//! | any other | refused; its place may be given to another connection |
//!
//! A body that is not read is not awaited: the connection is closed after the answer.

use super::guard::bearer;
use super::{Role, Rule};
use crate::app::App;
use crate::extract::body::read_within;
use crate::listen::connection::RESERVED_TIMEOUT;
use crate::listen::places::Reserved;
use crate::options::BATCH_FACTOR;
use crate::{Problem, console, error};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Extensions;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::time::Duration;

/// Longest time for which a request waits for the tokens. A store that is busy must not fill the reserve.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(250);

/// Refuses ordinary requests on connections of the reserve.
pub(crate) async fn admit(State(app): State<App>, request: Request, next: Next) -> Response {
    let Some(place) = request.extensions().get::<Reserved>().cloned() else { return next.run(request).await };
    let (parts, body) = request.into_parts();
    if is_probe(parts.uri.path()) {
        return next.run(Request::from_parts(parts, Body::empty())).await;
    }
    let token = bearer(&parts.headers).ok().flatten();
    if is_of_console(parts.uri.path()) || !is_of_admin(&app, token).await {
        return refuse(&app).into_response();
    }
    // Of no route the body may be larger; each route has its own limit after this one.
    let most = app.options().max_body_bytes.saturating_mul(BATCH_FACTOR);
    let limit = app.options().body_timeout.min(RESERVED_TIMEOUT);
    match read_within(limit, most, body).await {
        Ok(bytes) => {
            place.keep();
            next.run(Request::from_parts(parts, Body::from(bytes))).await
        }
        Err(problem) => problem.into_response(),
    }
}

/// The refusal of a request whose answer would take a place of the reserve for long; nothing for other requests.
pub(super) fn objection(app: &App, rule: Rule, extensions: &Extensions) -> Option<Problem> {
    let is_long = rule.is_streaming || rule.is_waiting;
    (is_long && extensions.get::<Reserved>().is_some()).then(|| refuse(app))
}

fn refuse(app: &App) -> Problem {
    app.figures().connections_refused.increment();
    Problem::new(&error::CONNECTIONS_FULL, "All connections are taken, or all that this address may have.")
}

fn is_probe(path: &str) -> bool {
    path == "/health" || path.starts_with("/health/") || path == "/livez" || path == "/readyz"
}

/// Whether it is of the console, which has answers that stream.
fn is_of_console(path: &str) -> bool {
    path.strip_prefix(console::ROOT).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether it is a token of an admin of the deployment.
async fn is_of_admin(app: &App, token: Option<&str>) -> bool {
    let Some(token) = token else { return false };
    let found = tokio::time::timeout(LOOKUP_TIMEOUT, app.tokens().authenticate(token)).await;
    let found = found.ok().and_then(Result::ok).flatten();
    found.is_some_and(|principal| principal.role == Role::Admin && principal.tenant.is_none())
}
