//! A tower layer: requests by which repeats are recognised.

use http::{HeaderName, HeaderValue, Method, Request};
use mainstay_core::clock::Clock;
use mainstay_core::ids::Ids;
use mainstay_core::random::Random;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

/// The header.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Gives every `POST` and `PATCH` without an `Idempotency-Key` a new one. Put outside of a
/// [`RetryLayer`](super::RetryLayer), all tries of a request have the same.
#[derive(Clone)]
pub struct IdempotencyKeyLayer {
    ids: Arc<Ids>,
}

impl IdempotencyKeyLayer {
    /// Keys sort by the time they were made at.
    pub fn new(clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        Self { ids: Arc::new(Ids::new(clock, random)) }
    }
}

impl<S> Layer<S> for IdempotencyKeyLayer {
    type Service = Keyed<S>;

    fn layer(&self, inner: S) -> Keyed<S> {
        Keyed { inner, ids: self.ids.clone() }
    }
}

/// A service whose requests have keys.
#[derive(Clone)]
pub struct Keyed<S> {
    inner: S,
    ids: Arc<Ids>,
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for Keyed<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        // The other methods are idempotent by themselves.
        if matches!(*request.method(), Method::POST | Method::PATCH)
            && let Ok(key) = HeaderValue::from_str(&self.ids.uuid().to_string())
        {
            request.headers_mut().entry(IDEMPOTENCY_KEY).or_insert(key);
        }
        self.inner.call(request)
    }
}
