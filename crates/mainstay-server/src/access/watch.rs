//! An answer that streams ends when whoever asked for it may not ask any more.

use super::Principal;
use crate::app::App;
use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::Frame;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// What is known of a token is a third of a second old at most; looking this often keeps the whole well below a second.
const EVERY: Duration = Duration::from_millis(200);

/// The same answer, ended when the token of `principal` is revoked or expires.
pub(super) fn watched(answer: Response, app: App, principal: Principal) -> Response {
    answer.map(|body| Body::new(Watched { body, gone: Box::pin(gone(app, principal)), is_over: false }))
}

/// Ready once `principal` would not be let in any more.
async fn gone(app: App, principal: Principal) {
    loop {
        tokio::time::sleep(EVERY).await;
        // A store that cannot be asked says nothing against anybody.
        if let Ok(false) = app.tokens().is_still_valid(&principal).await {
            return;
        }
    }
}

struct Watched {
    body: Body,
    gone: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_over: bool,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.is_over || self.gone.as_mut().poll(context).is_ready() {
            self.is_over = true;
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(context)
    }
}
