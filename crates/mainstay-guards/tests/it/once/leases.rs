//! Who holds a key, and for how long.

use super::shop::{Shop, code, for_each_keeper, post, problem, refused, send, status, text, with};
use mainstay_guards::http::Key;
use mainstay_guards::once::{Begun, Fingerprint, Id, Keeper, Kept, OnceLayer, Pending};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tower::ServiceExt;

/// A keeper that tells when keys are extended and answers are kept.
struct Telling {
    keeper: Arc<dyn Keeper>,
    extended: Semaphore,
    finished: Semaphore,
}

impl Telling {
    fn new(keeper: Arc<dyn Keeper>) -> Arc<Self> {
        Arc::new(Self { keeper, extended: Semaphore::new(0), finished: Semaphore::new(0) })
    }
}

impl Keeper for Telling {
    fn begin<'a>(&'a self, id: &'a Id, fingerprint: &'a Fingerprint, lease: Duration) -> Pending<'a, Begun> {
        self.keeper.begin(id, fingerprint, lease)
    }

    fn extend<'a>(&'a self, id: &'a Id, run: i64, lease: Duration) -> Pending<'a, bool> {
        Box::pin(async move {
            let extended = self.keeper.extend(id, run, lease).await;
            self.extended.add_permits(1);
            extended
        })
    }

    fn finish<'a>(&'a self, id: &'a Id, run: i64, answer: Kept, keep: Duration) -> Pending<'a, bool> {
        Box::pin(async move {
            let finished = self.keeper.finish(id, run, answer, keep).await;
            self.finished.add_permits(1);
            finished
        })
    }

    fn forget<'a>(&'a self, id: &'a Id, run: i64) -> Pending<'a, ()> {
        self.keeper.forget(id, run)
    }
}

#[test]
fn a_repeat_of_one_that_still_runs_is_told_to_come_back() {
    for_each_keeper(async |kitchen| {
        let shop = Shop::shut();
        let router = shop.behind(kitchen.layer());
        let first = tokio::spawn(router.clone().oneshot(post("k", "a")));
        shop.begun().await;
        let (status, document) = problem(&router, post("k", "a")).await;
        assert_eq!((status, &document["code"]), (409, &"IDEMPOTENCY_KEY_IN_USE".into()));
        assert_eq!(document["retryAfterMs"], 1_000);
        assert_eq!(send(&router, post("k", "a")).await.headers()["retry-after"], "1");
        assert_eq!(refused(&router, post("k", "b")).await, code(422, "IDEMPOTENCY_KEY_REUSED"));
        shop.let_end(1);
        assert_eq!(text(first.await.unwrap().unwrap()).await, "run 1: a");
        assert_eq!(text(send(&router, post("k", "a")).await).await, "run 1: a");
        assert_eq!(shop.runs(), 1);
    });
}

#[test]
fn one_whose_client_goes_away_runs_to_its_end() {
    for_each_keeper(async |kitchen| {
        let shop = Shop::shut();
        let telling = Telling::new(kitchen.keeper.clone());
        let router = shop.behind(OnceLayer::new(telling.clone(), Key::user()));
        let first = tokio::spawn(router.clone().oneshot(post("k", "a")));
        shop.begun().await;
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        shop.let_end(1);
        telling.finished.acquire().await.unwrap().forget();
        assert_eq!(text(send(&router, post("k", "a")).await).await, "run 1: a");
        assert_eq!(shop.runs(), 1);
    });
}

#[test]
fn a_process_that_died_does_not_hold_its_key_for_ever_and_cannot_come_back() {
    for_each_keeper(async |kitchen| {
        let shop = Shop::open();
        let telling = Telling::new(kitchen.keeper.clone());
        let router = shop.behind(kitchen.layer().lease(Duration::from_secs(30)));
        let id = Id { scope: "user:alice".to_owned(), key: "k".to_owned() };
        let lease = Duration::from_secs(30);
        let Begun::Mine(dead) = telling.begin(&id, &[0; 32], lease).await.unwrap() else {
            panic!("nobody has it")
        };
        assert_eq!(refused(&router, post("k", "a")).await, code(422, "IDEMPOTENCY_KEY_REUSED"));
        kitchen.advance(29_999).await;
        assert!(matches!(telling.begin(&id, &[0; 32], lease).await.unwrap(), Begun::Running));
        kitchen.advance(1).await;
        assert_eq!(text(send(&router, post("k", "a")).await).await, "run 1: a", "the lease is over");
        let late = Kept { status: 200, headers: Vec::new(), body: Some("late".into()) };
        assert!(!telling.extend(&id, dead, lease).await.unwrap());
        assert!(!telling.finish(&id, dead, late, lease).await.unwrap());
        telling.forget(&id, dead).await.unwrap();
        assert_eq!(text(send(&router, post("k", "a")).await).await, "run 1: a");
        assert_eq!(shop.runs(), 1);
    });
}

#[test]
fn a_key_is_held_for_as_long_as_its_request_runs() {
    for_each_keeper(async |kitchen| {
        let shop = Shop::shut();
        let telling = Telling::new(kitchen.keeper.clone());
        let layer = OnceLayer::new(telling.clone(), Key::user());
        let router = shop.behind(layer.lease(Duration::from_millis(60)));
        let first = tokio::spawn(router.clone().oneshot(post("k", "a")));
        shop.begun().await;
        for _ in 0..3 {
            // Two, because one may have begun before the clock was moved.
            telling.extended.acquire_many(2).await.unwrap().forget();
            kitchen.advance(40).await;
        }
        // One that begins to run does not end before it is let.
        let again = tokio::time::timeout(Duration::from_secs(10), status(&router, post("k", "a"))).await;
        assert_eq!(again.expect("it does not run"), 409, "two leases later");
        shop.let_end(1);
        assert_eq!(first.await.unwrap().unwrap().status(), 201);
        assert_eq!(shop.runs(), 1);
    });
}

#[test]
fn a_handler_that_panics_is_like_a_process_that_died() {
    for_each_keeper(async |kitchen| {
        let shop = Shop::open();
        let router = shop.behind(kitchen.layer().lease(Duration::from_secs(30)));
        let panicked = tokio::spawn(router.clone().oneshot(with(post("k", "a"), "panics", "yes")));
        assert!(panicked.await.unwrap_err().is_panic(), "whoever catches panics outside sees it");
        assert_eq!(status(&router, post("k", "a")).await, 409);
        kitchen.advance(30_000).await;
        assert_eq!(text(send(&router, post("k", "a")).await).await, "run 2: a");
    });
}
