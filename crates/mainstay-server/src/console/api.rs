//! The JSON API, asked from inside of the process by somebody who is logged in.

use super::parts::Told;
use crate::Principal;
use crate::access::guard::Inside;
use crate::lately::Followed;
use axum::Router;
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, Request};
use http_body_util::{BodyExt, Limited};
use mainstay_core::trace::TraceContext;
use mainstay_guards::http::Peer;
use serde_json::Value;
use tower::ServiceExt;

/// Longest answer that a view is made of. A page of a thousand events of the largest kind is more; no view asks for one.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// The API, for one visitor.
#[derive(Clone)]
pub(super) struct Api {
    pub(super) inside: Router,
    pub(super) principal: Principal,
    pub(super) trace: Option<TraceContext>,
    pub(super) peer: Option<Peer>,
    /// Whether a page is drawn again, by itself.
    pub(super) followed: Followed,
}

/// Why the API did not do it.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    pub(super) status: u16,
    pub(super) code: String,
    pub(super) detail: String,
}

impl Fault {
    /// There is no such view.
    pub(super) fn no_view() -> Self {
        let detail = "There is no such page in the console.".to_owned();
        Self { status: 404, code: "ROUTE_NOT_FOUND".to_owned(), detail }
    }

    /// Somebody of a tenant asks for what belongs to none.
    pub(super) fn of_no_tenant(tenant: &str) -> Self {
        let detail = format!(
            "This page shows what belongs to no tenant. Your token is of the tenant {tenant}: it sees that tenant's events, with \
             their streams, traces and publications, and its intents."
        );
        Self { status: 403, code: "UNAUTHORIZED".to_owned(), detail }
    }

    /// A form names a call that is no path.
    fn no_path() -> Self {
        let detail = "The call of the form is not a path.".to_owned();
        Self { status: 400, code: "BODY_INVALID".to_owned(), detail }
    }

    pub(super) fn internal(reason: impl std::fmt::Display) -> Self {
        tracing::error!(%reason, "the console could not be answered");
        let detail = "The log of the server has the reason.".to_owned();
        Self { status: 500, code: "INTERNAL_ERROR".to_owned(), detail }
    }
}

impl Api {
    pub(super) async fn get(&self, path: &str) -> Result<Value, Fault> {
        self.call(Method::GET, path, None).await
    }

    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Fault> {
        let mut request = Request::builder().method(method).uri(path);
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let mut request = request.body(body).map_err(|_| Fault::no_path())?;
        let known = request.extensions_mut();
        known.insert(Inside(self.principal.clone()));
        known.insert(self.followed);
        if let Some(trace) = &self.trace {
            known.insert(trace.clone());
        }
        if let Some(peer) = self.peer {
            known.insert(peer);
        }
        let Ok(answer) = self.inside.clone().oneshot(request).await;
        let status = answer.status();
        let bytes = Limited::new(answer.into_body(), MAX_ANSWER_BYTES)
            .collect()
            .await
            .map_err(Fault::internal)?
            .to_bytes();
        let document = match &*bytes {
            [] => Value::Null,
            bytes => serde_json::from_slice(bytes).map_err(Fault::internal)?,
        };
        // A probe that says that something is wrong answers 503 with what that is.
        if status.is_success() || document.get("code").is_none() {
            return Ok(document);
        }
        let (code, detail) = (document.text("code").to_owned(), document.text("detail").to_owned());
        Err(Fault { status: status.as_u16(), code, detail })
    }
}

/// A path of the API, each part of it escaped.
pub(super) fn path(parts: &[&str]) -> String {
    parts.iter().fold(String::new(), |path, part| path + "/" + &escaped(part))
}

/// A path about an id of a tenant, or of none. Ids are unique within a tenant.
pub(super) fn with_tenant(path: String, tenant: Option<&str>) -> String {
    match tenant {
        Some(tenant) => format!("{path}?tenant={}", escaped(tenant)),
        None => path,
    }
}

/// The tenant of something that the API shows.
pub(super) fn tenant_of(shown: &Value) -> Option<&str> {
    shown.get("tenantId").and_then(Value::as_str)
}

/// A part of a path, escaped.
fn escaped(part: &str) -> String {
    let escaped: String = form_urlencoded::byte_serialize(part.as_bytes()).collect();
    let escaped = escaped.replace('+', "%20");
    // A part that is only dots would be taken for a step up.
    if part == "." || part == ".." { escaped.replace('.', "%2E") } else { escaped }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_path_stays_one() {
        assert_eq!(path(&["admin", "a/b c?d"]), "/admin/a%2Fb%20c%3Fd");
        assert_eq!(path(&["admin", ".."]), "/admin/%2E%2E");
    }
}
