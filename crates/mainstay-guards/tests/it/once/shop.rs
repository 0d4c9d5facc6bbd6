//! A service with something to do once, on every keeper.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Request, Response, StatusCode};
use axum::routing::any;
use http_body_util::BodyExt;
use mainstay_core::clock::ManualClock;
use mainstay_guards::http::{Caller, Key};
use mainstay_guards::once::{Answers, COMPONENT, Keeper, MemoryKeeper, OnceLayer};
use mainstay_store::Store;
use mainstay_testkit::stores::{Kind, for_each_kind, for_each_store};
use mainstay_testkit::time::VirtualTime;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Semaphore;
use tower::ServiceExt;

/// A keeper, and its clock.
pub(super) struct Kitchen {
    pub(super) keeper: Arc<dyn Keeper>,
    pub(super) store: Option<Store>,
    clock: Clock,
}

enum Clock {
    Memory(Arc<ManualClock>),
    Store(VirtualTime),
}

impl Kitchen {
    pub(super) async fn advance(&self, by_ms: i64) {
        match &self.clock {
            Clock::Memory(clock) => drop(clock.advance(by_ms)),
            Clock::Store(time) => time.advance(by_ms).await.unwrap(),
        }
    }

    fn in_memory() -> Self {
        let clock = Arc::new(ManualClock::at(1_000_000));
        let keeper = Arc::new(MemoryKeeper::new(100).clock(clock.clone()));
        Self { keeper, store: None, clock: Clock::Memory(clock) }
    }

    pub(super) fn layer(&self) -> OnceLayer {
        OnceLayer::new(self.keeper.clone(), Key::user())
    }
}

/// Runs `body` with answers in memory, and in every kind of store.
pub(super) fn for_each_keeper(body: impl AsyncFn(Kitchen)) {
    for_each_kind(&[Kind::SqliteMemory], async |_| body(Kitchen::in_memory()).await);
    for_each_store(async |place| {
        let options = place.options().component(COMPONENT);
        let (store, time) = VirtualTime::open_with(&place, options).await.unwrap();
        let keeper = Arc::new(Answers::new(store.clone()));
        body(Kitchen { keeper, store: Some(store), clock: Clock::Store(time) }).await;
    });
}

/// A service that counts what it does, and does it when it is told to.
#[derive(Clone)]
pub(super) struct Shop(Arc<Inner>);

struct Inner {
    runs: AtomicUsize,
    begun: Semaphore,
    may_end: Semaphore,
}

impl Shop {
    /// Does everything at once.
    pub(super) fn open() -> Self {
        let shop = Self::shut();
        shop.let_end(1_000);
        shop
    }

    /// Does nothing to its end before it is told to.
    pub(super) fn shut() -> Self {
        let (runs, begun, may_end) = (AtomicUsize::new(0), Semaphore::new(0), Semaphore::new(0));
        Self(Arc::new(Inner { runs, begun, may_end }))
    }

    pub(super) fn behind(&self, layer: OnceLayer) -> Router {
        Router::new()
            .route("/orders", any(order))
            .route("/refunds", any(order))
            .with_state(self.clone())
            .layer(layer)
    }

    pub(super) fn runs(&self) -> usize {
        self.0.runs.load(Ordering::SeqCst)
    }

    pub(super) async fn begun(&self) {
        self.0.begun.acquire().await.unwrap().forget();
    }

    pub(super) fn let_end(&self, count: usize) {
        self.0.may_end.add_permits(count);
    }
}

/// Answers with the status and as many bytes as asked for.
async fn order(State(shop): State<Shop>, headers: HeaderMap, body: Bytes) -> Response<Body> {
    let run = shop.0.runs.fetch_add(1, Ordering::SeqCst) + 1;
    shop.0.begun.add_permits(1);
    shop.0.may_end.acquire().await.unwrap().forget();
    assert!(!headers.contains_key("panics"), "as asked for");
    let number =
        |name: &str| headers.get(name).map(|value| value.to_str().unwrap().parse::<usize>().unwrap());
    let text = match number("bytes") {
        Some(bytes) => "x".repeat(bytes),
        None => format!("run {run}: {}", String::from_utf8_lossy(&body)),
    };
    let body = if headers.contains_key("breaks") {
        let parts = [Ok(Bytes::from(text)), Err(std::io::Error::other("it broke off"))];
        Body::from_stream(futures_util::stream::iter(parts))
    } else {
        Body::from(text)
    };
    Response::builder()
        .status(u16::try_from(number("status").unwrap_or(201)).unwrap())
        .header("location", format!("/orders/{run}"))
        .header("content-type", "text/plain")
        .header("set-cookie", "session=1")
        .header("x-run", run.to_string())
        .body(body)
        .unwrap()
}

/// A request of alice's.
pub(super) fn post(key: &str, body: &'static str) -> Request<Body> {
    by("alice", Request::post("/orders").header("idempotency-key", key).body(Body::from(body)).unwrap())
}

pub(super) fn with(mut request: Request<Body>, name: &'static str, value: &str) -> Request<Body> {
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

pub(super) fn by(user: &str, mut request: Request<Body>) -> Request<Body> {
    request.extensions_mut().insert(Caller { user: Some(user.into()), tenant: None });
    request
}

pub(super) async fn send(router: &Router, request: Request<Body>) -> Response<Body> {
    router.clone().oneshot(request).await.unwrap()
}

pub(super) async fn status(router: &Router, request: Request<Body>) -> StatusCode {
    send(router, request).await.status()
}

pub(super) async fn text(answer: Response<Body>) -> String {
    String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().into()).unwrap()
}

/// The status and the code of a problem document.
pub(super) async fn problem(router: &Router, request: Request<Body>) -> (u16, Value) {
    let answer = send(router, request).await;
    let status = answer.status().as_u16();
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
    (status, serde_json::from_str(&text(answer).await).unwrap())
}

/// The same, of which only the code is wanted.
pub(super) async fn refused(router: &Router, request: Request<Body>) -> (u16, String) {
    let (status, problem) = problem(router, request).await;
    (status, problem["code"].as_str().unwrap().to_owned())
}

pub(super) fn code(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}
