//! Named limits, kept in the store.

use super::contract::{self, Bench};
use mainstay_core::random::SeededRandom;
use mainstay_guards::Error;
use mainstay_guards::limits::store::{COMPONENT, Limits, Reservation, Standing, Wanted};
use mainstay_guards::limits::{Decision, Definition, Kind, Policy, RateLimitChecker, RateLimiter, Verb};
use mainstay_store::{Ending, Epilogue, Store, Tx, riding};
use mainstay_testkit::stores::{
    Kind as StoreKind, Place, for_each_kind, for_each_lasting_store, for_each_store,
};
use mainstay_testkit::time::VirtualTime;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

struct InStore {
    limits: Limits,
    time: VirtualTime,
}

impl InStore {
    async fn open(place: &Place) -> Self {
        let (store, time) = open(place).await;
        Self { limits: Limits::open(store).await.unwrap(), time }
    }
}

async fn open(place: &Place) -> (Store, VirtualTime) {
    VirtualTime::open_with(place, place.options().component(COMPONENT)).await.unwrap()
}

impl Bench for InStore {
    async fn limiter(&self, policy: Policy) -> Arc<dyn RateLimiter> {
        self.time.set(Self::START_MS).await.unwrap();
        Arc::new(self.limits.create(policy).await.unwrap())
    }

    async fn again(&self, policy: Policy) -> Option<Arc<dyn RateLimiter>> {
        // All that a process keeps of a limit is made anew.
        let limits = Limits::open(self.limits.store().clone()).await.unwrap();
        Some(Arc::new(limits.create(policy).await.unwrap()))
    }

    async fn advance(&self, by_ms: i64) {
        self.time.advance(by_ms).await.unwrap();
    }
}

fn bucket(rate: f64, period_ms: u64) -> Definition {
    Definition::new(Kind::TokenBucket, rate, period_ms).unwrap()
}

#[test]
fn budgets_in_a_store_keep_the_contract() {
    for_each_store(async |place| contract::hold(&InStore::open(&place).await).await);
}

#[test]
fn b_002_the_shipped_limits_are_there_after_opening() {
    for_each_store(async |place| {
        let bench = InStore::open(&place).await;
        let all = bench.limits.list(None, 100).await.unwrap();
        let text = serde_json::to_string(&all).unwrap();
        let expected = concat!(
            r#"[["adminOperations",{"kind":"fixed window","rate":10.0,"period":"1h","capacity":10.0,"shards":1}],"#,
            r#"["commandDispatch",{"kind":"token bucket","rate":100.0,"period":"1m","capacity":150.0,"shards":50}]]"#
        );
        assert_eq!(text, expected);
        assert!(bench.limits.consume("commandDispatch", "user:alice", 1).await.unwrap().allowed, "item 16");
        // What somebody has changed is not changed back.
        bench.limits.define("adminOperations", bucket(5.0, 1_000)).await.unwrap();
        let again = Limits::open(bench.limits.store().clone()).await.unwrap();
        assert_eq!(again.definition("adminOperations").await.unwrap(), bucket(5.0, 1_000));
    });
}

#[test]
fn b_003_a_restart_refills_nothing_and_two_processes_share_the_budget() {
    for_each_lasting_store(async |place| {
        let bench = InStore::open(&place).await;
        bench.limits.define("limit", bucket(10.0, 60_000)).await.unwrap();
        assert!(bench.limits.consume("limit", "a", 6).await.unwrap().allowed);
        if place.kind() == StoreKind::Postgres {
            let store = place.options().component(COMPONENT).open().await.unwrap();
            let other = Limits::open(store).await.unwrap();
            assert_eq!(other.consume("limit", "a", 3).await.unwrap(), Decision::allowed(1));
        } else {
            let (store, clock) = (bench.limits.store().clone(), bench.time.clock());
            drop(bench);
            store.close().await;
            let store = place.options().component(COMPONENT).clock(clock).open().await.unwrap();
            let again = Limits::open(store).await.unwrap();
            assert_eq!(again.consume("limit", "a", 3).await.unwrap(), Decision::allowed(1));
        }
    });
}

#[test]
fn b_004_b_005_b_006_b_007_b_008_a_checker_says_yes_or_when() {
    for_each_store(async |place| {
        let bench = InStore::open(&place).await;
        bench.limits.define("hundred", bucket(100.0, 60_000)).await.unwrap();
        let checker = RateLimitChecker::new(Arc::new(bench.limits.limiter("hundred").await.unwrap()));
        bench.limits.consume("hundred", "user:alice", 50).await.unwrap();
        let result = checker.check("user:alice").await.unwrap();
        assert_eq!(serde_json::to_string(&result).unwrap(), r#"{"allowed":true}"#);
        bench.limits.consume("hundred", "user:alice", 49).await.unwrap();
        let result = checker.check("user:alice").await.unwrap();
        assert_eq!((result.allowed, result.retry_after_ms), (false, Some(600)));
        bench.limits.define("ten", bucket(10.0, 60_000)).await.unwrap();
        bench.limits.consume("ten", "user:alice", 10).await.unwrap();
        assert!(bench.limits.consume("ten", "user:bob", 1).await.unwrap().allowed);
        assert!(!bench.limits.consume("ten", "user:alice", 1).await.unwrap().allowed);
    });
}

#[test]
fn b_012_shards_share_the_budget_and_the_fuller_of_two_is_spent_from() {
    for_each_store(async |place| {
        let options = place.options().component(COMPONENT).random(Arc::new(SeededRandom::new(7)));
        let (store, time) = VirtualTime::open_with(&place, options).await.unwrap();
        let limits = Limits::open(store).await.unwrap();
        let sharded = bucket(1_000.0, 60_000).with_shards(10).unwrap();
        limits.define("sharded", sharded).await.unwrap();
        let mut allowed = 0;
        while limits.consume("sharded", "a", 1).await.unwrap().allowed {
            allowed += 1;
        }
        // The first denial comes when the fuller of two shards is empty; the others then hold a few.
        assert!((950..=1_000).contains(&allowed), "{allowed}");
        let standing = limits.value("sharded", "a").await.unwrap();
        assert_eq!((standing.value, standing.capacity), (1_000 - allowed, 1_000));
        time.advance(60_000).await.unwrap();
        assert_eq!(limits.value("sharded", "a").await.unwrap().value, 1_000);
        limits.consume("sharded", "a", 70).await.unwrap();
        limits.reset("sharded", "a").await.unwrap();
        assert_eq!(limits.value("sharded", "a").await.unwrap().value, 1_000);
        limits.act("sharded", "a", Verb::Block(1_000)).await.unwrap();
        for _ in 0..20 {
            assert!(!limits.consume("sharded", "a", 1).await.unwrap().allowed, "all shards are blocked");
        }
    });
}

#[test]
fn a_reservation_is_taken_ahead_up_to_what_may_be_owed() {
    for_each_store(async |place| {
        let InStore { limits, time } = InStore::open(&place).await;
        limits.define("emails", bucket(10.0, 10_000).with_max_reserved(5).unwrap()).await.unwrap();
        let reserve = async |cost| limits.reserve("emails", "a", cost).await.unwrap();
        assert_eq!(reserve(10).await, Reservation { ok: true, retry_after_ms: Some(0) });
        assert_eq!(reserve(3).await, Reservation { ok: true, retry_after_ms: Some(3_000) });
        assert_eq!(reserve(3).await, Reservation { ok: false, retry_after_ms: Some(6_000) });
        assert_eq!(reserve(11).await, Reservation { ok: false, retry_after_ms: None });
        let standing = limits.value("emails", "a").await.unwrap();
        assert_eq!(standing, Standing { value: -3, capacity: 10, at_ms: InStore::START_MS });
        assert_eq!(limits.consume("emails", "a", 1).await.unwrap(), Decision::denied(0, 4_000));
        time.advance(4_000).await.unwrap();
        assert!(limits.consume("emails", "a", 1).await.unwrap().allowed);
    });
}

#[test]
fn what_is_taken_in_a_transaction_is_given_back_when_it_is_rolled_back() {
    for_each_store(async |place| {
        let InStore { limits, .. } = InStore::open(&place).await;
        limits.define("limit", bucket(10.0, 60_000)).await.unwrap();
        let taking = |limits: &Limits, fails: bool| {
            let (store, limits) = (limits.store().clone(), limits.clone());
            async move {
                let run = async |tx: Tx, (limits, fails): (Limits, bool)| {
                    let decision = limits.consume_in(&tx, "limit", "a", 4).await?;
                    assert_eq!(
                        limits.consume_in(&tx, "limit", "a", 1).await?.remaining,
                        decision.remaining - 1
                    );
                    if fails { Err(Error::UnknownLimit("none".into()).into()) } else { Ok(decision) }
                };
                store.transact_with((limits, fails), run).await
            }
        };
        assert!(taking(&limits, true).await.is_err());
        assert_eq!(limits.value("limit", "a").await.unwrap().value, 10);
        assert_eq!(taking(&limits, false).await.unwrap(), Decision::allowed(6));
        assert_eq!(limits.value("limit", "a").await.unwrap().value, 5);
    });
}

#[test]
fn several_limits_are_taken_from_together_or_not_at_all() {
    for_each_store(async |place| {
        let InStore { limits, .. } = InStore::open(&place).await;
        limits.define("user", bucket(10.0, 60_000)).await.unwrap();
        limits.define("tenant", bucket(100.0, 60_000)).await.unwrap();
        let wanted = |cost| {
            let of = |name: &str| Wanted { name: name.into(), key: "acme".into(), cost };
            [of("tenant"), of("user")]
        };
        let decisions = limits.consume_many(&wanted(6)).await.unwrap();
        assert_eq!(decisions, [Decision::allowed(94), Decision::allowed(4)]);
        let decisions = limits.consume_many(&wanted(6)).await.unwrap();
        assert_eq!(decisions.iter().map(|one| one.allowed).collect::<Vec<_>>(), [true, false]);
        assert_eq!(limits.value("tenant", "acme").await.unwrap().value, 94, "nothing was taken");
        let same = Wanted { name: "user".into(), key: "acme".into(), cost: 3 };
        let twice = limits.consume_many(&[same.clone(), same]).await.unwrap();
        assert!(!twice[1].allowed);
        assert_eq!(limits.value("user", "acme").await.unwrap().value, 4);
        assert_eq!(limits.consume_many(&[]).await.unwrap_err().code(), "GUARD_INVALID");
    });
}

#[test]
fn a_change_counts_on_all_nodes_from_the_next_decision_on() {
    for_each_store(async |place| {
        let InStore { limits, .. } = InStore::open(&place).await;
        let other = Limits::open(limits.store().clone()).await.unwrap();
        limits.define("limit", bucket(10.0, 60_000)).await.unwrap();
        assert_eq!(other.consume("limit", "a", 4).await.unwrap(), Decision::allowed(6));
        limits.define("limit", bucket(100.0, 60_000)).await.unwrap();
        assert_eq!(other.consume("limit", "a", 1).await.unwrap(), Decision::allowed(95));
        // A definition that is never committed is never gone by.
        let rolled_back = bucket(1.0, 60_000);
        let define = async |tx: Tx, (limits, definition): (Limits, Definition)| {
            let text = serde_json::to_string(&definition).unwrap();
            let sql =
                "UPDATE mainstay_limits SET version = version + 1, definition = $1 WHERE name = 'limit'";
            tx.execute(sql, mainstay_store::params![text]).await?;
            limits.consume_in(&tx, "limit", "b", 1).await?;
            Err::<(), _>(Error::UnknownLimit("none".into()).into())
        };
        limits.store().transact_with((limits.clone(), rolled_back), define).await.unwrap_err();
        limits.define("limit", bucket(50.0, 60_000)).await.unwrap();
        assert_eq!(limits.consume("limit", "b", 1).await.unwrap(), Decision::allowed(49));
    });
}

#[test]
fn unknown_limits_and_bad_names_are_refused() {
    for_each_store(async |place| {
        let InStore { limits, .. } = InStore::open(&place).await;
        let error = limits.consume("nobody", "a", 1).await.unwrap_err();
        assert_eq!(
            (error.code(), error.to_string().as_str()),
            ("UNKNOWN_LIMIT", "there is no limit \"nobody\"")
        );
        for bad in ["", "a\nb", &"x".repeat(129)] {
            assert_eq!(limits.define(bad, bucket(1.0, 1_000)).await.unwrap_err().code(), "GUARD_INVALID");
        }
        assert_eq!(limits.value("nobody", "a").await.unwrap_err().code(), "UNKNOWN_LIMIT");
        assert_eq!(limits.limiter("nobody").await.err().unwrap().code(), "UNKNOWN_LIMIT");
        // Neighbours of a bad call are not touched.
        limits.define("limit", bucket(10.0, 60_000)).await.unwrap();
        let calls = (0..40).map(|number| {
            let limits = limits.clone();
            let name = if number % 2 == 0 { "limit" } else { "nobody" };
            tokio::spawn(async move { limits.consume(name, "a", 1).await.is_ok_and(|one| one.allowed) })
        });
        let mut allowed = 0;
        for call in calls.collect::<Vec<_>>() {
            allowed += u32::from(call.await.unwrap());
        }
        assert_eq!(allowed, 10);
    });
}

#[test]
fn one_key_that_everybody_wants_is_no_conflict() {
    for_each_kind(&[StoreKind::SqliteFile, StoreKind::Postgres], async |place| {
        let first = InStore::open(&place).await;
        first.limits.define("hot", bucket(500.0, 86_400_000)).await.unwrap();
        let mut nodes = vec![first.limits.clone()];
        if place.kind() == StoreKind::Postgres {
            let store = place.options().component(COMPONENT).open().await.unwrap();
            nodes.push(Limits::open(store).await.unwrap());
        }
        let callers = (0..64).map(|number| {
            let limits = nodes[number % nodes.len()].clone();
            tokio::spawn(async move {
                let mut allowed = 0;
                for _ in 0..20 {
                    allowed += u32::from(limits.consume("hot", "everybody", 1).await.unwrap().allowed);
                }
                allowed
            })
        });
        let mut allowed = 0;
        for caller in callers.collect::<Vec<_>>() {
            allowed += caller.await.unwrap();
        }
        assert_eq!(allowed, 500);
    });
}

/// The row of a budget is removed when nothing is missing from it, and comes back with the next call.
#[test]
fn a_budget_that_comes_and_goes_between_nodes_never_gives_too_much() {
    for_each_kind(&[StoreKind::SqliteFile, StoreKind::Postgres], async |place| {
        let first = InStore::open(&place).await;
        first.limits.define("few", bucket(3.0, 86_400_000)).await.unwrap();
        let mut nodes = vec![first.limits.clone()];
        if place.kind() == StoreKind::Postgres {
            let store = place.options().component(COMPONENT).open().await.unwrap();
            nodes.push(Limits::open(store).await.unwrap());
        }
        let taken = Arc::new(AtomicI64::new(0));
        let callers = (0..16).map(|number| {
            let (limits, taken) = (nodes[number % nodes.len()].clone(), taken.clone());
            tokio::spawn(async move {
                let mut had = 0;
                while had < 15 {
                    if !limits.consume("few", "a", 1).await.unwrap().allowed {
                        continue;
                    }
                    let others = taken.fetch_add(1, Ordering::SeqCst);
                    assert!(others < 3, "{} of 3 are taken", others + 1);
                    tokio::task::yield_now().await;
                    taken.fetch_sub(1, Ordering::SeqCst);
                    limits.act("few", "a", Verb::Refund(1)).await.unwrap();
                    had += 1;
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.unwrap();
        }
        assert_eq!(first.limits.value("few", "a").await.unwrap().value, 3);
    });
}

#[test]
fn budgets_that_have_recovered_make_room_for_others() {
    for_each_store(async |place| {
        let InStore { limits, time } = InStore::open(&place).await;
        limits.define("limit", bucket(10.0, 10_000)).await.unwrap();
        limits.define("slow", bucket(10.0, 86_400_000)).await.unwrap();
        limits.consume("slow", "kept", 10).await.unwrap();
        let count = async || {
            let read = async |tx: Tx| {
                tx.query_one("SELECT count(*) FROM mainstay_budgets", &[]).await?.get::<i64>(0)
            };
            limits.store().read(read).await.unwrap()
        };
        for round in 0..12 {
            let calls = (0..100).map(|number| {
                let limits = limits.clone();
                tokio::spawn(
                    async move { limits.consume("limit", &format!("key {round} {number}"), 1).await },
                )
            });
            for call in calls.collect::<Vec<_>>() {
                assert!(call.await.unwrap().unwrap().allowed);
            }
            time.advance(1_000).await.unwrap();
        }
        // The last looks may still be under way.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while count().await > 700 {
            assert!(std::time::Instant::now() < deadline, "{} budgets of 1,200 keys are left", count().await);
            tokio::task::yield_now().await;
        }
        assert_eq!(limits.value("slow", "kept").await.unwrap().value, 0);
    });
}

#[test]
fn who_is_denied_most_is_known_limit_by_limit() {
    for_each_kind(&[StoreKind::SqliteMemory], async |place| {
        let limits = InStore::open(&place).await.limits;
        for name in ["one", "other"] {
            limits.define(name, bucket(2.0, 60_000)).await.unwrap();
        }
        for _ in 0..5 {
            limits.consume("one", "greedy", 1).await.unwrap();
        }
        limits.consume("one", "large", 3).await.unwrap();
        limits.reserve("other", "greedy", 2).await.unwrap();
        let wanted = |name: &str| Wanted { name: name.to_owned(), key: "both".to_owned(), cost: 2 };
        limits.consume_many(&[wanted("one"), wanted("other")]).await.unwrap();
        limits.consume("nobody knows it", "greedy", 1).await.unwrap_err();
        let most = limits.most_denied("one", 10);
        let most: Vec<_> = most.iter().map(|one| (one.key.as_str(), one.at_least)).collect();
        assert_eq!(most, [("greedy", 3), ("large", 1)]);
        assert_eq!(limits.most_denied("other", 10), []);
        assert_eq!(limits.most_denied("nobody knows it", 10), []);
        let figures = limits.figures();
        assert_eq!((figures.allowed.get(), figures.denied.get(), figures.impossible.get()), (5, 3, 1));
        assert_eq!(figures.failed.get(), 0);
    });
}

#[test]
fn limits_are_listed_page_by_page() {
    for_each_store(async |place| {
        let limits = InStore::open(&place).await.limits;
        let names = async |after: Option<&str>, limit| {
            let page = limits.list(after, limit).await.unwrap();
            page.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        limits.define("zoo", bucket(2.0, 60_000)).await.unwrap();
        assert_eq!(names(None, 2).await, ["adminOperations", "commandDispatch"]);
        assert_eq!(names(Some("commandDispatch"), 2).await, ["zoo"]);
    });
}

/// Guidance and nothing more (C24): the numbers that somebody configures are kept.
#[test]
fn b_011_the_guide_to_shards_is_told_and_shards_are_taken_as_they_are_given() {
    let page = include_str!("../../../../../docs/concepts/limits.md").replace('\n', " ");
    for said in
        ["below 50 calls a second none", "up to 200, 5 to 10", "up to 1,000, 10 to 50", "beyond, 50 and more"]
    {
        assert!(page.contains(said), "{said}");
    }
    let dispatch = bucket(100.0, 60_000).with_capacity(150.0).unwrap().with_shards(50).unwrap();
    assert_eq!(dispatch.shards(), 50);
}

#[test]
fn a_store_has_no_more_limits_than_it_may_have() {
    for_each_store(async |place| {
        let limits = InStore::open(&place).await.limits;
        let fill = async |tx: Tx| {
            let sql = "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 9999) \
                 INSERT INTO mainstay_limits (name, version, definition, changed_at) \
                 SELECT 'limit ' || n, 1, (SELECT definition FROM mainstay_limits WHERE name = 'adminOperations'), 0 \
                 FROM numbers";
            tx.execute(sql, &[]).await
        };
        limits.store().transact(fill).await.unwrap();
        // There is room for one, and several want it at once. Those that Mainstay ships with are not counted.
        let names: Vec<String> = (0..8).map(|number| format!("last {number}")).collect();
        let racing = names.iter().map(|name| limits.define(name, bucket(1.0, 1_000)));
        let raced = futures_util::future::join_all(racing).await;
        assert_eq!(raced.iter().filter(|defined| defined.is_ok()).count(), 1, "{raced:?}");
        let refused = limits.define("one more", bucket(1.0, 1_000)).await.unwrap_err();
        assert_eq!(refused.code(), "LIMITS_TOO_MANY");
        assert_eq!(limits.definition("one more").await.unwrap_err().code(), "UNKNOWN_LIMIT");
        limits.define("limit 7", bucket(1.0, 1_000)).await.unwrap();
        // A program that names one of its own starts all the same.
        let program = Limits::open(limits.store().clone()).await.unwrap();
        program.declare("configured", bucket(1.0, 1_000)).await.unwrap();
        assert!(program.consume("configured", "a", 1).await.unwrap().allowed);
        assert_eq!(
            program.define("one more", bucket(1.0, 1_000)).await.unwrap_err().code(),
            "LIMITS_TOO_MANY"
        );
    });
}

/// A budget is converted from the version it was last used at, as long as that is kept.
#[test]
fn a_limit_that_is_changed_again_and_again_keeps_a_hundred_versions() {
    for_each_store(async |place| {
        let limits = InStore::open(&place).await.limits;
        let change = async |capacity: u32| {
            limits.define("limit", bucket(f64::from(capacity), 86_400_000)).await.unwrap();
        };
        let versions = async || {
            let sql = "SELECT count(*) FROM mainstay_limit_versions WHERE name = 'limit'";
            limits
                .store()
                .read(async move |tx: Tx| tx.query_one(sql, &[]).await?.get::<i64>(0))
                .await
                .unwrap()
        };
        change(1_000).await;
        assert_eq!(limits.consume("limit", "old", 400).await.unwrap(), Decision::allowed(600));
        change(1_001).await;
        assert_eq!(limits.consume("limit", "recent", 400).await.unwrap(), Decision::allowed(601));
        for capacity in 1_002..=1_100 {
            change(capacity).await;
        }
        assert_eq!(versions().await, 100);
        assert_eq!(limits.value("limit", "recent").await.unwrap().value, 700);
        // The version that it was last used at is gone: it counts as full.
        assert_eq!(limits.value("limit", "old").await.unwrap().value, 1_100);
        change(1_101).await;
        assert_eq!(versions().await, 100);
    });
}

/// Goes along, and does nothing.
struct Nothing;

impl Epilogue for Nothing {
    fn conclude(self: Arc<Self>, _: Tx) -> Ending {
        Box::pin(async { Ok(()) })
    }
}

#[test]
fn what_operators_do_takes_their_audit_along_whoever_else_asks() {
    for_each_store(async |place| {
        let limits = InStore::open(&place).await.limits;
        limits.define("x", bucket(10.0, 1_000)).await.unwrap();
        for verb in [Verb::Reset, Verb::Block(1_000)] {
            let acting = riding(Arc::new(Nothing), limits.act("x", "a", verb));
            // On PostgreSQL the first is still under way when the second begins.
            let (taken, (done, went_along)) = tokio::join!(biased; limits.consume("x", "b", 1), acting);
            taken.unwrap();
            done.unwrap();
            assert!(went_along, "{verb:?}");
        }
    });
}
