//! A tower layer: calls of a service that are made again.

use super::executor::{RetryError, RetryExecutor};
use crate::error::RETRIES_TIMED_OUT;
use crate::http::{failure_of, problem};
use http::Response;
use mainstay_core::failure::Failure;
use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

/// What is wrong with the end of a call, if anything.
type Judge<R, E> = Arc<dyn Fn(&Result<R, E>) -> Option<Failure> + Send + Sync>;
/// The end of a call of which there is none: its time was over, or a circuit did not let it through.
type GiveUp<R, E> = Arc<dyn Fn(RetryError) -> Result<R, E> + Send + Sync>;

/// Lets calls of a service be made again. Requests are cloned; whoever receives them should recognise repeats, for which
/// there is the [`IdempotencyKeyLayer`](super::IdempotencyKeyLayer).
pub struct RetryLayer<R, E> {
    executor: RetryExecutor,
    judge: Judge<R, E>,
    give_up: GiveUp<R, E>,
}

impl<R, E> RetryLayer<R, E> {
    /// A layer for any service: `judge` says what is wrong with an end, `give_up` makes the end of a call that has none.
    pub fn new(
        executor: RetryExecutor,
        judge: impl Fn(&Result<R, E>) -> Option<Failure> + Send + Sync + 'static,
        give_up: impl Fn(RetryError) -> Result<R, E> + Send + Sync + 'static,
    ) -> Self {
        Self { executor, judge: Arc::new(judge), give_up: Arc::new(give_up) }
    }
}

impl<B: From<String> + 'static, E: Display + 'static> RetryLayer<Response<B>, E> {
    /// A layer for services of HTTP: errors, 408, 429 and most of 5xx are tried again, `Retry-After` is obeyed, and the last
    /// answer is what the caller gets.
    pub fn http(executor: RetryExecutor) -> Self {
        let give_up = |error: RetryError| {
            Ok(match &error {
                RetryError::CircuitOpen { rejected, .. } => {
                    let open = crate::circuits::open_code();
                    problem(open, &rejected.to_string(), Some(rejected.retry_after_ms))
                }
                other => problem(&RETRIES_TIMED_OUT, &other.to_string(), None),
            })
        };
        Self::new(executor, |ended| failure_of(ended), give_up)
    }
}

impl<R, E> Clone for RetryLayer<R, E> {
    fn clone(&self) -> Self {
        Self { executor: self.executor.clone(), judge: self.judge.clone(), give_up: self.give_up.clone() }
    }
}

impl<S, R, E> Layer<S> for RetryLayer<R, E> {
    type Service = Retrying<S, R, E>;

    fn layer(&self, inner: S) -> Self::Service {
        Retrying { inner, layer: self.clone() }
    }
}

/// A service whose calls are made again.
pub struct Retrying<S, R, E> {
    inner: S,
    layer: RetryLayer<R, E>,
}

impl<S: Clone, R, E> Clone for Retrying<S, R, E> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<S, Q, R, E> Service<Q> for Retrying<S, R, E>
where
    S: Service<Q, Response = R, Error = E> + Clone + Send + Sync + 'static,
    S::Future: Send,
    Q: Clone + Send + Sync + 'static,
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
        // The one that is ready makes the first call; its clone is asked before each of the others.
        let another = self.inner.clone();
        let first = std::mem::replace(&mut self.inner, another.clone());
        let layer = self.layer.clone();
        Box::pin(async move {
            let ready = Mutex::new(Some(first));
            let last = Mutex::new(None);
            let executed = layer
                .executor
                .execute(|_| {
                    let is_ready = ready.lock().unwrap_or_else(PoisonError::into_inner).take();
                    let (mut inner, is_ready) = match is_ready {
                        Some(inner) => (inner, true),
                        None => (another.clone(), false),
                    };
                    let (request, judge, last) = (request.clone(), &layer.judge, &last);
                    async move {
                        let readied = match is_ready {
                            true => Ok(()),
                            false => poll_fn(|context| inner.poll_ready(context)).await,
                        };
                        let ended = match readied {
                            Ok(()) => inner.call(request).await,
                            Err(error) => Err(error),
                        };
                        let failure = judge(&ended);
                        *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
                        failure.map_or(Ok(()), Err)
                    }
                })
                .await;
            let last = last.into_inner().unwrap_or_else(PoisonError::into_inner);
            match (executed, last) {
                // What a try before the deadline was answered is no answer to the one that was ended by it.
                (Err(error @ (RetryError::Timeout { .. } | RetryError::CircuitOpen { .. })), _) => {
                    (layer.give_up)(error)
                }
                (_, Some(ended)) => ended,
                (Err(error), None) => (layer.give_up)(error),
                (Ok(()), None) => unreachable!("a call that succeeded has ended"),
            }
        })
    }
}
