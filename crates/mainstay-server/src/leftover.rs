//! What of a body nobody read.
//!
//! A request may be refused before its body has arrived. Answered at once, the connection would have to be closed under
//! a client that still writes: it would see a broken pipe, and perhaps never the answer. So what little is still to
//! come is awaited first, and where it is too much or too slow the answer says that the connection ends with it.

use crate::listen::places::Reserved;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::header::{CONNECTION, EXPECT};
use axum::http::{HeaderValue, StatusCode, Version};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;

/// Most bytes that are read only to be thrown away.
const MAX_BYTES: u64 = 256 << 10;

/// How long they may take.
const PATIENCE: Duration = Duration::from_millis(500);

/// Answers once the body has been read, by whoever wanted it or by nobody.
pub(crate) async fn read_leftover(request: Request, next: Next) -> Response {
    // A connection of the reserve ends with its answer, and is not kept open for a body that may never come.
    let is_reserved = request.extensions().get::<Reserved>().is_some();
    if is_reserved || request.body().is_end_stream() {
        return next.run(request).await;
    }
    let is_first_version = request.version() <= Version::HTTP_11;
    // Reading would tell this client to send what it has been holding back.
    let is_held_back = request.headers().contains_key(EXPECT);
    let (left, leftover) = oneshot::channel();
    let request = request.map(|body| Body::new(Lent { body, left: Some(left) }));
    let mut response = next.run(request).await;
    let is_read = match leftover.await {
        Ok(_) if is_held_back || response.status() == StatusCode::REQUEST_TIMEOUT => false,
        Ok(body) => tokio::time::timeout(PATIENCE, read_to_end(body)).await.unwrap_or(false),
        Err(_) => true,
    };
    if !is_read && is_first_version {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Whether the end was reached.
async fn read_to_end(mut body: Body) -> bool {
    let mut left = MAX_BYTES;
    if body.size_hint().lower() > left {
        return false;
    }
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        match left.checked_sub(frame.data_ref().map_or(0, |data| data.len() as u64)) {
            Some(less) => left = less,
            None => return false,
        }
    }
    true
}

/// A body that comes back when it is dropped before its end.
struct Lent {
    body: Body,
    left: Option<oneshot::Sender<Body>>,
}

impl HttpBody for Lent {
    type Data = <Body as HttpBody>::Data;
    type Error = <Body as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(None | Some(Err(_))) = frame {
            self.left = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(left) = self.left.take() else { return };
        if !self.body.is_end_stream() {
            let _ = left.send(std::mem::take(&mut self.body));
        }
    }
}
