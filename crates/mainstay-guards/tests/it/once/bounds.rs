//! What is too large, and what is away.

use super::shop::{Shop, code, for_each_keeper, post, problem, refused, send, status, text, with};
use http_body_util::BodyExt;
use mainstay_guards::http::Key;
use mainstay_guards::once::{MemoryKeeper, OnceLayer};

#[test]
fn a_body_that_is_too_large_to_be_compared_is_refused() {
    for_each_keeper(async |kitchen| {
        let shop = Shop::open();
        let router = shop.behind(kitchen.layer().max_body_bytes(5));
        assert_eq!(status(&router, post("k", "12345")).await, 201);
        let (status, document) = problem(&router, post("large", "123456")).await;
        assert_eq!((status, &document["code"]), (413, &"IDEMPOTENT_BODY_TOO_LARGE".into()));
        assert_eq!(document["detail"], "at most 5 bytes are taken");
        assert_eq!(shop.runs(), 1);
    });
}

#[test]
fn an_answer_that_is_too_large_is_given_once_and_its_repeats_are_told() {
    for_each_keeper(async |kitchen| {
        let shop = Shop::open();
        // What is kept of its headers has 39 bytes.
        let router = shop.behind(kitchen.layer().max_answer_bytes(1_000 + 39));
        let sized = |key: &str, bytes: &str| with(post(key, "a"), "bytes", bytes);
        for _ in 0..2 {
            assert_eq!(text(send(&router, sized("fits", "1000")).await).await.len(), 1_000);
        }
        assert_eq!(text(send(&router, sized("large", "1001")).await).await.len(), 1_001);
        let (status, document) = problem(&router, sized("large", "1001")).await;
        assert_eq!((status, &document["code"]), (409, &"IDEMPOTENT_ANSWER_NOT_KEPT".into()));
        assert_eq!((&document["originalStatus"], shop.runs()), (&201.into(), 2));
    });
}

#[test]
fn an_answer_that_broke_off_is_not_taken_for_a_whole_one() {
    for_each_keeper(async |kitchen| {
        let shop = Shop::open();
        let router = shop.behind(kitchen.layer());
        let first = send(&router, with(post("k", "a"), "breaks", "yes")).await;
        let mut body = first.into_body();
        assert!(body.frame().await.unwrap().is_ok() && body.frame().await.unwrap().is_err());
        let again = refused(&router, post("k", "a")).await;
        assert_eq!((again, shop.runs()), (code(409, "IDEMPOTENT_ANSWER_NOT_KEPT"), 1));
    });
}

#[test]
fn nothing_runs_when_its_key_cannot_be_kept() {
    for_each_keeper(async |kitchen| {
        let Some(store) = kitchen.store.clone() else { return };
        let shop = Shop::open();
        let router = shop.behind(kitchen.layer());
        assert_eq!(status(&router, post("k", "a")).await, 201);
        store.close().await;
        let (_, code) = refused(&router, post("k", "a")).await;
        assert_eq!((code.as_str(), shop.runs()), ("STORE_CLOSED", 1));
    });
}

#[tokio::test]
async fn keys_without_end_stay_under_the_cap_of_memory() {
    let clock = std::sync::Arc::new(mainstay_core::clock::ManualClock::at(0));
    let shop = Shop::open();
    let router = shop.behind(OnceLayer::new(MemoryKeeper::new(3).clock(clock.clone()), Key::user()));
    for number in 0..3 {
        assert_eq!(status(&router, post(&number.to_string(), "a")).await, 201);
    }
    assert_eq!(refused(&router, post("one-more", "a")).await, code(503, "IDEMPOTENCY_KEYS_FULL"));
    assert_eq!((status(&router, post("0", "a")).await.as_u16(), shop.runs()), (201, 3));
    clock.advance(24 * 3_600_000);
    assert_eq!(status(&router, post("one-more", "a")).await, 201);
}
