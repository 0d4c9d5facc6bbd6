//! Whose clock counts: the database's, for what is due, for what is tried again and for who may work.

use crate::ledger::{Actions, Found, PATIENCE, POOL, drained, functions, open_store, put, with_tables};
use mainstay_core::clock::{Clock, ManualClock};
use mainstay_core::random::Random;
use mainstay_store::{Store, Tx, params};
use mainstay_testkit::stores::{Kind, Place, for_each_kind, for_each_store};
use mainstay_testkit::time::{START_MS, VirtualTime};
use mainstay_work::{
    Call, Cron, Engine, Failure, Functions, Native, NewWork, Pool, RetryPolicy, Schedule, Status, Work,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

const DAY_MS: i64 = 24 * 3_600_000;
/// How long a lease lasts.
const LEASE_MS: i64 = 15_000;

/// Executions, in their order: what was given, and the database's time.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<(String, i64)>>>);

impl Diary {
    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|(name, _)| name.clone()).collect()
    }

    /// Adds to the functions of the ledger: `note` (succeeds), `stumble` (succeeds the second time).
    async fn shop(&self, store: &Store, at_once: u32) -> Work {
        let note = |fails: u32| {
            let (diary, store) = (self.clone(), store.clone());
            move |call: Call, name: String| {
                let (diary, store) = (diary.clone(), store.clone());
                async move {
                    let now = store.read(async |tx: Tx| tx.now_ms().await).await;
                    let now = now.map_err(|error| Failure::retryable(error.to_string()))?;
                    diary.0.lock().unwrap().push((name, now));
                    if call.attempt > fails { Ok(()) } else { Err(Failure::retryable("stumbled")) }
                }
            }
        };
        let functions = functions(store).action("note", note(0)).action("stumble", note(1));
        let work = Work::open(store, functions).await.unwrap();
        let retry = RetryPolicy::new(3, 60_000, 1.0, 60_000).unwrap();
        work.pool(Pool::new(POOL).max_parallelism(at_once).retry(retry)).await.unwrap();
        work
    }
}

fn note(function: &str, name: &str) -> NewWork {
    NewWork::new(POOL, function, name).unwrap().on_complete("told", &()).unwrap()
}

async fn status(work: &Work, id: &str) -> Status {
    work.status(id).await.unwrap().expect("it is known")
}

async fn until_native(work: &Work, id: &str, native: Native) -> Status {
    let waiting = async {
        loop {
            let status = status(work, id).await;
            if status.native == native {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    waited.unwrap_or_else(|_| panic!("it never is {native:?}"))
}

// --- a node whose clock is wrong --------------------------------------------------------------------------------

fn real_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

struct Node {
    work: Work,
    engine: Engine,
    clock: Arc<ManualClock>,
}

impl Node {
    async fn start(place: &Place, diary: &Diary, off_by_ms: i64) -> Self {
        let clock = Arc::new(ManualClock::at(real_ms() + off_by_ms));
        let store = open_store(place.options().clock(clock.clone())).await;
        let work = diary.shop(&store, 10).await;
        let engine = work.start().await.unwrap();
        Self { work, engine, clock }
    }
}

#[test]
fn a_clock_that_is_wrong_by_a_day_steals_no_lease_and_starts_nothing_early_or_twice() {
    const DELAY_MS: i64 = 700;
    for_each_kind(&[Kind::Postgres], async |place| {
        let diary = Diary::default();
        let nodes = [
            Node::start(&place, &diary, DAY_MS).await,
            Node::start(&place, &diary, -DAY_MS).await,
            Node::start(&place, &diary, 0).await,
        ];
        let leases = nodes.each_ref().map(|node| node.engine.lease());
        let mut enqueued = Vec::new();
        for (number, node) in nodes.iter().enumerate() {
            for (kind, delay_ms) in [("at once", 0), ("later", DELAY_MS)] {
                let new = note("note", &format!("{kind} {number}"));
                let new = new.run_after(Duration::from_millis(delay_ms as u64));
                let new = node.work.enqueue(new).await.unwrap();
                enqueued.push((new.work_id, delay_ms));
                node.work.enqueue(put(number as i64)).await.unwrap();
            }
        }
        // Clocks that are set while others wait, and looked at.
        for (node, by_ms) in nodes.iter().zip([-2 * DAY_MS, 2 * DAY_MS, DAY_MS]) {
            node.clock.advance(by_ms);
            node.engine.look_around();
        }
        drained(&nodes[2].work).await;
        for (id, delay_ms) in &enqueued {
            let status = status(&nodes[0].work, id).await;
            assert_eq!((status.native, status.attempts), (Native::Success, 1));
            let wait = status.ended_at.unwrap() - status.enqueued_at;
            let is_wrong_by_far = (status.enqueued_at - real_ms()).abs() > DAY_MS / 2;
            assert!(!is_wrong_by_far && wait >= *delay_ms && wait < DAY_MS / 2, "{wait} of {delay_ms}");
        }
        let mut names = diary.names();
        names.sort();
        assert_eq!(names, ["at once 0", "at once 1", "at once 2", "later 0", "later 1", "later 2"]);
        assert_eq!(nodes.each_ref().map(|node| node.engine.lease()), leases);
        for node in &nodes {
            let figures = node.work.figures();
            assert_eq!((figures.lost.get(), figures.reaped.get()), (0, 0), "off by {}", node.clock.now_ms());
        }
        let found = Found::load(nodes[0].work.store()).await;
        found.check(&[], Actions::InOrder).unwrap_or_else(|wrong| panic!("{wrong}"));
    });
}

// --- time in the hands of the test ------------------------------------------------------------------------------

async fn open_in_virtual_time(place: &Place) -> (Store, VirtualTime) {
    VirtualTime::open_with(place, with_tables(place.options())).await.unwrap()
}

#[test]
fn b_263_delayed_items_start_when_due_in_the_order_of_their_time_and_not_before() {
    for_each_store(async |place| {
        let ((store, time), diary) = (open_in_virtual_time(&place).await, Diary::default());
        let work = diary.shop(&store, 1).await;
        let engine = work.start().await.unwrap();
        let after = |ms: u64| Duration::from_millis(ms);
        let items = vec![
            note("note", "fourth").run_after(after(30_000)),
            note("note", "second").run_after(after(10_000)),
            note("note", "first").run_at_ms(START_MS + 9_999),
            note("note", "third").run_at_ms(START_MS + 10_001),
            note("note", "sixth").run_after(after(30_002)).key("k"),
            note("note", "fifth").run_after(after(30_001)).priority(5),
        ];
        let ids: Vec<String> =
            work.enqueue_all(items).await.unwrap().into_iter().map(|one| one.work_id).collect();
        // What is due together is made ready together, so once one has ended, the next would be seen.
        for (now_ms, ended) in [(9_999, 2), (10_000, 1), (10_001, 3)] {
            time.set(START_MS + now_ms).await.unwrap();
            engine.look_around();
            until_native(&work, &ids[ended], Native::Success).await;
            let begun = diary.0.lock().unwrap().len();
            assert_eq!(begun as i64, now_ms - 9_998);
        }
        for still in [0, 4, 5] {
            assert_eq!(status(&work, &ids[still]).await.native, Native::Delayed);
        }
        // Whoever looks from lane to lane while they are made ready may see the last one only.
        work.pause(POOL).await.unwrap();
        time.set(START_MS + 40_000).await.unwrap();
        engine.look_around();
        for ready in [0, 4, 5] {
            until_native(&work, &ids[ready], Native::Ready).await;
        }
        work.resume(POOL).await.unwrap();
        drained(&work).await;
        let due = [9_999, 10_000, 10_001, 40_000, 40_000, 40_000];
        let names = ["first", "second", "third", "fourth", "fifth", "sixth"];
        let expected: Vec<(String, i64)> =
            names.iter().zip(due).map(|(name, at)| ((*name).to_owned(), START_MS + at)).collect();
        // More urgent ones go first once they are ready, and the fifth is the least urgent.
        let mut begun = diary.0.lock().unwrap().clone();
        assert_eq!(begun.pop().map(|(name, _)| name).as_deref(), Some("fifth"));
        begun.insert(4, expected[4].clone());
        assert_eq!(begun, expected);
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_retry_waits_for_the_databases_clock() {
    for_each_store(async |place| {
        let ((store, time), diary) = (open_in_virtual_time(&place).await, Diary::default());
        let work = diary.shop(&store, 5).await;
        let engine = work.start().await.unwrap();
        let stumbles = work.enqueue(note("stumble", "stumbles")).await.unwrap().work_id;
        let due_at = until_native(&work, &stumbles, Native::Delayed).await.due_at.unwrap();
        assert!((30_000..=90_000).contains(&(due_at - START_MS)), "half to one and a half of a minute");
        let marker = work.enqueue(note("note", "marker").run_at_ms(due_at - 1)).await.unwrap().work_id;
        time.set(due_at - 1).await.unwrap();
        engine.look_around();
        until_native(&work, &marker, Native::Success).await;
        assert_eq!(status(&work, &stumbles).await.native, Native::Delayed);
        time.set(due_at).await.unwrap();
        engine.look_around();
        assert_eq!(until_native(&work, &stumbles, Native::Success).await.attempts, 2);
        assert_eq!(diary.0.lock().unwrap()[2], ("stumbles".to_owned(), due_at));
        engine.stop(PATIENCE).await.unwrap();
    });
}

/// Draws the middle always, so that the jitter's factor is one.
struct Middle(AtomicU64);

impl Random for Middle {
    fn next_u64(&self) -> u64 {
        // Ids need more than one number.
        (1 << 63) | self.0.fetch_add(1, Ordering::Relaxed)
    }
}

#[test]
fn c_032_the_waits_of_a_pool_begin_with_the_initial_one_and_double() {
    for_each_store(async |place| {
        let options = with_tables(place.options()).random(Arc::new(Middle(AtomicU64::default())));
        let (store, time) = VirtualTime::open_with(&place, options).await.unwrap();
        let fail = async |_: Call, _: ()| Err::<(), _>(Failure::retryable("not yet"));
        let work = Work::open(&store, Functions::new().action("fail", fail)).await.unwrap();
        let retry = RetryPolicy::new(5, 60_000, 2.0, 3_600_000).unwrap();
        work.pool(Pool::new(POOL).retry(retry)).await.unwrap();
        let engine = work.start().await.unwrap();
        let id = work.enqueue(NewWork::new(POOL, "fail", &()).unwrap()).await.unwrap().work_id;
        let mut now_ms = START_MS;
        for (attempts, wait_ms) in (1..).zip([60_000, 120_000, 240_000, 480_000]) {
            let waiting = async {
                loop {
                    let status = status(&work, &id).await;
                    if status.native == Native::Delayed && status.attempts == attempts {
                        return status.due_at.unwrap();
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            };
            let due_at = tokio::time::timeout(PATIENCE, waiting).await.expect("it fails again");
            assert_eq!(due_at - now_ms, wait_ms, "after execution {attempts}");
            now_ms = due_at;
            time.set(now_ms).await.unwrap();
            engine.look_around();
        }
        assert_eq!(until_native(&work, &id, Native::Failed).await.attempts, 5);
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_cron_that_is_declared_again_keeps_its_next_tick_and_a_changed_one_does_not() {
    for_each_store(async |place| {
        let ((store, time), diary) = (open_in_virtual_time(&place).await, Diary::default());
        let work = diary.shop(&store, 5).await;
        let cron = |every_ms| {
            let every = Schedule::interval(every_ms, 0).unwrap();
            Cron::new("often", every, POOL, "note", "tick").unwrap()
        };
        let next_at = async || work.crons().await.unwrap()[0].next_at;
        work.cron(cron(3_600_000)).await.unwrap();
        let tick = next_at().await;
        // Its time has come while nothing ran: a program that starts and declares it must not take the tick away.
        time.set(tick + 1_000).await.unwrap();
        work.cron(cron(3_600_000)).await.unwrap();
        assert_eq!(next_at().await, tick);
        let again = diary.shop(&store, 5).await;
        again.cron(cron(3_600_000)).await.unwrap();
        assert_eq!(next_at().await, tick);
        let engine = work.start().await.unwrap();
        let ticking = async {
            while diary.names().is_empty() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ticking).await.expect("the tick is not lost");
        assert_eq!(next_at().await, tick + 3_600_000);
        work.cron(cron(60_000)).await.unwrap();
        assert!(next_at().await <= tick + 61_000, "a changed one begins anew");
        engine.stop(PATIENCE).await.unwrap();
    });
}

/// Waits until the keeper of a lease has looked at a moment, at which it also looks for leases that are over.
async fn until_kept(store: &Store, lease: i64, now_ms: i64) {
    let read = async |tx: Tx, lease: i64| {
        let sql = "SELECT until_ms FROM mainstay_leases WHERE number = $1";
        tx.query_one(sql, params![lease]).await?.get::<i64>(0)
    };
    let waiting = async {
        while store.read_with(lease, read).await.unwrap() != now_ms + LEASE_MS {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("nobody keeps the lease");
}

#[test]
fn the_work_of_a_dead_node_is_taken_up_when_its_lease_is_over_and_not_before() {
    for_each_store(async |place| {
        let (store, time) = open_in_virtual_time(&place).await;
        let begun = watch::Sender::new(Vec::<u32>::new());
        let noting = begun.clone();
        let functions = functions(&store).action("stay", move |call: Call, (): ()| {
            noting.send_modify(|begun| begun.push(call.attempt));
            std::future::pending::<Result<(), Failure>>()
        });
        let work = Work::open(&store, functions).await.unwrap();
        work.pool(Pool::new(POOL).retry(RetryPolicy::new(5, 1, 1.0, 1).unwrap())).await.unwrap();
        let until_begun = async |attempts: &[u32]| {
            let mut begun = begun.subscribe();
            let reached = begun.wait_for(|begun| *begun == attempts);
            let reached = tokio::time::timeout(PATIENCE, reached).await.is_ok();
            assert!(reached, "{attempts:?}: {begun:?}");
        };
        let dead = work.start().await.unwrap();
        work.enqueue(NewWork::new(POOL, "stay", &()).unwrap()).await.unwrap();
        until_begun(&[1]).await;
        drop(dead);
        let alive = work.start().await.unwrap();
        let mut now_ms = START_MS;
        // Kept in time, the other's lease never runs out; that of the dead one does.
        for step_ms in [7_000, 7_000, 999] {
            now_ms += step_ms;
            time.set(now_ms).await.unwrap();
            alive.look_around();
            until_kept(&store, alive.lease(), now_ms).await;
        }
        assert_eq!(*begun.borrow(), [1], "{}: its lease lasts for another millisecond", place.kind());
        time.advance(1).await.unwrap();
        alive.look_around();
        // The loss counts as a failure, and a failure is tried again after a moment.
        let reaped = async {
            while work.figures().reaped.get() == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, reaped).await.expect("nobody takes up its work");
        time.advance(2).await.unwrap();
        alive.look_around();
        until_begun(&[1, 2]).await;
    });
}
