//! A service of axum behind rate limits.

mod answers;
mod away;
mod keys;
mod proxies;
mod socket;
mod together;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::routing::any;
use http_body_util::BodyExt;
use mainstay_core::clock::ManualClock;
use mainstay_guards::limits::memory::{Memory, MemoryLimiter};
use mainstay_guards::limits::{Policy, RateLimitLayer};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tower::ServiceExt;

/// A service behind limits that counts what reaches it.
struct Door {
    router: Router,
    calls: Arc<AtomicUsize>,
}

impl Door {
    fn behind(layer: RateLimitLayer<Body>) -> Self {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let handler = move || async move {
            counted.fetch_add(1, Ordering::SeqCst);
            "served"
        };
        let router =
            Router::new().route("/", any(handler.clone())).route("/orders/{id}", any(handler)).layer(layer);
        Self { router, calls }
    }

    async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.router.clone().oneshot(request).await.unwrap()
    }

    /// The status of the answer to a request.
    async fn status(&self, request: Request<Body>) -> StatusCode {
        self.send(request).await.status()
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

fn with<E: Clone + Send + Sync + 'static>(mut request: Request<Body>, extension: E) -> Request<Body> {
    request.extensions_mut().insert(extension);
    request
}

fn header<'a>(answer: &'a Response<Body>, name: &str) -> Option<&'a str> {
    answer.headers().get(name).map(|value| value.to_str().unwrap())
}

async fn json(answer: Response<Body>) -> Value {
    serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

/// A bucket in memory, on a clock that stands still.
fn bucket(capacity: f64, tokens_per_second: f64) -> MemoryLimiter {
    let clock = Arc::new(ManualClock::at(1_000_000));
    Memory::new().clock(clock).limiter(Policy::bucket(capacity, tokens_per_second).unwrap())
}
