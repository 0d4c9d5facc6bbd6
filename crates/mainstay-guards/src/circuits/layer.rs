//! A tower layer: a service behind a circuit.

use crate::http::{failure_of, problem};
use http::Response;
use mainstay_core::circuit::{Admitted, Circuit, Ended, Rejected};
use mainstay_core::failure::Failure;
use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

/// What is wrong with the end of a call, if anything.
type Judge<R, E> = Arc<dyn Fn(&Result<R, E>) -> Option<Failure> + Send + Sync>;
/// The end of a call that was not made.
type Refuse<R, E> = Arc<dyn Fn(Rejected) -> Result<R, E> + Send + Sync>;

/// Puts a circuit before a service: for handlers that call somebody who may not be well, and for clients.
pub struct CircuitLayer<R, E> {
    circuit: Arc<dyn Circuit>,
    judge: Judge<R, E>,
    refuse: Refuse<R, E>,
}

impl<R, E> CircuitLayer<R, E> {
    /// A layer for any service: `judge` says what is wrong with an end, `refuse` makes the end of a call that was not let
    /// through.
    pub fn new(
        circuit: Arc<dyn Circuit>,
        judge: impl Fn(&Result<R, E>) -> Option<Failure> + Send + Sync + 'static,
        refuse: impl Fn(Rejected) -> Result<R, E> + Send + Sync + 'static,
    ) -> Self {
        Self { circuit, judge: Arc::new(judge), refuse: Arc::new(refuse) }
    }
}

impl<B: From<String> + 'static, E: Display + 'static> CircuitLayer<Response<B>, E> {
    /// A layer for services of HTTP: errors, 429 and most of 5xx count against them, and a call that is not let through is
    /// answered with 503, `Retry-After` and a problem document of the code `CIRCUIT_OPEN`.
    pub fn http(circuit: Arc<dyn Circuit>) -> Self {
        let refuse = |rejected: Rejected| {
            Ok(problem(super::open_code(), &rejected.to_string(), Some(rejected.retry_after_ms)))
        };
        Self::new(circuit, |ended| failure_of(ended), refuse)
    }
}

impl<R, E> Clone for CircuitLayer<R, E> {
    fn clone(&self) -> Self {
        Self { circuit: self.circuit.clone(), judge: self.judge.clone(), refuse: self.refuse.clone() }
    }
}

impl<S, R, E> Layer<S> for CircuitLayer<R, E> {
    type Service = Guarded<S, R, E>;

    fn layer(&self, inner: S) -> Self::Service {
        Guarded { inner, layer: self.clone() }
    }
}

/// A service behind a circuit.
pub struct Guarded<S, R, E> {
    inner: S,
    layer: CircuitLayer<R, E>,
}

impl<S: Clone, R, E> Clone for Guarded<S, R, E> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<S, Q, R, E> Service<Q> for Guarded<S, R, E>
where
    S: Service<Q, Response = R, Error = E> + Clone + Send + 'static,
    S::Future: Send,
    Q: Send + 'static,
    R: Send + 'static,
    E: Send + 'static,
{
    type Response = R;
    type Error = E;
    type Future = Pin<Box<dyn Future<Output = Result<R, E>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), E>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Q) -> Self::Future {
        // The one that is ready makes the call; its clone may not be.
        let another = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, another);
        let layer = self.layer.clone();
        Box::pin(async move {
            let admitted = match Admitted::by(&*layer.circuit).await {
                Ok(admitted) => admitted,
                Err(rejected) => return (layer.refuse)(rejected),
            };
            let ended = inner.call(request).await;
            match (layer.judge)(&ended) {
                Some(failure) => admitted.record(Ended::Failed(&failure)),
                None => admitted.record(Ended::Success),
            }
            ended
        })
    }
}
