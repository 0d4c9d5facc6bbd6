//! The span of the request.

use crate::Problem;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use mainstay_core::trace::TraceContext;

/// Where the request stands in its trace: the server's own span, whose parent is the caller's if it told one.
#[derive(Debug, Clone)]
pub struct Trace(pub TraceContext);

impl<S: Sync> FromRequestParts<S> for Trace {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let found = parts.extensions.get::<TraceContext>().cloned().map(Self);
        found.ok_or_else(|| Problem::internal("a request has no span"))
    }
}
