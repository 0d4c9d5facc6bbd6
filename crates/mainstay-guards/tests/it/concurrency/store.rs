//! Slots in a store.

use super::contract::{self, Bench, SECOND, denied, slots, take};
use mainstay_core::clock::{Clock, ManualClock};
use mainstay_guards::Error;
use mainstay_guards::limits::store::{COMPONENT, Permits};
use mainstay_guards::limits::{Concurrency, Grant, Slots};
use mainstay_store::{Options, Tx};
use mainstay_testkit::crash::{self, Child};
use mainstay_testkit::postgres::Doorman;
use mainstay_testkit::proxy::Proxy;
use mainstay_testkit::stores::{Kind, Place, for_each_kind, for_each_lasting_store, for_each_store};
use mainstay_testkit::time::{START_MS, VirtualTime};
use std::sync::Arc;
use std::time::{Duration, Instant};

struct InStore {
    permits: Permits,
    time: VirtualTime,
}

impl InStore {
    async fn open(place: &Place) -> Self {
        let (store, time) =
            VirtualTime::open_with(place, place.options().component(COMPONENT)).await.unwrap();
        Self { permits: Permits::new(store), time }
    }

    async fn rows(&self) -> i64 {
        let count =
            async |tx: Tx| tx.query_one("SELECT count(*) FROM mainstay_held", &[]).await?.get::<i64>(0);
        self.permits.store().read(count).await.unwrap()
    }
}

impl Bench for InStore {
    async fn concurrency(&self, slots: Slots) -> Concurrency {
        self.time.set(Self::START_MS).await.unwrap();
        self.permits.concurrency(slots)
    }

    async fn again(&self, slots: Slots) -> Option<Concurrency> {
        Some(Permits::new(self.permits.store().clone()).concurrency(slots))
    }

    async fn advance(&self, by_ms: i64) {
        self.time.advance(by_ms).await.unwrap();
    }
}

#[test]
fn slots_in_a_store_keep_the_contract() {
    for_each_store(async |place| {
        let bench = InStore::open(&place).await;
        contract::hold(&bench).await;
    });
}

#[test]
fn what_is_done_in_a_transaction_is_undone_with_it() {
    for_each_store(async |place| {
        let InStore { permits, .. } = InStore::open(&place).await;
        let slots = slots("tx", 1);
        let limit = permits.concurrency(slots.clone());
        type Context = (Permits, Slots, Option<Grant>, bool);
        let run = async |grant: Option<Grant>, fails: bool| {
            let run = async |tx: Tx, (permits, slots, grant, fails): Context| {
                let grant = match grant {
                    None => permits.acquire_in(&tx, &slots, "a", SECOND).await?.permit().unwrap(),
                    Some(grant) => {
                        assert!(permits.renew_in(&tx, &slots, &grant, SECOND).await?);
                        assert!(permits.release_in(&tx, &slots, &grant).await?);
                        assert!(!permits.release_in(&tx, &slots, &grant).await?);
                        grant
                    }
                };
                if fails { Err(Error::UnknownLimit("none".into()).into()) } else { Ok(grant) }
            };
            permits.store().transact_with((permits.clone(), slots.clone(), grant, fails), run).await
        };
        assert!(run(None, true).await.is_err());
        assert_eq!(limit.in_use("a").await.unwrap(), 0);
        let grant = run(None, false).await.unwrap();
        assert_eq!(denied(&limit, "a").await, 1_000);
        assert!(run(Some(grant.clone()), true).await.is_err());
        assert_eq!(limit.in_use("a").await.unwrap(), 1);
        run(Some(grant), false).await.unwrap();
        assert_eq!(limit.in_use("a").await.unwrap(), 0);
    });
}

#[test]
fn nodes_that_come_and_go_at_one_key_are_never_too_many() {
    for_each_kind(&[Kind::SqliteFile, Kind::Postgres], async |place| {
        let bench = InStore::open(&place).await;
        let mut nodes = vec![bench.permits.concurrency(slots("hot", 3))];
        if place.kind() == Kind::Postgres {
            let store = place.options().component(COMPONENT).open().await.unwrap();
            nodes.push(Permits::new(store).concurrency(slots("hot", 3)));
        }
        let inside = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let callers = (0..16).map(|number| {
            let (limit, inside) = (nodes[number % nodes.len()].clone(), inside.clone());
            tokio::spawn(async move {
                let mut had = 0;
                while had < 15 {
                    let Some(permit) = limit.acquire("a", SECOND).await.unwrap().permit() else { continue };
                    let others = inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    assert!(others < 3, "{} are inside", others + 1);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    assert!(permit.release().await.unwrap());
                    had += 1;
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.unwrap();
        }
        assert_eq!(bench.rows().await, 0, "nothing is kept of a key that nobody uses");
    });
}

#[test]
fn what_is_over_makes_room_for_others() {
    for_each_store(async |place| {
        let bench = InStore::open(&place).await;
        let limit = bench.permits.concurrency(slots("room", 1));
        take(&limit, "kept", 3_600 * SECOND).await.keep();
        for round in 0..12 {
            let calls = (0..100).map(|number| {
                let limit = limit.clone();
                tokio::spawn(
                    async move { take(&limit, &format!("key {round} {number}"), SECOND).await.keep() },
                )
            });
            for call in calls.collect::<Vec<_>>() {
                call.await.unwrap();
            }
            bench.time.advance(1_000).await.unwrap();
        }
        // The last looks may still be under way.
        let deadline = Instant::now() + Duration::from_secs(20);
        while bench.rows().await > 700 {
            assert!(Instant::now() < deadline, "{} of 1,200 keys are left", bench.rows().await);
            tokio::task::yield_now().await;
        }
        assert_eq!(limit.in_use("kept").await.unwrap(), 1);
    });
}

const DOOR: i64 = 5;

/// The line is cut while the database carries a commit out.
#[test]
fn a_slot_whose_commit_nobody_heard_of_is_the_slot_that_is_given() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let bench = InStore::open(&place).await;
        let straight = bench.permits.concurrency(slots("unknown", 1));
        let (proxy, url) = Proxy::before(&place).unwrap();
        let options = Options::new(url).connections(4).component(COMPONENT);
        let limit = Permits::new(options.open().await.unwrap()).concurrency(slots("unknown", 1));
        let doorman = Doorman::new(&place).await;
        doorman.guard_commits("mainstay_held", DOOR).await;
        for is_carried_out in [true, false] {
            doorman.shut(DOOR).await;
            let asking = limit.clone();
            let asking = tokio::spawn(async move { asking.acquire("a", SECOND).await });
            doorman.until_at_door().await;
            if is_carried_out {
                proxy.cut_connections().await;
                // The claim is made again, and waits for the first.
                doorman.until_waiting(2).await;
            } else {
                doorman.turn_away().await;
            }
            doorman.open(DOOR).await;
            let permit = asking.await.unwrap().unwrap().permit().expect("the slot that was taken");
            assert_eq!(straight.in_use("a").await.unwrap(), 1);
            assert_eq!(denied(&straight, "a").await, 1_000);
            assert!(permit.release().await.unwrap());
            assert_eq!(straight.in_use("a").await.unwrap(), 0);
        }
    });
}

const URL: &str = "TEST_URL";

#[test]
fn child_holds_a_slot() {
    if !crash::is_child() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        // PostgreSQL goes by its own time, which the test has in its hands.
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(START_MS));
        let options = Options::new(std::env::var(URL).unwrap()).connections(2).component(COMPONENT);
        let limit = Permits::new(options.clock(clock).open().await.unwrap()).concurrency(slots("died", 1));
        let permit = take(&limit, "a", SECOND).await;
        crash::ack(permit.grant().token);
        std::future::pending::<()>().await;
    });
}

#[test]
fn a_holder_that_was_killed_keeps_its_slot_for_its_time_and_no_longer() {
    for_each_lasting_store(async |place| {
        let bench = InStore::open(&place).await;
        let time = bench.time.clone();
        if place.kind() == Kind::SqliteFile {
            // A file has one owner.
            bench.permits.store().clone().close().await;
        }
        drop(bench);
        let mut child =
            Child::of("concurrency::store::child_holds_a_slot").env(URL, place.url()).spawn().unwrap();
        child.wait_for_acks(1, Duration::from_secs(30)).unwrap();
        child.kill9().unwrap();
        let options = place.options().component(COMPONENT).clock(time.clock());
        let limit = Permits::new(options.open().await.unwrap()).concurrency(slots("died", 1));
        assert_eq!(denied(&limit, "a").await, 1_000);
        time.advance(999).await.unwrap();
        assert_eq!(denied(&limit, "a").await, 1);
        time.advance(1).await.unwrap();
        assert!(take(&limit, "a", SECOND).await.release().await.unwrap());
    });
}
