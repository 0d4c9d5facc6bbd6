//! Slot 50: named limits before commands.

use super::house::{Diary, House, order, rejected, shop};
use mainstay_flows::commands::Outcome;
use mainstay_flows::commands::middleware::RateLimit;
use mainstay_guards::limits::store::Limits;
use mainstay_guards::limits::{Answer, Decision, Limit, Policy, RateLimitChecker, RateLimiter, Verb};
use mainstay_testkit::stores::{Kind, Place, for_each_store};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn b_005_b_013_b_015_a_named_limit_rejects_what_is_too_much() {
    for_each_store(async |place| {
        let options = place.options().component(mainstay_events::COMPONENT);
        let options =
            options.component(mainstay_work::COMPONENT).component(mainstay_flows::commands::COMPONENT);
        let options = options.component(mainstay_guards::limits::store::COMPONENT);
        let store = options.open().await.unwrap();
        let limits = Limits::open(store.clone()).await.unwrap();
        let limit = limits.limiter("commandDispatch").await.unwrap();
        let checker = RateLimitChecker::new(Arc::new(limit));
        let diary = Diary::default();
        let commands = shop(&diary).with(RateLimit::new(checker).skip_for(["FailOrder"]));
        let house = House::open_on(store, commands, diary).await;
        let mut allowed = 0;
        let denied = loop {
            let dispatched =
                house.dispatcher.dispatch(order("PlaceOrder", allowed).user("ada")).await.unwrap();
            match dispatched.outcome {
                Outcome::Success { .. } => allowed += 1,
                _ => break dispatched,
            }
        };
        assert!((50..=150).contains(&allowed), "{allowed}");
        assert_eq!(rejected(&denied), "RATE_LIMITED");
        let Outcome::Rejected { context: Some(context), .. } = &denied.outcome else { panic!("{denied:?}") };
        assert!(context["retryAfterMs"].as_u64().is_some_and(|ms| ms > 0), "{context}");
        assert_eq!(house.orders().await.len() as u32, allowed, "the handler never ran");
        let skipped = house.dispatcher.dispatch(order("FailOrder", 1).user("ada")).await.unwrap();
        assert_eq!(skipped.outcome.status(), "failed");
        let bob = house.dispatcher.dispatch(order("PlaceOrder", 1).user("bob")).await.unwrap();
        assert_eq!(bob.outcome.status(), "success", "each user and command has a budget");
    });
}

/// Counts how often it is asked.
struct Counting(AtomicUsize);

impl RateLimiter for Counting {
    fn act<'a>(&'a self, _: &'a str, _: Verb) -> Answer<'a, Decision> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Answer::now(Ok(Decision::allowed(1)))
    }

    fn policy(&self) -> Policy {
        Policy::bucket(1.0, 1.0).unwrap()
    }

    fn set_limit(&self, _: Limit) -> Answer<'_, ()> {
        Answer::now(Ok(()))
    }

    fn dispose(&self) {}
}

#[tokio::test]
async fn b_009_b_276_the_limiter_is_asked_once_for_each_command_and_nothing_else_changes() {
    let (diary, limiter) = (Diary::default(), Arc::new(Counting(AtomicUsize::new(0))));
    let commands = shop(&diary).with(RateLimit::new(RateLimitChecker::new(limiter.clone())));
    let house = House::open_with(&Place::new(Kind::SqliteMemory), commands, diary).await;
    for id in 1..=3 {
        assert_eq!(house.send("PlaceOrder", id).await.unwrap().outcome.status(), "success");
        assert_eq!(limiter.0.load(Ordering::Relaxed), id as usize);
    }
    let command = || order("PlaceOrder", 9).id("cmd-9");
    house.dispatcher.dispatch(command()).await.unwrap();
    house.dispatcher.dispatch(command()).await.unwrap();
    assert_eq!(limiter.0.load(Ordering::Relaxed), 4, "a repeated command costs nothing");
}
