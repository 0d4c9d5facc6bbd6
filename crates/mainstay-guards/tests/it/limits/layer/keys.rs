//! Whose budget a request takes from.

use super::{Door, bucket, get, json, with};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use mainstay_guards::http::{Caller, Key, Peer, TrustedProxies, WithoutKey};
use mainstay_guards::limits::{RateLimitLayer, RateLimiter, Rule};
use std::sync::Arc;

/// A door whose limiter shows under which keys it was asked.
fn door(key: Key, without_key: WithoutKey) -> (Door, Arc<dyn RateLimiter>) {
    let limiter: Arc<dyn RateLimiter> = Arc::new(bucket(10.0, 0.1));
    let rule = Rule::new("key", limiter.clone(), key).unwrap().without_key(without_key);
    (Door::behind(RateLimitLayer::http().rule(rule).unwrap()), limiter)
}

fn caller(user: Option<&str>, tenant: Option<&str>) -> Caller {
    Caller { user: user.map(Into::into), tenant: tenant.map(Into::into) }
}

/// How much a key has used.
async fn used(limiter: &Arc<dyn RateLimiter>, key: &str) -> u64 {
    10 - limiter.peek(key, 1).await.unwrap().remaining
}

#[tokio::test]
async fn b_014_requests_are_counted_by_user_tenant_route_or_several_of_them() {
    let alice = || with(get("/orders/7"), caller(Some("alice"), Some("acme")));
    let none = TrustedProxies::none;
    for (key, expected) in [
        (Key::everyone(), "everyone"),
        (Key::user(), "user:alice"),
        (Key::tenant(), "tenant:acme"),
        (Key::route(), "route:GET /orders/{id}"),
        (Key::user_or_address(none()), "user:alice"),
        (Key::tenant().and(Key::user()).and(Key::route()), "tenant:acme|user:alice|route:GET /orders/{id}"),
        (Key::paths(["/orders/7"]), "route:GET /orders/7"),
        (Key::paths(["/"]), "route:other"),
        (Key::by(|head| Some(format!("path:{}", head.uri.path()))), "path:/orders/7"),
    ] {
        let (door, limiter) = door(key, WithoutKey::Share);
        assert_eq!(door.status(alice()).await, StatusCode::OK);
        assert_eq!(used(&limiter, expected).await, 1, "{expected}");
    }
}

#[tokio::test]
async fn b_014_b_040_requests_without_a_key_share_one_are_let_through_or_are_refused() {
    let none = TrustedProxies::none;
    for (key, expected) in [
        (Key::user(), "user:anonymous"),
        (Key::tenant(), "tenant:public"),
        (Key::address(none()), "ip:unknown"),
        (Key::user_or_address(none()), "ip:unknown"),
        (Key::by(|_| None), "unknown"),
        (Key::tenant().and(Key::user()), "tenant:public|user:anonymous"),
    ] {
        let (shared, limiter) = door(key.clone(), WithoutKey::Share);
        for _ in 0..10 {
            assert_eq!(shared.status(get("/")).await, StatusCode::OK);
        }
        assert_eq!(shared.status(get("/")).await, StatusCode::TOO_MANY_REQUESTS, "{expected}");
        assert_eq!(used(&limiter, expected).await, 10, "{expected}");
        let (open, limiter) = door(key.clone(), WithoutKey::LetThrough);
        for _ in 0..11 {
            assert_eq!(open.status(get("/")).await, StatusCode::OK);
        }
        assert_eq!(used(&limiter, expected).await, 0);
        let (shut, _) = door(key, WithoutKey::Refuse);
        let refused = shut.send(get("/")).await;
        assert_eq!((refused.status(), shut.calls()), (StatusCode::BAD_REQUEST, 0));
        assert_eq!(json(refused).await["code"], "CALLER_UNKNOWN");
        let known = with(with(get("/"), caller(Some("a"), Some("b"))), Peer([192, 0, 2, 1].into()));
        if expected != "unknown" {
            assert_eq!(shut.status(known).await, StatusCode::OK, "{expected}");
        }
    }
}

#[tokio::test]
async fn nobody_chooses_a_name_that_makes_its_key_that_of_others() {
    let (door, limiter) = door(Key::user().and(Key::tenant()), WithoutKey::Share);
    let forged = caller(Some("a|tenant:b%"), Some("c"));
    assert_eq!(door.status(with(get("/"), forged)).await, StatusCode::OK);
    assert_eq!(used(&limiter, "user:a%7Ctenant:b%25|tenant:c").await, 1);
}

#[tokio::test]
async fn b_045_methods_and_paths_that_somebody_makes_up_make_no_keys() {
    for key in [Key::route(), Key::paths(["/orders/1"])] {
        let (door, limiter) = door(key, WithoutKey::Share);
        for number in 0..4 {
            let method = Method::from_bytes(format!("MADE{number}").as_bytes()).unwrap();
            let request = Request::builder().method(method).uri("/orders/1").body(Body::empty()).unwrap();
            assert_eq!(door.status(request).await, StatusCode::OK);
            door.status(get(&format!("/nowhere/{number}"))).await;
        }
        let made_up =
            used(&limiter, "route:OTHER /orders/{id}").await + used(&limiter, "route:OTHER /orders/1").await;
        assert_eq!((made_up, used(&limiter, "route:other").await), (4, 4));
    }
}
