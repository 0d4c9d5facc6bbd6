//! An inbox with its handler, as a service of tower.

use super::receive::{Inbox, Received, Reception};
use super::wire;
use crate::error::Result;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::Full;
use mainstay_store::Tx;
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
        let received = wire::read(&self.inbox, request).await?;
        let handler = self.handler.clone();
        self.inbox.receive(received, move |tx, received| handler(tx, received)).await
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
                Ok(reception) => wire::taken(reception),
                Err(error) => wire::problem(&error),
            })
        })
    }
}
