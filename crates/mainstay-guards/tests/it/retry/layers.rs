//! Services whose calls are made again, and recognised when they are.

use super::{busy, fixed};
use axum::body::Body;
use axum::http::{Request, Response};
use mainstay_core::clock::ManualClock;
use mainstay_core::random::SeededRandom;
use mainstay_guards::retry::{IDEMPOTENCY_KEY, IdempotencyKeyLayer, RetryExecutor, RetryLayer};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use tower::{Service, ServiceBuilder, ServiceExt};

/// A status, and the seconds of `Retry-After`.
type Answer = (u16, Option<&'static str>);

/// Answers with these statuses one after another; remembers the keys of the requests.
#[derive(Clone)]
struct Backend {
    answers: Arc<Mutex<Vec<Answer>>>,
    keys: Arc<Mutex<Vec<Option<String>>>>,
}

impl Backend {
    fn new(answers: &[Answer]) -> Self {
        Self { answers: Arc::new(Mutex::new(answers.iter().rev().copied().collect())), keys: Arc::default() }
    }

    fn service(
        &self,
    ) -> impl Service<Request<()>, Response = Response<Body>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static {
        let backend = self.clone();
        tower::service_fn(move |request: Request<()>| {
            let key = request.headers().get(IDEMPOTENCY_KEY).map(|key| key.to_str().unwrap().to_owned());
            backend.keys.lock().unwrap().push(key);
            let (status, wait) = backend.answers.lock().unwrap().pop().unwrap();
            let mut answer = Response::builder().status(status);
            if let Some(wait) = wait {
                answer = answer.header("retry-after", wait);
            }
            std::future::ready(Ok(answer.body(Body::empty()).unwrap()))
        })
    }

    fn calls(&self) -> usize {
        self.keys.lock().unwrap().len()
    }
}

fn layer() -> RetryLayer<Response<Body>, Infallible> {
    RetryLayer::http(RetryExecutor::new(fixed(10, 3)).with_timeout(Duration::from_secs(100)))
}

async fn ask(backend: &Backend) -> Response<Body> {
    let service = ServiceBuilder::new().layer(layer()).service(backend.service());
    service.oneshot(Request::new(())).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_is_busy_is_asked_again_and_retry_after_is_obeyed() {
    let backend = Backend::new(&[(503, Some("7")), (500, Some("7")), (200, None)]);
    let began = Instant::now();
    assert_eq!(ask(&backend).await.status(), 200);
    assert_eq!((backend.calls(), began.elapsed().as_millis()), (3, 7_010), "only 429 and 503 may say when");
}

#[tokio::test(start_paused = true)]
async fn what_is_given_up_is_answered_with_the_last_answer() {
    for (answers, status) in
        [(&[(500, None), (502, None), (429, None), (500, None)][..], 500), (&[(404, None)][..], 404)]
    {
        let backend = Backend::new(answers);
        assert_eq!(ask(&backend).await.status(), status);
        assert_eq!(backend.calls(), answers.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_beyond_the_deadline_is_told_at_once() {
    let backend = Backend::new(&[(503, Some("3600"))]);
    let began = Instant::now();
    let answer = ask(&backend).await;
    assert_eq!((answer.status().as_u16(), began.elapsed()), (504, Duration::ZERO));
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
}

#[tokio::test(start_paused = true)]
async fn all_tries_of_a_request_have_one_key_and_requests_have_their_own() {
    let keyed = || IdempotencyKeyLayer::new(Arc::new(ManualClock::at(5)), Arc::new(SeededRandom::new(1)));
    let backend = Backend::new(&[(500, None), (200, None), (200, None), (200, None), (200, None)]);
    let service = ServiceBuilder::new().layer(keyed()).layer(layer()).service(backend.service());
    let post = || Request::post("/").body(()).unwrap();
    service.clone().oneshot(post()).await.unwrap();
    service.clone().oneshot(post()).await.unwrap();
    let own = Request::post("/").header(IDEMPOTENCY_KEY, "mine").body(()).unwrap();
    service.clone().oneshot(own).await.unwrap();
    service.oneshot(Request::get("/").body(()).unwrap()).await.unwrap();
    let keys = backend.keys.lock().unwrap().clone();
    assert!(keys[0].is_some() && keys[0] == keys[1], "{keys:?}");
    assert!(keys[2].is_some() && keys[2] != keys[1], "{keys:?}");
    assert_eq!(keys[3..], [Some("mine".to_owned()), None]);
}

#[tokio::test(start_paused = true)]
async fn a_service_of_any_kind_has_its_own_judge() {
    let calls = Arc::new(Mutex::new(0_u32));
    let counted = calls.clone();
    let inner = tower::service_fn(move |_: ()| {
        let mut calls = counted.lock().unwrap();
        *calls += 1;
        std::future::ready(Ok::<u32, Infallible>(*calls))
    });
    let odd = |ended: &Result<u32, Infallible>| ended.iter().any(|value| *value < 3).then(busy);
    let layer = RetryLayer::new(RetryExecutor::new(fixed(10, 3)), odd, |_| Ok(0));
    assert_eq!(ServiceBuilder::new().layer(layer).service(inner).oneshot(()).await, Ok(3));
}
