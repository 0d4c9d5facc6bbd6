//! A request as an inbox reads it, and what is answered to it.

use super::MAX_BODY_BYTES;
use super::receive::{Inbox, Received, Reception};
use crate::error::{Error, Result};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use mainstay_api::Problem;
use mainstay_api::problem::MEDIA_TYPE;
use serde_json::json;

/// The event of a request, if its sender is known.
pub(super) async fn read<B>(inbox: &Inbox, request: Request<B>) -> Result<Received>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if request.method() != Method::POST {
        return Err(Error::WebhookMalformed("events are posted".to_owned()));
    }
    let (head, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY_BYTES).collect().await.map_err(|error| {
        match error.downcast_ref::<http_body_util::LengthLimitError>() {
            Some(_) => Error::WebhookTooLarge { bytes: MAX_BODY_BYTES + 1 },
            None => Error::WebhookMalformed("the body did not come whole".to_owned()),
        }
    })?;
    let (signature, key) =
        (text(&head.headers, "mainstay-signature")?, text(&head.headers, "idempotency-key")?);
    inbox.verify(signature, key, &body.to_bytes())
}

/// A header that is there at most once.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>> {
    let mut values = headers.get_all(name).iter();
    let first = values.next().map(|value| value.to_str());
    match (first, values.next()) {
        (None, _) => Ok(None),
        (Some(Ok(text)), None) => Ok(Some(text)),
        _ => Err(Error::WebhookMalformed(format!("the header {name} must be there once, as text"))),
    }
}

/// That an event came, now or before.
pub(super) fn taken<B: From<String>>(reception: Reception) -> Response<B> {
    response(StatusCode::OK, "application/json", json!({ "status": reception.as_str() }).to_string())
}

/// What went wrong, as all answers of Mainstay tell it. What is the receiver's own affair is for its log.
pub(super) fn problem<B: From<String>>(error: &Error) -> Response<B> {
    let entry = error.entry();
    let detail = match error {
        Error::Signature(_) | Error::WebhookMalformed(_) | Error::WebhookTooLarge { .. } => error.to_string(),
        _ => {
            tracing::warn!(%error, code = error.code(), "an event was not received");
            entry.meaning.to_owned()
        }
    };
    let problem = Problem::new(entry, detail);
    let status = StatusCode::from_u16(entry.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response(status, MEDIA_TYPE, problem.to_json())
}

fn response<B: From<String>>(status: StatusCode, content_type: &'static str, body: String) -> Response<B> {
    let mut response = Response::new(B::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
