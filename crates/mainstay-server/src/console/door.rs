//! What every request of the console passes.
//!
//! A browser sends the cookie of a session along whoever has made it ask. So what changes something must come from a page of
//! this server (its Origin is the Host, and its form has what only a page of this session knows), and nothing here may be
//! shown in a frame of, or run a script from, anywhere else.

use super::sessions::csrf;
use super::visit::{Session, Visit};
use super::{Console, LOGIN, Sessions};
use crate::access::local::{self, PROXY_HEADERS, SEC_FETCH_SITE};
use crate::{Answer, Problem, audit, error};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, FORWARDED, HeaderName, ORIGIN, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use mainstay_guards::http::Peer;
use std::convert::Infallible;
use tokio::time::timeout;

/// What somebody is called in the audit who comes from elsewhere, or is not logged in.
const STRANGER: &str = "ANY /console";

/// Path of the stream that open pages follow.
const LIVE: &str = "/console/live";

/// The cookie of a session.
pub(super) const COOKIE_NAME: &str = "mainstay_console";

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
const PERMISSIONS: HeaderName = HeaderName::from_static("permissions-policy");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const OPENER: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// Refuses what comes from pages of elsewhere, and tells the browser what pages of the console may do.
pub(super) async fn every(State(console): State<Console>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let mut answer = match objection(&console, &parts) {
        Some(objection) => {
            audit::note(&console.app, STRANGER, None, Some(&error::ORIGIN_REFUSED)).await;
            Problem::new(&error::ORIGIN_REFUSED, objection).into_response()
        }
        None => in_time(&console, next.run(Request::from_parts(parts, body))).await,
    };
    let headers = answer.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        // Of a link that logs one in, nobody else is told.
        (REFERRER_POLICY, "same-origin"),
        (OPENER, "same-origin"),
        (PERMISSIONS, "camera=(), geolocation=(), microphone=()"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    answer
}

/// The answer, if it comes in time. A form first arrives and is then a call of the API, which has its own time.
async fn in_time(console: &Console, answer: impl Future<Output = Response>) -> Response {
    let options = console.app.options();
    let limit = options.body_timeout + options.request_timeout;
    timeout(limit, answer).await.unwrap_or_else(|_| {
        let detail = format!("The request took longer than {} ms.", limit.as_millis());
        Problem::new(&error::REQUEST_TIMEOUT, detail).into_response()
    })
}

fn objection(console: &Console, parts: &Parts) -> Option<&'static str> {
    let headers = &parts.headers;
    let Some(host) = local::host(parts) else { return Some("The request has no Host header, or several.") };
    let is_passed_on =
        is_of_proxy(console, parts) && PROXY_HEADERS.iter().any(|name| headers.contains_key(name));
    let is_private = local::is_loopback(console.app.address().ip());
    if is_private && !is_passed_on && !local::is_this_machine(&host) {
        return Some("The Host header does not name this machine.");
    }
    let is_safe = matches!(parts.method, Method::GET | Method::HEAD);
    if headers.contains_key(ORIGIN) && !local::is_same_origin(headers, &host) {
        return Some("The request comes from a web page of another origin.");
    }
    let site = local::only(headers, &SEC_FETCH_SITE);
    if !is_safe && site.is_some_and(|site| site != "same-origin" && site != "none") {
        return Some("The request comes from a web page of another site.");
    }
    None
}

/// Whether a request comes from a proxy of our own. Nobody else's word counts: a page of elsewhere can send any header.
fn is_of_proxy(console: &Console, parts: &Parts) -> bool {
    let proxies = &console.app.options().proxies;
    peer(parts).is_some_and(|Peer(peer)| proxies.iter().any(|range| range.contains(peer.to_canonical())))
}

/// How a request came here.
pub(super) struct Way {
    /// Whether nobody on the way could read it.
    pub(super) is_secret: bool,
}

impl FromRequestParts<Console> for Way {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, Infallible> {
        let is_own = console.app.options().tls.is_some();
        Ok(Self { is_secret: is_own || (is_of_proxy(console, parts) && says_https(&parts.headers)) })
    }
}

/// Whether proxies say that the browser spoke TLS.
fn says_https(headers: &HeaderMap) -> bool {
    let said = |name: HeaderName| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split([',', ';'])).map(|part| part.trim().to_ascii_lowercase())
    };
    said(FORWARDED_PROTO).any(|scheme| scheme == "https")
        || said(FORWARDED).any(|pair| pair == "proto=https" || pair == "proto=\"https\"")
}

/// Lets in who is logged in; sends others to the login.
pub(super) async fn known(State(console): State<Console>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match session(&console, &parts).await {
        Ok(Some((session, principal))) => {
            let visit = Visit::new(&console, &parts, session, principal);
            parts.extensions.insert(visit);
            next.run(Request::from_parts(parts, body)).await
        }
        Ok(None) if parts.method == Method::GET && parts.headers.get("hx-request").is_none() => {
            let to = parts.uri.path_and_query().map_or("", |path| path.as_str());
            let to: String = form_urlencoded::byte_serialize(to.as_bytes()).collect();
            Redirect::to(&format!("{LOGIN}?to={to}")).into_response()
        }
        Ok(None) => {
            console.app.figures().refused.increment();
            // A page that is left open after its session asks again and again; a form does not.
            if parts.method != Method::GET {
                audit::note(&console.app, STRANGER, None, Some(&error::UNAUTHENTICATED)).await;
            }
            Problem::new(&error::UNAUTHENTICATED, "Nobody is logged in; go to /console/login.")
                .into_response()
        }
        Err(problem) => problem.into_response(),
    }
}

async fn session(console: &Console, parts: &Parts) -> Answer<Option<(Session, crate::Principal)>> {
    let Some(secret) = cookie(&parts.headers, COOKIE_NAME) else { return Ok(None) };
    let sessions = Sessions::new(&console.app);
    // A page that is left open follows by itself, which is no use of its reader.
    let is_followed = parts.uri.path().starts_with(LIVE);
    let token = if is_followed { sessions.token(secret).await? } else { sessions.used(secret).await? };
    let Some(token) = token else { return Ok(None) };
    let Some(principal) = console.app.tokens().principal(&token).await? else { return Ok(None) };
    let session = Session { secret: secret.to_owned(), csrf: csrf(secret) };
    Ok(Some((session, principal)))
}

/// The value of a cookie.
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// Where a request came from, for limits that count by address.
pub(super) fn peer(parts: &Parts) -> Option<Peer> {
    parts.extensions.get::<Peer>().copied()
}
