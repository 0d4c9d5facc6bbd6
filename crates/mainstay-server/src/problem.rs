//! Errors as RFC 9457 has them: one JSON document for whatever goes wrong with a request.

use crate::error;
use crate::tokens::TooMany;
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use mainstay_core::codes::ErrorCode;
use serde_json::Value;
use std::fmt;

/// What a client waits before it tries again what is worth trying again.
const RETRY_AFTER_SECONDS: u32 = 1;

/// What a handler answers when it fails: a problem document of one of the registered codes.
#[derive(Debug)]
pub struct Problem {
    entry: &'static ErrorCode,
    document: Box<mainstay_api::Problem>,
}

/// The code of a problem, for whoever sees the answer that it became.
#[derive(Clone, Copy)]
pub(crate) struct Code(pub(crate) &'static str);

/// The result of a handler.
pub type Answer<T> = Result<T, Problem>;

impl Problem {
    /// A problem of this kind; `detail` says what is the matter this time.
    pub fn new(entry: &'static ErrorCode, detail: impl Into<String>) -> Self {
        Self { entry, document: Box::new(mainstay_api::Problem::new(entry, detail)) }
    }

    /// Names the field, parameter or part of the path that is wrong.
    #[must_use]
    pub fn of_field(mut self, field: impl Into<String>) -> Self {
        *self.document = self.document.of_field(field);
        self
    }

    /// Adds a member, such as the state that was found.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        *self.document = self.document.with(name, value);
        self
    }

    /// The body is not what the route takes, for a reason that its types cannot tell.
    pub fn invalid_field(field: &str, detail: impl fmt::Display) -> Self {
        Self::new(&error::BODY_INVALID, format!("{field}: {detail}")).of_field(field)
    }

    /// A parameter of the query is not what the route takes, for a reason that its types cannot tell.
    pub fn invalid_parameter(field: &str, detail: impl fmt::Display) -> Self {
        Self::new(&error::QUERY_INVALID, format!("{field}: {detail}")).of_field(field)
    }

    /// A mistake of the server's own. The reason is for the log, never for the client.
    pub fn internal(reason: impl fmt::Display) -> Self {
        tracing::error!(%reason, "a request failed for a reason of the server's own");
        Self::new(&error::INTERNAL_ERROR, "The log has the reason, under the trace id of this answer.")
    }

    /// The code.
    pub fn code(&self) -> &'static str {
        self.entry.code
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.entry.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The document as text.
    pub(crate) fn document(self) -> String {
        self.document.to_json()
    }
}

impl From<mainstay_store::Error> for Problem {
    fn from(error: mainstay_store::Error) -> Self {
        Self::from(&error)
    }
}

impl From<&mainstay_store::Error> for Problem {
    /// What may pass by itself is told as it is. The rest names tables and statements, which is for the log.
    fn from(error: &mainstay_store::Error) -> Self {
        if let mainstay_store::Error::Application(reason) = error
            && let Some(full) = reason.downcast_ref::<TooMany>()
        {
            return Self::new(&error::TOKENS_TOO_MANY, full.to_string());
        }
        if error.is_retryable() || error.entry().status < 500 {
            return Self::new(error.entry(), error.to_string());
        }
        tracing::error!(%error, code = error.code(), "the store failed");
        Self::new(error.entry(), error.entry().remedy)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, entry) = (self.status(), self.entry);
        let mut response = Response::new(Body::from(self.document()));
        *response.status_mut() = status;
        response.extensions_mut().insert(Code(entry.code));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(mainstay_api::problem::MEDIA_TYPE));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        let is_busy = matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
        if is_busy && entry.retryable {
            headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_has_the_members_of_the_rfc_and_its_own() {
        let document = Problem::invalid_field("events[0].type", "is empty").document();
        let document: Value = serde_json::from_str(&document).unwrap();
        assert_eq!(document["type"], "/docs/errors/BODY_INVALID");
        assert_eq!(document["status"], 400);
        assert_eq!(document["detail"], "events[0].type: is empty");
        assert_eq!(
            (&document["code"], &document["field"]),
            (&"BODY_INVALID".into(), &"events[0].type".into())
        );
    }

    #[test]
    fn what_the_store_says_about_its_tables_is_not_told() {
        let secret = mainstay_store::Error::Sql("no such column: payroll.salary".to_owned());
        assert!(!Problem::from(secret).document().contains("payroll"));
        let busy = mainstay_store::Error::Busy { waited_ms: 5, reason: "the writer".to_owned() };
        assert!(Problem::from(busy).document().contains("busy for 5 ms"));
    }
}
