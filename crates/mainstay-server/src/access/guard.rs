//! The decision whether a request is let in, made once for every route.

use super::quota::Held;
use super::watch::watched;
use super::{Oversight, Permission, Principal, Rule};
use super::{local, reserve};
use crate::app::App;
use crate::audit::{self, Deed, audited};
use crate::{Answer, Problem, error};
use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::header::{AUTHORIZATION, LINK};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use mainstay_guards::http::Peer;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// Time to write down an answer that was given up.
const NOTING: Duration = Duration::from_secs(1);
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
    /// The path of a route of applications, if what changes something there is written down.
    pub(crate) noted: Option<Arc<str>>,
}

/// Caller inside of this process: a session of the console, or a user who has opened the store. No request from outside can
/// carry it.
#[derive(Clone)]
pub(crate) struct Inside(pub(crate) Principal);

/// A call that is audited although its route is one that applications call all day.
#[derive(Clone)]
pub(crate) struct Written;

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
    let mut admitted = post.admit(&parts).await;
    if admitted.is_ok()
        && let Some(problem) = reserve::objection(&post.app, post.rule, &parts.extensions)
    {
        let principal = admitted.ok().flatten();
        admitted = Err(Refused { problem, principal });
    }
    let _held = post.count(&mut admitted);
    match &admitted {
        Ok(Some(principal)) => {
            parts.extensions.insert(principal.clone());
            parts.extensions.insert(principal.caller());
        }
        Ok(None) => {}
        Err(_) => post.app.figures().refused.increment(),
    }
    // A route whose changes are noted has its entry already.
    let written = parts.extensions.get::<Written>().filter(|_| post.noted.is_none());
    let written = written.and_then(|_| parts.extensions.get::<MatchedPath>());
    let written = written.map(|path| path.as_str().into());
    if let Some(path) = &post.audited.clone().or(written) {
        let action = format!("{} {path}", parts.method);
        let is_user = matches!(&admitted, Ok(Some(principal)) if principal.user.is_some());
        // What takes too long is written down as well.
        let answer = async |request| post.in_time(next.run(request)).await;
        let deed = Deed { action: &action, is_counted: post.rule.oversight == Oversight::Counted };
        let answer = audited(&post.app, deed, admitted, Request::from_parts(parts, body), answer).await;
        return match post.rule.successor {
            // This program's own verbs need no warning.
            Some(successor) if !is_user => replaced(answer, &action, successor),
            _ => answer,
        };
    }
    let noted = post.noted.as_ref().filter(|_| changes(&parts.method));
    let principal = match (admitted, noted) {
        (Ok(principal), _) => principal,
        (Err(refused), Some(path)) => {
            return audit::refused(&post.app, &format!("{} {path}", parts.method), &parts, refused).await;
        }
        (Err(refused), None) => return refused.problem.into_response(),
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

/// Writes down what an application changes, if it is to be. This is inside of what keeps answers by their idempotency key: the
/// entry belongs to the transaction of the action, and a repeated request does nothing that could be written down.
pub(crate) async fn note(State(post): State<Post>, request: Request, next: Next) -> Response {
    let Some(path) = post.noted.clone().filter(|_| changes(request.method())) else {
        return next.run(request).await;
    };
    let action = format!("{} {path}", request.method());
    let principal = request.extensions().get::<Principal>().cloned();
    let deed = Deed { action: &action, is_counted: false };
    let answer = async |request| post.within(post.limit(), next.run(request)).await;
    audited(&post.app, deed, Ok(principal), request, answer).await
}

fn changes(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

impl Post {
    /// The answer, if it comes in time.
    async fn in_time(&self, answer: impl Future<Output = Response>) -> Response {
        // The limit of an audited call is inside, so that an answer that is given up is written down, too.
        let further = if self.noted.is_some() { NOTING } else { Duration::ZERO };
        self.within(self.limit() + further, answer).await
    }

    fn limit(&self) -> Duration {
        let waiting = if self.rule.is_waiting { mainstay_work::MAX_WAIT } else { Duration::ZERO };
        self.app.options().request_timeout + waiting
    }

    async fn within(&self, limit: Duration, answer: impl Future<Output = Response>) -> Response {
        tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| {
            let detail = format!("The request took longer than {} ms.", limit.as_millis());
            Problem::new(&error::REQUEST_TIMEOUT, detail).into_response()
        })
    }

    async fn admit(&self, parts: &Parts) -> Result<Option<Principal>, Refused> {
        let Some(needed) = self.rule.permission.role() else { return Ok(None) };
        let principal = self.identify(parts).await?;
        if !self.rule.admits(principal.role) {
            let problem = Problem::new(&error::UNAUTHORIZED, format!("{needed} role required"));
            return Err(Refused { problem, principal: Some(principal) });
        }
        Ok(Some(principal))
    }

    /// Counts the request among those of its caller.
    fn count(&self, admitted: &mut Result<Option<Principal>, Refused>) -> Option<Held> {
        if self.rule.is_revoking {
            return None;
        }
        let Ok(Some(principal)) = admitted else { return None };
        match self.app.room_to_ask(principal) {
            Ok(held) => Some(held),
            Err(problem) => {
                *admitted = Err(Refused { problem, principal: Some(principal.clone()) });
                None
            }
        }
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

/// The caller of a public route, as far as it is known in time: the holder of a valid token, or this machine while no
/// token exists. Public routes answer every caller, so neither a wrong token nor a store without an answer is an error.
pub(crate) struct Visitor(pub(crate) Option<Principal>);

/// Longest time for which an answer to a probe waits for the tokens.
const VISITOR_PATIENCE: Duration = Duration::from_millis(40);

impl FromRequestParts<App> for Visitor {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        let rule = Permission::Reader.into();
        let post = Post { app: app.clone(), rule, is_open: true, audited: None, noted: None };
        let admitted = tokio::time::timeout(VISITOR_PATIENCE, post.admit(parts)).await;
        Ok(Self(admitted.ok().and_then(Result::ok).flatten()))
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
pub(super) fn bearer(headers: &HeaderMap) -> Answer<Option<&str>> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let (scheme, token) = value.to_str().ok().and_then(|text| text.split_once(' ')).unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("bearer") || values.next().is_some() {
        return Err(unauthenticated("The Authorization header is not `Bearer TOKEN`."));
    }
    Ok(Some(token.trim()))
}
