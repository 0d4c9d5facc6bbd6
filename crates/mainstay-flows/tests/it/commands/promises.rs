//! Everything that commands come with, used together: item 277.

use super::house::{Diary, House, order, rejected, shop};
use mainstay_events::NewEvent;
use mainstay_flows::commands::middleware::RateLimit;
use mainstay_flows::commands::{Command, ConflictRetry, Outcome, RETRY_POOL};
use mainstay_guards::limits::RateLimitChecker;
use mainstay_guards::limits::store::Limits;
use mainstay_store::{Options, Store};
use mainstay_testkit::stores::{Place, for_each_store};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const SCOPE: &str = "tenant:t1:order:1";
const PATIENCE: Duration = Duration::from_secs(20);

async fn open(place: &Place) -> Store {
    let components = [
        mainstay_events::COMPONENT,
        mainstay_work::COMPONENT,
        mainstay_flows::commands::COMPONENT,
        mainstay_guards::limits::store::COMPONENT,
    ];
    components.into_iter().fold(place.options(), Options::component).open().await.unwrap()
}

/// A node of the shop whose commands are limited, with waits that nobody shakes.
async fn node(store: &Store) -> House {
    let limits = Limits::open(store.clone()).await.unwrap();
    let checker = RateLimitChecker::new(Arc::new(limits.limiter("commandDispatch").await.unwrap()));
    let diary = Diary::default();
    let house = House::open_on(store.clone(), shop(&diary).with(RateLimit::new(checker)), diary).await;
    house.dispatcher.set_jitter(|| 1.5);
    house
}

#[test]
fn b_277_a_limit_that_is_mounted_before_commands_is_that_of_all_nodes() {
    for_each_store(async |place| {
        let store = open(&place).await;
        let nodes = [node(&store).await, node(&store).await];
        let (mut allowed, mut is_denied) = (0_u32, [false, false]);
        while is_denied != [true, true] && allowed < 500 {
            for (house, is_denied) in nodes.iter().zip(&mut is_denied) {
                let sent = house.dispatcher.dispatch(order("PlaceOrder", allowed).user("ada")).await.unwrap();
                match &sent.outcome {
                    Outcome::Success { .. } => allowed += 1,
                    _ => *is_denied = rejected(&sent) == "RATE_LIMITED",
                }
            }
        }
        // Kept in the memory of each, it would let through twice as many.
        assert!((50..=150).contains(&allowed), "{allowed}");
    });
}

#[test]
fn b_277_a_conflict_is_a_job_of_the_retry_pool_with_jitter_and_an_end_that_is_told() {
    for_each_store(async |place| {
        let store = open(&place).await;
        let house = node(&store).await;
        let settings = house.work.pool_status(RETRY_POOL).await.unwrap().settings;
        let settings = serde_json::to_value(&settings).unwrap();
        assert_eq!((&settings["maxParallelism"], &settings["retry"]["maxAttempts"]), (&json!(10), &json!(1)));
        let event = NewEvent::new("Added", &1).unwrap().tenant("t1").scope(SCOPE, 0);
        house.log.append(event).await.unwrap();
        let retry = ConflictRetry { initial_backoff_ms: 20, ..ConflictRetry::default() };
        let retry = retry.on_complete("told", &json!({ "order": 9 })).unwrap();
        let late = order("PlaceOrder", 1).id("cmd-1").within(SCOPE, 0).retrying(retry);
        let Outcome::Deferred(deferred) = house.dispatcher.dispatch(late).await.unwrap().outcome else {
            panic!("not deferred");
        };
        assert_eq!((deferred.scheduled_after_ms, deferred.retry_attempt), (30, 1));
        let pending = house.work.pending(RETRY_POOL, 10).await.unwrap();
        assert_eq!(
            pending.iter().map(|item| (&*item.function, &*item.work_id)).collect::<Vec<_>>(),
            [("mainstay.command.retry", &*deferred.work_id)]
        );
        let engine = house.work.start().await.unwrap();
        let status = house.dispatcher.wait_for("cmd-1", PATIENCE).await.unwrap();
        assert_eq!(status.outcome.status(), "success");
        let told = async {
            while house.told().await.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, told).await.expect("somebody is told");
        assert_eq!(house.told().await, [r#"success {"order":9}"#]);
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_277_its_use_is_documented() {
    let documents = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/concepts");
    for (page, words) in [
        ("commands.md", ["ConflictRetry", "RateLimit", "on_complete"]),
        ("limits.md", ["commandDispatch", "Limits", "define"]),
    ] {
        let text = std::fs::read_to_string(format!("{documents}/{page}")).unwrap();
        for word in words {
            assert!(text.contains(word), "{page} does not speak of {word}");
        }
    }
    // What the documents show is compiled with them.
    let _: fn(Command, ConflictRetry) -> Command = Command::retrying;
}
