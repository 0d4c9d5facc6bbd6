//! Limits of a store, asked together.

use super::{Door, bucket, get, header, json, with};
use axum::http::StatusCode;
use mainstay_guards::http::{Caller, Key};
use mainstay_guards::limits::store::{COMPONENT, Limits};
use mainstay_guards::limits::{Definition, Kind, RateLimitLayer, RateLimiter, Rule, WhenAway};
use mainstay_testkit::stores::for_each_store;
use mainstay_testkit::time::VirtualTime;
use std::sync::Arc;

#[test]
fn named_limits_of_a_store_give_together_or_not_at_all() {
    for_each_store(async |place| {
        let options = place.options().component(COMPONENT);
        let (store, time) = VirtualTime::open_with(&place, options).await.unwrap();
        let limits = Limits::open(store.clone()).await.unwrap();
        let hourly = |rate| Definition::new(Kind::FixedWindow, rate, 3_600_000).unwrap();
        limits.define("perTenant", hourly(10.0)).await.unwrap();
        limits.define("perUser", hourly(2.0)).await.unwrap();
        let local = Arc::new(bucket(100.0, 0.1));
        let layer = RateLimitLayer::http()
            .rule(Rule::named(&limits, "perTenant", Key::tenant()).await.unwrap())
            .and_then(|layer| layer.rule(Rule::new("local", local.clone(), Key::everyone())?))
            .unwrap()
            .rule(Rule::named(&limits, "perUser", Key::user()).await.unwrap())
            .unwrap();
        let door = Door::behind(layer.clone());
        let by = |user: &str| with(get("/"), Caller { user: Some(user.into()), tenant: Some("acme".into()) });
        let first = door.send(by("alice")).await;
        let expected = "\"perTenant\";q=10;w=3600, \"perUser\";q=2;w=3600, \"local\";q=100;w=1000";
        assert_eq!(
            header(&first, "ratelimit-policy"),
            Some(expected),
            "those of the store are asked together"
        );
        assert_eq!(
            header(&first, "ratelimit"),
            Some("\"perTenant\";r=9, \"perUser\";r=1, \"local\";r=99;t=990")
        );
        assert_eq!(door.status(by("alice")).await, StatusCode::OK);
        let denied = door.send(by("alice")).await;
        assert_eq!(
            (denied.status(), header(&denied, "retry-after")),
            (StatusCode::TOO_MANY_REQUESTS, Some("3600"))
        );
        assert_eq!(json(denied).await["violated-policies"], serde_json::json!(["perUser"]));
        let tenant = limits.value("perTenant", "tenant:acme").await.unwrap();
        assert_eq!(
            (tenant.value, local.peek("everyone", 1).await.unwrap().remaining),
            (8, 98),
            "nothing was taken"
        );
        assert_eq!(door.status(by("bob")).await, StatusCode::OK);
        time.advance(3_600_000).await.unwrap();
        assert_eq!(door.status(by("alice")).await, StatusCode::OK);
        // A restart refills nothing.
        let again = Limits::open(store.clone()).await.unwrap();
        let rule = Rule::named(&again, "perUser", Key::user()).await.unwrap();
        let again = Door::behind(RateLimitLayer::http().rule(rule).unwrap());
        assert_eq!(header(&again.send(by("alice")).await, "ratelimit"), Some("\"perUser\";r=0"));
        let unknown = Rule::named(&limits, "unheard of", Key::user()).await;
        assert_eq!(unknown.err().unwrap().code(), "UNKNOWN_LIMIT");
        store.close().await;
        let refused = door.send(by("carol")).await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(json(refused).await["code"], "LIMITER_UNAVAILABLE");
        let open = Door::behind(layer.when_away(WhenAway::LetThrough));
        assert_eq!(open.status(by("carol")).await, StatusCode::OK);
    });
}
