//! How repeats are answered.

use super::shop::{Shop, by, code, for_each_keeper, post, problem, refused, send, status, text, with};
use axum::body::Body;
use axum::http::{HeaderName, Method, Request};
use mainstay_guards::http::{Key, WithoutKey};
use mainstay_guards::once::{Answers, COMPONENT, OnceLayer};
use mainstay_testkit::stores::{for_each_lasting_store, for_each_store};
use mainstay_testkit::time::VirtualTime;
use std::time::Duration;

#[test]
fn a_repeat_is_answered_as_the_first_was_and_runs_nothing() {
    for_each_keeper(async |kitchen| {
        let shop = Shop::open();
        let router = shop.behind(kitchen.layer().keep_header(HeaderName::from_static("x-run")));
        let first = send(&router, post("k1", "a lamp")).await;
        assert_eq!((first.status().as_u16(), first.headers().get("idempotency-replayed")), (201, None));
        assert_eq!(first.headers()["set-cookie"], "session=1");
        assert_eq!(text(first).await, "run 1: a lamp");
        for key in ["k1", "\"k1\""] {
            let again = send(&router, post(key, "a lamp")).await;
            assert_eq!(again.status(), 201);
            assert_eq!(again.headers()["idempotency-replayed"], "true");
            assert_eq!(
                (&again.headers()["location"], &again.headers()["x-run"]),
                (&"/orders/1".parse().unwrap(), &"1".parse().unwrap())
            );
            assert_eq!(again.headers()["content-type"], "text/plain");
            assert_eq!(again.headers().get("set-cookie"), None, "what belongs to one answer is not kept");
            assert_eq!(text(again).await, "run 1: a lamp");
        }
        assert_eq!(text(send(&router, post("k2", "a lamp")).await).await, "run 2: a lamp", "another key");
        assert_eq!(shop.runs(), 2);
    });
}

#[test]
fn only_requests_with_a_key_and_of_these_methods_are_remembered() {
    for_each_keeper(async |kitchen| {
        let shop = Shop::open();
        let router = shop.behind(kitchen.layer());
        let plain = || by("alice", Request::post("/orders").body(Body::from("a")).unwrap());
        let put = || {
            let request = Request::put("/orders").header("idempotency-key", "k").body(Body::from("a"));
            by("alice", request.unwrap())
        };
        for _ in 0..2 {
            assert_eq!(status(&router, plain()).await, 201);
            assert_eq!(status(&router, put()).await, 201);
        }
        assert_eq!(shop.runs(), 4);
        let strict = shop.behind(kitchen.layer().required().methods([Method::PUT, Method::POST]));
        assert_eq!(refused(&strict, plain()).await, code(400, "IDEMPOTENCY_KEY_MISSING"));
        for _ in 0..2 {
            assert_eq!(status(&strict, put()).await, 201);
        }
        assert_eq!(shop.runs(), 5);
    });
}

#[test]
fn another_request_with_the_same_key_is_refused_and_runs_nothing() {
    for_each_keeper(async |kitchen| {
        let shop = Shop::open();
        let router = shop.behind(kitchen.layer());
        assert_eq!(status(&router, post("k", "a lamp")).await, 201);
        let request = |method: Method, uri: &str, body: &'static str| {
            let request = Request::builder().method(method).uri(uri).header("idempotency-key", "k");
            by("alice", request.body(Body::from(body)).unwrap())
        };
        let others = [
            post("k", "two lamps"),
            post("k", ""),
            request(Method::POST, "/refunds", "a lamp"),
            request(Method::POST, "/orders?twice=yes", "a lamp"),
            request(Method::PATCH, "/orders", "a lamp"),
            with(post("k", "a lamp"), "content-type", "application/json"),
        ];
        for other in others {
            assert_eq!(refused(&router, other).await, code(422, "IDEMPOTENCY_KEY_REUSED"));
        }
        assert_eq!((shop.runs(), status(&router, post("k", "a lamp")).await.as_u16()), (1, 201));
    });
}

#[test]
fn a_key_belongs_to_its_caller() {
    for_each_keeper(async |kitchen| {
        let shop = Shop::open();
        let router = shop.behind(kitchen.layer());
        let request = |body: &'static str| {
            Request::post("/orders").header("idempotency-key", "1").body(Body::from(body)).unwrap()
        };
        assert_eq!(text(send(&router, by("alice", request("a"))).await).await, "run 1: a");
        assert_eq!(text(send(&router, by("bob", request("b"))).await).await, "run 2: b");
        assert_eq!(refused(&router, request("a")).await, code(400, "CALLER_UNKNOWN"));
        let shared = shop.behind(kitchen.layer().without_caller(WithoutKey::Share));
        let open = shop.behind(kitchen.layer().without_caller(WithoutKey::LetThrough));
        for _ in 0..2 {
            assert_eq!(text(send(&shared, request("c")).await).await, "run 3: c");
        }
        assert_eq!(text(send(&open, request("c")).await).await, "run 4: c");
        let forged = "x".repeat(600);
        assert_eq!(refused(&router, by(&forged, request("a"))).await, code(400, "GUARD_INVALID"));
    });
}

#[test]
fn answers_expire_and_make_room() {
    for_each_keeper(async |kitchen| {
        let shop = Shop::open();
        let router = shop.behind(kitchen.layer().keep_for(Duration::from_secs(3_600)));
        assert_eq!(status(&router, post("k", "a")).await, 201);
        kitchen.advance(3_599_999).await;
        assert_eq!((status(&router, post("k", "a")).await.as_u16(), shop.runs()), (201, 1));
        kitchen.advance(1).await;
        assert_eq!(text(send(&router, post("k", "b")).await).await, "run 2: b");
    });
}

#[test]
fn answers_that_are_over_make_room() {
    for_each_store(async |place| {
        let options = place.options().component(COMPONENT);
        let (store, time) = VirtualTime::open_with(&place, options).await.unwrap();
        let answers = Answers::new(store.clone());
        let shop = Shop::open();
        let router = shop.behind(OnceLayer::new(answers.clone(), Key::user()));
        for number in 0..10 {
            assert_eq!(status(&router, post(&format!("first-{number}"), "a")).await, 201);
        }
        time.advance(12 * 3_600_000).await.unwrap();
        assert_eq!(status(&router, post("second", "a")).await, 201);
        assert_eq!(answers.sweep().await.unwrap(), 0, "what is kept stays");
        time.advance(12 * 3_600_000).await.unwrap();
        assert_eq!(answers.sweep().await.unwrap(), 10);
        assert_eq!((status(&router, post("second", "a")).await.as_u16(), shop.runs()), (201, 11));
        time.advance(12 * 3_600_000).await.unwrap();
        // It also happens by itself, after so many new keys.
        for number in 0..64 {
            assert_eq!(status(&router, post(&number.to_string(), "a")).await, 201);
        }
        let is_there = "SELECT count(*) FROM mainstay_answers WHERE key = 'second'";
        let gone = async {
            while store.read(async |tx| tx.query_one(is_there, &[]).await?.get::<i64>(0)).await.unwrap() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), gone).await.expect("what is over is removed");
    });
}

#[test]
fn answers_that_say_that_nothing_was_done_are_not_kept() {
    for_each_keeper(async |kitchen| {
        let shop = Shop::open();
        let router = shop.behind(kitchen.layer());
        for passing in ["408", "425", "429", "503"] {
            for _ in 0..2 {
                assert_eq!(
                    status(&router, with(post(passing, "a"), "status", passing)).await.as_str(),
                    passing
                );
            }
        }
        assert_eq!(shop.runs(), 8);
        for lasting in ["200", "404", "422", "500"] {
            for _ in 0..2 {
                assert_eq!(
                    status(&router, with(post(lasting, "a"), "status", lasting)).await.as_str(),
                    lasting
                );
            }
        }
        assert_eq!(shop.runs(), 12);
        let choosy = shop.behind(kitchen.layer().keep_if(|status| status.is_success()));
        for _ in 0..2 {
            assert_eq!(status(&choosy, with(post("x", "a"), "status", "500")).await, 500);
        }
        assert_eq!(shop.runs(), 14);
    });
}

#[test]
fn what_is_no_key_is_refused_and_runs_nothing() {
    for_each_keeper(async |kitchen| {
        let shop = Shop::open();
        let router = shop.behind(kitchen.layer());
        let long = "x".repeat(256);
        for bad in ["", "a b", "\"open", &long] {
            assert_eq!(
                refused(&router, post(bad, "a")).await,
                code(400, "IDEMPOTENCY_KEY_INVALID"),
                "{bad:?}"
            );
        }
        let mut twice = post("a", "a");
        twice.headers_mut().append("idempotency-key", "b".parse().unwrap());
        let (status, document) = problem(&router, twice).await;
        assert_eq!((status, shop.runs()), (400, 0));
        assert_eq!(document["type"], "/docs/errors/IDEMPOTENCY_KEY_INVALID");
    });
}

#[test]
fn of_many_at_once_on_two_nodes_one_runs() {
    for_each_lasting_store(async |place| {
        let store = place.options().component(COMPONENT).open().await.unwrap();
        let other = match place.database() {
            Some(_) => place.options().component(COMPONENT).open().await.unwrap(),
            None => store.clone(),
        };
        let shop = Shop::shut();
        let node = |store| shop.behind(OnceLayer::new(Answers::new(store), Key::user()));
        let nodes = [node(store), node(other)];
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..16 {
            let router = nodes[number % 2].clone();
            tasks.spawn(async move { status(&router, post("k", "a")).await.as_u16() });
        }
        let mut statuses = Vec::new();
        while statuses.len() < 15 {
            statuses.push(tasks.join_next().await.unwrap().unwrap());
        }
        assert_eq!(statuses, [409; 15], "the one that runs has not ended");
        shop.let_end(1);
        assert_eq!(tasks.join_next().await.unwrap().unwrap(), 201);
        for router in &nodes {
            assert_eq!(text(send(router, post("k", "a")).await).await, "run 1: a");
        }
        assert_eq!(shop.runs(), 1);
    });
}
