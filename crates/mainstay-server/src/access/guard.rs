//! The decision whether a request is let in, made once for every route.

use super::local;
use super::watch::watched;
use super::{Oversight, Permission, Principal, Rule};
use crate::app::App;
use crate::audit::{Deed, audited};
use crate::{Answer, Problem, error};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, LINK};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use mainstay_guards::http::Peer;
use std::sync::Arc;
use std::time::Duration;

const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");

/// What the guard of one route knows.
#[derive(Clone)]
pub(crate) struct Post {
    pub(crate) app: App,
    pub(crate) rule: Rule,
    /// Whether the route is one of those that are open while nobody needs a token.
    pub(crate) is_open: bool,
    /// The path of the route, if what is done there is written down.
    pub(crate) audited: Option<Arc<str>>,
}

/// Who asks from inside of the server, by a session of the console. No request from outside can carry it.
#[derive(Clone)]
pub(crate) struct Inside(pub(crate) Principal);

/// Why somebody is not let in, and who it is if that is known.
pub(crate) struct Refused {
    pub(crate) problem: Problem,
    pub(crate) principal: Option<Principal>,
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self { problem, principal: None }
    }
}

/// Lets a request in or answers why not, and gives up on it when its time is over.
pub(crate) async fn guard(State(post): State<Post>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(post.rule);
    let admitted = post.admit(&parts).await;
    match &admitted {
        Ok(Some(principal)) => {
            parts.extensions.insert(principal.clone());
            parts.extensions.insert(principal.caller());
        }
        Ok(None) => {}
        Err(_) => post.app.figures().refused.increment(),
    }
    if let Some(path) = &post.audited {
        let action = format!("{} {path}", parts.method);
        // What takes too long is written down as well.
        let answer = async |request| post.in_time(next.run(request)).await;
        let deed = Deed { action: &action, is_counted: post.rule.oversight == Oversight::Counted };
        let answer = audited(&post.app, deed, admitted, Request::from_parts(parts, body), answer).await;
        return match post.rule.successor {
            Some(successor) => replaced(answer, &action, successor),
            None => answer,
        };
    }
    let principal = match admitted {
        Ok(principal) => principal,
        Err(refused) => return refused.problem.into_response(),
    };
    let answer = next.run(Request::from_parts(parts, body));
    if post.rule.is_streaming {
        return match principal {
            Some(principal) => watched(answer.await, post.app, principal),
            None => answer.await,
        };
    }
    post.in_time(answer).await
}

impl Post {
    /// The answer, if it comes in time.
    async fn in_time(&self, answer: impl Future<Output = Response>) -> Response {
        let waiting = if self.rule.is_waiting { mainstay_work::MAX_WAIT } else { Duration::ZERO };
        let limit = self.app.options().request_timeout + waiting;
        tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| {
            let detail = format!("The request took longer than {} ms.", limit.as_millis());
            Problem::new(&error::REQUEST_TIMEOUT, detail).into_response()
        })
    }

    async fn admit(&self, parts: &Parts) -> Result<Option<Principal>, Refused> {
        let Some(needed) = self.rule.permission.role() else { return Ok(None) };
        let principal = self.identify(parts).await?;
        if principal.role < needed {
            let problem = Problem::new(&error::UNAUTHORIZED, format!("{needed} role required"));
            return Err(Refused { problem, principal: Some(principal) });
        }
        Ok(Some(principal))
    }

    async fn identify(&self, parts: &Parts) -> Answer<Principal> {
        if let Some(Inside(principal)) = parts.extensions.get() {
            let is_valid = self.app.tokens().is_still_valid(principal).await?;
            return is_valid
                .then(|| principal.clone())
                .ok_or_else(|| unauthenticated("The token is revoked or expired."));
        }
        Ok(match bearer(&parts.headers)? {
            Some(token) => {
                let found = self.app.tokens().authenticate(token).await?;
                found.ok_or_else(|| unauthenticated("The token is unknown, revoked or expired."))?
            }
            None if self.needs_no_token(parts).await? => match local::objection(parts) {
                Some(objection) => return Err(Problem::new(&error::ORIGIN_REFUSED, objection)),
                None => Principal::local(),
            },
            None => return Err(unauthenticated("A token is needed.")),
        })
    }

    async fn needs_no_token(&self, parts: &Parts) -> Answer<bool> {
        let is_from_here = parts.extensions.get::<Peer>().is_some_and(|peer| local::is_loopback(peer.0));
        if self.rule.permission == Permission::Local {
            return Ok(is_from_here);
        }
        let is_unreachable = is_from_here && local::is_loopback(self.app.address().ip());
        Ok(self.is_open && is_unreachable && !self.app.tokens().exist().await?)
    }
}

/// An answer of a route that is going away.
fn replaced(mut answer: Response, action: &str, successor: &str) -> Response {
    tracing::warn!(action, successor, "a route was called that is going away");
    let headers = answer.headers_mut();
    headers.insert(DEPRECATION, HeaderValue::from_static("true"));
    if let Ok(link) = HeaderValue::try_from(format!("<{successor}>; rel=\"successor-version\"")) {
        headers.insert(LINK, link);
    }
    answer
}

fn unauthenticated(detail: &str) -> Problem {
    Problem::new(&error::UNAUTHENTICATED, detail)
}

/// The token that was presented. A header that is something else is refused, not ignored.
fn bearer(headers: &HeaderMap) -> Answer<Option<&str>> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let (scheme, token) = value.to_str().ok().and_then(|text| text.split_once(' ')).unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("bearer") || values.next().is_some() {
        return Err(unauthenticated("The Authorization header is not `Bearer TOKEN`."));
    }
    Ok(Some(token.trim()))
}
