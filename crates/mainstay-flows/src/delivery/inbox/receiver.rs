//! An inbox with its handler, as a service of tower.

use super::MAX_BODY_BYTES;
use super::receive::{Inbox, Received, Reception};
use crate::error::{Error, Result};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{CONTENT_TYPE, HeaderMap};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use mainstay_store::Tx;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

type Handler = dyn Fn(Tx, Received) -> BoxFuture<'static, mainstay_store::Result<()>> + Send + Sync;

/// Answers the posts of webhooks: 200 when an event was handled, now or before; otherwise a problem document, whose status
/// tells the sender whether to try again.
#[derive(Clone)]
pub struct Receiver {
    inbox: Inbox,
    handler: Arc<Handler>,
}

impl Inbox {
    /// A service that gives every event to a handler once, in the handler's own transaction.
    pub fn receiver<F, Fut>(&self, handler: F) -> Receiver
    where
        F: Fn(Tx, Received) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = mainstay_store::Result<()>> + Send + 'static,
    {
        Receiver {
            inbox: self.clone(),
            handler: Arc::new(move |tx, received| Box::pin(handler(tx, received))),
        }
    }
}

impl Receiver {
    async fn answer<B>(self, request: Request<B>) -> Result<Reception>
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
        let received = self.inbox.verify(signature, key, &body.to_bytes())?;
        let handler = self.handler.clone();
        self.inbox.receive(received, move |tx, received| handler(tx, received)).await
    }
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

impl<B> tower_service::Service<Request<B>> for Receiver
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, std::result::Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let receiver = self.clone();
        Box::pin(async move {
            Ok(match receiver.answer(request).await {
                Ok(reception) => {
                    let body = json!({ "status": reception.as_str() }).to_string();
                    response(StatusCode::OK, "application/json", body)
                }
                Err(error) => problem(&error),
            })
        })
    }
}

/// What went wrong, as all answers of Mainstay tell it. What is the receiver's own affair is for its log.
fn problem(error: &Error) -> Response<Full<Bytes>> {
    let entry = error.entry();
    let detail = match error {
        Error::Signature(_) | Error::WebhookMalformed(_) | Error::WebhookTooLarge { .. } => error.to_string(),
        _ => {
            tracing::warn!(%error, code = error.code(), "an event was not received");
            entry.meaning.to_owned()
        }
    };
    let document = json!({
        "type": format!("/docs/errors/{}.md", entry.code),
        "title": entry.meaning,
        "status": entry.status,
        "detail": detail,
        "code": entry.code,
    });
    let status = StatusCode::from_u16(entry.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response(status, "application/problem+json", document.to_string())
}

fn response(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
