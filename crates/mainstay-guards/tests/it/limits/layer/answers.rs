//! What clients are told.

use super::{Door, bucket, get, header, json, with};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use mainstay_core::clock::ManualClock;
use mainstay_guards::http::{Caller, Key};
use mainstay_guards::limits::memory::Memory;
use mainstay_guards::limits::{Definition, Kind, Policy, RateLimitLayer, RateLimiter, Rule, Shadow};
use std::sync::Arc;

fn everyone(limiter: impl RateLimiter + 'static) -> RateLimitLayer<Body> {
    RateLimitLayer::http().rule(Rule::new("all", limiter, Key::everyone()).unwrap()).unwrap()
}

#[tokio::test]
async fn answers_tell_the_policy_and_how_the_budget_stands() {
    let door = Door::behind(everyone(bucket(10.0, 0.5)));
    let first = door.send(get("/")).await;
    assert_eq!(first.status(), StatusCode::OK);
    assert_eq!(header(&first, "ratelimit-policy"), Some("\"all\";q=10;w=20"));
    assert_eq!(header(&first, "ratelimit"), Some("\"all\";r=9;t=18"));
    assert_eq!(header(&first, "retry-after"), None);
    assert_eq!(header(&door.send(get("/")).await, "ratelimit"), Some("\"all\";r=8;t=16"));
}

#[tokio::test]
async fn b_049_b_051_b_055_who_is_denied_is_told_which_limit_and_when_to_come_back() {
    let clock = Arc::new(ManualClock::at(1_000_000));
    let limiter = Memory::new().clock(clock.clone()).limiter(Policy::bucket(2.0, 0.4).unwrap());
    let door = Door::behind(everyone(limiter));
    for _ in 0..2 {
        assert_eq!(door.status(get("/")).await, StatusCode::OK);
    }
    let denied = door.send(get("/")).await;
    assert_eq!(
        (denied.status(), door.calls()),
        (StatusCode::TOO_MANY_REQUESTS, 2),
        "the handler is not called"
    );
    assert_eq!(header(&denied, "content-type"), Some("application/problem+json"));
    assert_eq!(header(&denied, "ratelimit"), Some("\"all\";r=0;t=3"));
    assert_eq!(header(&denied, "ratelimit-policy"), Some("\"all\";q=2;w=5"));
    assert_eq!(header(&denied, "retry-after"), Some("3"), "whole seconds, and never too early");
    let problem = json(denied).await;
    let expected = serde_json::json!({
        "type": "/docs/errors/RATE_LIMITED",
        "title": "More was asked for than a rate limit allows at this time. Nothing was done.",
        "status": 429,
        "detail": "Rate limit exceeded",
        "code": "RATE_LIMITED",
        "retryAfterMs": 2_500,
        "violated-policies": ["all"],
    });
    assert_eq!(problem, expected);
    clock.advance(2_499);
    assert_eq!(door.status(get("/")).await, StatusCode::TOO_MANY_REQUESTS);
    clock.advance(1);
    assert_eq!(door.status(get("/")).await, StatusCode::OK, "a retry passes when told");
}

#[tokio::test]
async fn b_041_b_049_costs_that_can_never_be_had_are_told_apart_from_those_that_make_no_sense() {
    let cost =
        |head: mainstay_guards::http::Head<'_>| head.headers["cost"].to_str().unwrap().parse().unwrap();
    let rule = Rule::new("units", bucket(10.0, 1.0), Key::everyone()).unwrap().cost(cost);
    let door = Door::behind(RateLimitLayer::http().rule(rule).unwrap());
    let costing = |cost: &str| Request::get("/").header("cost", cost).body(Body::empty()).unwrap();
    let never = door.send(costing("11")).await;
    assert_eq!((never.status(), header(&never, "retry-after")), (StatusCode::UNPROCESSABLE_ENTITY, None));
    let problem = json(never).await;
    assert_eq!(problem["code"], "LIMIT_COST_TOO_LARGE");
    assert_eq!(problem["detail"], "Operation cost exceeds rate limit capacity");
    assert_eq!((&problem["retryAfterMs"], &problem["violated-policies"][0]), (&().into(), &"units".into()));
    let nothing = door.send(costing("0")).await;
    assert_eq!(nothing.status(), StatusCode::BAD_REQUEST);
    let problem = json(nothing).await;
    assert_eq!(problem["code"], "LIMIT_COST_INVALID");
    assert_eq!(problem["detail"], "Rate limit cost must be a positive integer");
    assert_eq!(
        header(&door.send(costing("4")).await, "ratelimit"),
        Some("\"units\";r=6;t=6"),
        "nothing was taken"
    );
    assert_eq!(door.calls(), 1);
}

#[tokio::test]
async fn a_request_is_denied_by_all_limits_that_would_and_told_the_longest_wait() {
    let rule = |name: &str, limiter| Rule::new(name, limiter, Key::everyone()).unwrap();
    let generous = Arc::new(bucket(100.0, 1.0));
    let layer = RateLimitLayer::http()
        .rule(rule("generous", Arc::clone(&generous) as Arc<dyn RateLimiter>))
        .and_then(|layer| layer.rule(rule("burst", Arc::new(bucket(1.0, 1.0)))))
        .and_then(|layer| layer.rule(rule("daily", Arc::new(bucket(1.0, 0.1)))))
        .and_then(|layer| layer.rule(rule("spare", Arc::new(bucket(7.0, 1.0)))));
    let door = Door::behind(layer.unwrap());
    let first = door.send(get("/")).await;
    let expected = "\"generous\";r=99;t=99, \"burst\";r=0;t=1, \"daily\";r=0;t=10, \"spare\";r=6;t=6";
    assert_eq!(header(&first, "ratelimit"), Some(expected));
    let denied = door.send(get("/")).await;
    assert_eq!(
        (denied.status(), header(&denied, "retry-after")),
        (StatusCode::TOO_MANY_REQUESTS, Some("10"))
    );
    assert_eq!(header(&denied, "ratelimit"), Some(expected), "as they stand");
    assert_eq!(json(denied).await["violated-policies"], serde_json::json!(["burst", "daily"]));
    assert_eq!(generous.peek("everyone", 1).await.unwrap().remaining, 99, "what was taken is given back");
    assert_eq!(door.calls(), 1);
}

#[tokio::test]
async fn b_043_premium_callers_have_a_limit_of_their_own() {
    let is_premium = |head: mainstay_guards::http::Head<'_>| head.headers.contains_key("premium");
    let free = Rule::new("free", bucket(1.0, 0.1), Key::everyone()).unwrap().skip(is_premium);
    let premium = Rule::new("premium", bucket(5.0, 1.0), Key::everyone()).unwrap();
    let premium = premium.skip(move |head| !is_premium(head));
    let door = Door::behind(RateLimitLayer::http().rule(free).unwrap().rule(premium).unwrap());
    let paid = || Request::get("/").header("premium", "yes").body(Body::empty()).unwrap();
    assert_eq!(header(&door.send(get("/")).await, "ratelimit"), Some("\"free\";r=0;t=10"));
    assert_eq!(door.status(get("/")).await, StatusCode::TOO_MANY_REQUESTS);
    for _ in 0..5 {
        assert_eq!(door.status(paid()).await, StatusCode::OK);
    }
    assert_eq!(json(door.send(paid()).await).await["violated-policies"][0], "premium");
}

#[tokio::test]
async fn a_shadow_lets_everything_pass_through_the_layer_until_it_is_told_to_enforce() {
    let shadow = Arc::new(Shadow::new(bucket(1.0, 0.1)));
    let door = Door::behind(everyone(shadow.clone()));
    for _ in 0..5 {
        assert_eq!(door.status(get("/")).await, StatusCode::OK);
    }
    shadow.enforce(true);
    assert_eq!(door.status(get("/")).await, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn a_limit_that_is_changed_is_told_anew() {
    let limiter = Arc::new(bucket(10.0, 1.0));
    let door = Door::behind(everyone(limiter.clone()));
    assert_eq!(header(&door.send(get("/")).await, "ratelimit-policy"), Some("\"all\";q=10;w=10"));
    let hourly = Definition::new(Kind::FixedWindow, 20.0, 3_600_000).unwrap();
    limiter.set_limit(*hourly.limit()).await.unwrap();
    let after = door.send(get("/")).await;
    assert_eq!(header(&after, "ratelimit-policy"), Some("\"all\";q=20;w=3600"));
    assert!(
        header(&after, "ratelimit").is_some_and(|told| !told.contains(";t=")),
        "the window's end is not known"
    );
}

#[tokio::test]
async fn layers_inside_of_each_other_all_tell_and_one_may_keep_silent() {
    let inner = everyone(bucket(10.0, 1.0));
    let outer = Rule::new("outer", bucket(5.0, 1.0), Key::everyone()).unwrap();
    let door = Door::behind(inner);
    let router = door.router.layer(RateLimitLayer::<Body>::http().rule(outer).unwrap());
    let answer = tower::ServiceExt::oneshot(router, get("/")).await.unwrap();
    let told: Vec<_> = answer.headers().get_all("ratelimit").iter().collect();
    assert_eq!(told, ["\"all\";r=9;t=9", "\"outer\";r=4;t=4"]);
    let silent = Door::behind(everyone(bucket(1.0, 1.0)).without_fields());
    assert_eq!(header(&silent.send(get("/")).await, "ratelimit"), None);
    let denied = silent.send(get("/")).await;
    assert_eq!((header(&denied, "ratelimit-policy"), header(&denied, "retry-after")), (None, Some("1")));
}

#[tokio::test]
async fn clients_of_grpc_get_their_status_where_they_look_for_it() {
    let door = Door::behind(everyone(bucket(1.0, 1.0)));
    let call =
        || Request::post("/").header("content-type", "application/grpc+proto").body(Body::empty()).unwrap();
    assert_eq!(header(&door.send(call()).await, "grpc-status"), None);
    let denied = door.send(call()).await;
    assert_eq!((denied.status(), header(&denied, "grpc-status")), (StatusCode::OK, Some("8")));
    assert_eq!(header(&denied, "content-type"), Some("application/grpc"));
    assert_eq!(header(&denied, "grpc-message"), Some("RATE_LIMITED: Rate limit exceeded"));
    assert_eq!(header(&denied, "retry-after"), Some("1"));
}

#[tokio::test]
async fn rules_that_make_no_sense_are_refused_and_named() {
    let rule = |name: &str| Rule::new(name, bucket(1.0, 1.0), Key::everyone());
    for bad in ["", "a\"b", "a\\b", "a\nb", "käse", &"x".repeat(129)] {
        assert_eq!(rule(bad).err().unwrap().code(), "GUARD_INVALID", "{bad:?}");
    }
    let layer = RateLimitLayer::<Body>::http().rule(rule("twice").unwrap()).unwrap();
    let error = layer.clone().rule(rule("twice").unwrap()).err().unwrap();
    assert_eq!(error.to_string(), "name: there is a rule \"twice\" already");
    let add =
        |layer: RateLimitLayer<Body>, number: usize| layer.rule(rule(&format!("rule {number}")).unwrap());
    let full = (1..16).try_fold(layer, add).unwrap();
    assert_eq!(add(full, 16).err().unwrap().to_string(), "rules: are at most 16");
}

#[tokio::test]
async fn keys_that_cannot_be_kept_are_refused_and_take_nothing() {
    let by_name =
        Key::by(|head| head.headers.get("name").map(|name| String::from_utf8_lossy(name.as_bytes()).into()));
    let first = Arc::new(bucket(10.0, 1.0));
    let layer = RateLimitLayer::http()
        .rule(Rule::new("first", first.clone(), Key::everyone()).unwrap())
        .and_then(|layer| layer.rule(Rule::new("named", bucket(10.0, 1.0), by_name)?));
    let door = Door::behind(layer.unwrap());
    for bad in ["x".repeat(513), "a\tb".to_owned()] {
        let request = Request::get("/").header("name", &bad).body(Body::empty()).unwrap();
        let refused = door.send(request).await;
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
        assert_eq!(json(refused).await["code"], "GUARD_INVALID");
    }
    assert_eq!((door.calls(), first.peek("everyone", 1).await.unwrap().remaining), (0, 10));
    let caller = Caller { user: Some("alice".into()), tenant: None };
    assert_eq!(door.status(with(get("/"), caller)).await, StatusCode::OK);
}
