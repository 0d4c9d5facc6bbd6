//! Slot 50: named limits before commands.

use super::house::{Diary, House, order, rejected, shop};
use mainstay_flows::commands::middleware::RateLimit;
use mainstay_flows::commands::pipeline::{Flow, Middleware, Step};
use mainstay_flows::commands::{self as flows, Command, Handling, Issued, Outcome};
use mainstay_guards::limits::store::Limits;
use mainstay_guards::limits::{Answer, Decision, Limit, Policy, RateLimitChecker, RateLimiter, Verb};
use mainstay_store::Store;
use mainstay_testkit::stores::{Place, for_each_store};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn b_005_b_013_b_015_a_named_limit_rejects_what_is_too_much() {
    for_each_store(async |place| {
        let store = store(&place).await;
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

/// A limiter that counts how often it is asked.
struct Counting(Arc<dyn RateLimiter>, AtomicUsize);

impl RateLimiter for Counting {
    fn act<'a>(&'a self, key: &'a str, verb: Verb) -> Answer<'a, Decision> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.act(key, verb)
    }

    fn policy(&self) -> Policy {
        self.0.policy()
    }

    fn set_limit(&self, limit: Limit) -> Answer<'_, ()> {
        self.0.set_limit(limit)
    }

    fn dispose(&self) {}
}

/// A step that only notes that it ran.
struct Noting(Diary, u16);

impl Middleware for Noting {
    fn name(&self) -> &str {
        "noting"
    }

    fn order(&self) -> u16 {
        self.1
    }

    fn before<'a>(&'a self, _: &'a Issued) -> Step<'a, Flow> {
        self.0.note(format!("step {}", self.1));
        Box::pin(async { Ok(Flow::Continue) })
    }
}

async fn store(place: &Place) -> Store {
    let options = place.options().component(mainstay_events::COMPONENT);
    let options = options.component(mainstay_work::COMPONENT).component(mainstay_flows::commands::COMPONENT);
    options.component(mainstay_guards::limits::store::COMPONENT).open().await.unwrap()
}

/// What the same commands lead to, and what ran for them, with or without a limit before them.
async fn a_day(house: &House) -> Vec<String> {
    let mut outcomes = Vec::new();
    for (id, name) in ["PlaceOrder", "RefuseOrder", "FailOrder"].into_iter().enumerate() {
        outcomes.push(house.send(name, id as u32).await.unwrap().outcome.status().to_owned());
    }
    outcomes.extend(house.diary.entries());
    outcomes.extend(house.dispatcher.types().map(str::to_owned));
    outcomes
}

#[test]
fn b_009_b_276_a_named_limit_is_asked_once_for_each_command_and_nothing_else_changes() {
    for_each_store(async |place| {
        let store = store(&place).await;
        let limits = Limits::open(store.clone()).await.unwrap();
        let named = Arc::new(limits.limiter("commandDispatch").await.unwrap());
        let limiter = Arc::new(Counting(named, AtomicUsize::new(0)));
        // One pipeline and one set of commands, to which the adapter is added or not.
        let commands =
            |diary: &Diary| shop(diary).with(Noting(diary.clone(), 60)).with(Noting(diary.clone(), 10));
        let diary = Diary::default();
        let without = House::open_on(store.clone(), commands(&diary), diary).await;
        let diary = Diary::default();
        let limited = commands(&diary).with(RateLimit::new(RateLimitChecker::new(limiter.clone())));
        let with = House::open_on(store, limited, diary).await;
        assert_eq!(a_day(&with).await, a_day(&without).await);
        let asked = || limiter.1.load(Ordering::Relaxed);
        assert_eq!(asked(), 3, "once for each command");
        assert_eq!(
            with.diary.entries()[..3],
            ["step 10", "step 60", "PlaceOrder"],
            "and it reaches its handler"
        );
        let command = || order("PlaceOrder", 9).id("cmd-9");
        with.dispatcher.dispatch(command()).await.unwrap();
        with.dispatcher.dispatch(command()).await.unwrap();
        assert_eq!(asked(), 4, "a repeated command costs nothing");
    });
}

#[test]
fn b_013_the_limit_and_the_key_are_chosen_and_some_commands_are_never_too_much() {
    for_each_store(async |place| {
        let store = store(&place).await;
        let limits = Limits::open(store.clone()).await.unwrap();
        for (name, rate) in [("free", 1), ("paid", 3)] {
            let limit = json!({ "kind": "fixed window", "rate": rate, "period": "30d" });
            limits.define(name, serde_json::from_value(limit).unwrap()).await.unwrap();
        }
        let checker = async |name: &str| RateLimitChecker::new(Arc::new(limits.limiter(name).await.unwrap()));
        let (free, paid) = (checker("free").await, checker("paid").await);
        let limit =
            RateLimit::choosing(move |issued| match issued.roles.iter().any(|role| role == "paying") {
                true => paid.clone(),
                false => free.clone(),
            });
        let limit = limit.key(|issued| format!("tenant:{}", issued.tenant_id.as_deref().unwrap_or("none")));
        let diary = Diary::default();
        let healthy = async |_: Handling, _: ()| Ok(flows::Decision::success("well", []));
        let commands = shop(&diary).on("GetSystemHealth", healthy);
        let house = House::open_on(store, commands.with(limit.skip_for(["GetSystemHealth"])), diary).await;
        let send = async |user: &str, tenant: &str, role: &str| {
            let command = order("PlaceOrder", 1).user(user).tenant(tenant).role(role);
            house.dispatcher.dispatch(command).await.unwrap().outcome.status()
        };
        assert_eq!(send("ada", "t1", "guest").await, "success");
        assert_eq!(send("bob", "t1", "guest").await, "rejected", "the budget is the tenant's");
        assert_eq!(send("bob", "t2", "guest").await, "success");
        for _ in 0..3 {
            assert_eq!(send("ada", "t1", "paying").await, "success", "another limit");
        }
        assert_eq!(send("ada", "t1", "paying").await, "rejected");
        for _ in 0..5 {
            let health = Command::new("GetSystemHealth", &()).unwrap().tenant("t1");
            assert_eq!(house.dispatcher.dispatch(health).await.unwrap().outcome.status(), "success");
        }
    });
}
