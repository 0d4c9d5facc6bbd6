//! Several nodes on one PostgreSQL: one that is paused beyond its lease, and pools that all of them share.

use crate::ledger::{
    Actions, Done, Found, Load, PATIENCE, POOL, Verdict, block_on, drained, functions, is_drained_within,
    is_long, open_shop, open_store, put, until_more_ended, until_ok,
};
use mainstay_core::failpoints::{Action, Point};
use mainstay_store::{Options, Store, Tx, params};
use mainstay_testkit::crash::{self, Child, Running};
use mainstay_testkit::postgres::Doorman;
use mainstay_testkit::stores::{Kind, Place, for_each_kind, for_each_store};
use mainstay_work::{Call, Depth, Engine, Failure, Functions, Native, NewWork, Pool, RetryPolicy, Work};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

const LEASE: Duration = Duration::from_millis(600);
/// A paused node's locks are taken from it after this long.
const LIMIT: Duration = Duration::from_millis(500);
const URL: &str = "TEST_URL";
const IS_UNFENCED: &str = "TEST_IS_UNFENCED";

fn options(url: &str) -> Options {
    Options::new(url).connections(4).transaction_timeout(LIMIT)
}

// --- a node that is paused --------------------------------------------------------------------------------------

/// A node in a process of its own, which only works.
#[test]
fn child_works_on_another_node() {
    if !crash::is_child() {
        return;
    }
    block_on(async {
        let store = open_store(options(&std::env::var(URL).unwrap())).await;
        if std::env::var_os(IS_UNFENCED).is_some() {
            store.failpoints().arm(Point::WorkFence, Action::Error, 0, u64::MAX);
        }
        let work = open_shop(&store, LEASE).await;
        let _engine = work.start().await.unwrap();
        crash::say("works");
        std::future::pending::<()>().await;
    });
}

/// A node here and one in another process, which share what is enqueued here.
struct Pair {
    store: Store,
    work: Work,
    engine: Engine,
    child: Running,
    done: Vec<Done>,
}

impl Pair {
    async fn start(place: &Place, is_fenced: bool) -> Self {
        let store = open_store(options(place.url())).await;
        let work = open_shop(&store, LEASE).await;
        let child = Child::of("nodes::child_works_on_another_node").env(URL, place.url());
        let child = if is_fenced { child } else { child.env(IS_UNFENCED, "1") }.spawn().unwrap();
        child.wait_for("works", PATIENCE).unwrap();
        let engine = work.start().await.unwrap();
        Self { store, work, engine, child, done: Vec::new() }
    }

    fn load(&self, round: i64) -> Load {
        Load::start(&[self.work.clone(), self.work.clone(), self.work.clone()], round)
    }

    /// How many leases others have, and how many batches.
    async fn others(&self) -> (i64, i64) {
        let read = async |tx: Tx, lease: i64| {
            let count = async |table: &str, column: &str| {
                let sql = format!("SELECT count(*) FROM {table} WHERE {column} <> $1");
                tx.query_one(&sql, params![lease]).await?.get::<i64>(0)
            };
            Ok((count("mainstay_leases", "number").await?, count("mainstay_batches", "lease").await?))
        };
        until_ok(async || self.store.read_with(self.engine.lease(), read).await).await
    }

    /// Waits until others have leases, or none.
    async fn until_others(&self, have_leases: bool) {
        let waiting = async {
            while (self.others().await.0 > 0) != have_leases {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(waited.is_ok(), "others have leases: {:?}, wanted: {have_leases}", self.others().await);
    }

    /// Stops the other node while it has something to work at, however seldom that is.
    async fn catch(&self) {
        let catching = async {
            loop {
                self.until_others(true).await;
                until_more_ended(&self.store, 20).await;
                self.child.stop().unwrap();
                if self.others().await.1 > 0 {
                    return;
                }
                self.child.cont().unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, catching).await.expect("it never has anything");
    }

    /// Pauses the other node while it works, until all that it had was taken from it.
    async fn pause(&self) {
        self.catch().await;
        self.until_others(false).await;
        until_more_ended(&self.store, 60).await;
        self.child.cont().unwrap();
    }

    /// Lets everything that was enqueued end, and looks for what is wrong.
    async fn check(&mut self, load: Load, patience: Duration) -> Verdict {
        self.done.extend(load.stop().await);
        if !is_drained_within(&self.work, patience).await {
            return Err(format!("something never ends: {:?}", self.work.depth(POOL).await));
        }
        let found = Found::load(&self.store).await;
        println!("{:?}", found.tally());
        found.check(&self.done, Actions::Late)
    }
}

#[test]
fn a_node_paused_beyond_its_lease_ends_nothing_twice() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let mut pair = Pair::start(&place, true).await;
        // What goes wrong should not be looked for among too much.
        let (rounds, pauses) = if is_long() { (10, 20) } else { (1, 6) };
        for round in 0..rounds {
            let load = pair.load(round);
            for _ in 0..pauses {
                pair.pause().await;
            }
            let verdict = pair.check(load, PATIENCE).await;
            verdict.unwrap_or_else(|wrong| panic!("round {round}: {wrong}"));
        }
    });
}

/// The same without the fence on the node that is paused: that must be seen.
#[test]
#[cfg(debug_assertions)]
fn a_paused_node_without_the_fence_is_found_out() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let mut pair = Pair::start(&place, false).await;
        for round in 0..40 {
            let load = pair.load(round);
            pair.pause().await;
            pair.until_others(true).await;
            if let Err(wrong) = pair.check(load, Duration::from_secs(5)).await {
                return println!("found after {} pauses: {wrong}", round + 1);
            }
        }
        panic!("nobody noticed");
    });
}

// --- a lease that is taken away ---------------------------------------------------------------------------------

/// Lets executions begin, and wait until they may end.
#[derive(Clone, Default)]
struct Gate {
    begun: watch::Sender<usize>,
    is_open: watch::Sender<bool>,
}

impl Gate {
    async fn pass(&self) {
        self.begun.send_modify(|begun| *begun += 1);
        drop(self.is_open.subscribe().wait_for(|is_open| *is_open).await);
    }

    async fn until_begun(&self, count: usize) {
        let mut begun = self.begun.subscribe();
        let waited = tokio::time::timeout(PATIENCE, begun.wait_for(|begun| *begun >= count)).await.map(drop);
        assert!(waited.is_ok(), "{} of {count} have begun", *self.begun.borrow());
    }

    fn open(&self) {
        self.is_open.send_replace(true);
    }
}

/// The node itself is the first to notice, and works on under a new lease while what it had under the old one still runs.
#[test]
fn what_ran_under_a_lost_lease_is_dropped_and_done_again() {
    for_each_store(async |place| {
        let (store, gate) = (open_store(place.options()).await, Gate::default());
        let passing = gate.clone();
        let functions = functions(&store).action("pass", move |call: Call, (): ()| {
            let gate = passing.clone();
            async move {
                gate.pass().await;
                Ok::<_, Failure>(call.attempt)
            }
        });
        let work = Work::open(&store, functions).await.unwrap();
        work.pool(Pool::new(POOL).retry(RetryPolicy::new(5, 1, 1.0, 1).unwrap())).await.unwrap();
        let new = || NewWork::new(POOL, "pass", &()).unwrap().on_complete("told", &()).unwrap();
        let enqueued = work.enqueue_all(vec![new(), new().key("k"), new().key("k")]).await.unwrap();
        let engine = work.start().await.unwrap();
        gate.until_begun(2).await;
        let lost = engine.lease();
        let take_away = async |tx: Tx| tx.execute("UPDATE mainstay_leases SET until_ms = 0", &[]).await;
        store.transact(take_away).await.unwrap();
        engine.look_around();
        gate.until_begun(4).await;
        assert_ne!(engine.lease(), lost);
        gate.open();
        drained(&work).await;
        for (enqueued, attempts) in enqueued.iter().zip([2, 2, 1]) {
            let status = work.status(&enqueued.work_id).await.unwrap().unwrap();
            assert_eq!((status.native, status.attempts), (Native::Success, attempts));
        }
        engine.stop(PATIENCE).await.unwrap();
        let found = Found::load(&store).await;
        found.check(&[], Actions::InOrder).unwrap_or_else(|wrong| panic!("{wrong}"));
    });
}

/// The lease is lost while mutations are under way: those that had begun are ended by their commit, and what the node
/// still has in its queue is not its own any more.
#[test]
fn a_lease_lost_under_mutations_ends_none_of_them_twice_and_cancels_none() {
    /// More than are ended in one transaction.
    const MANY: i64 = 250;
    for_each_kind(&[Kind::Postgres], async |place| {
        let (store, doorman) = (open_store(place.options()).await, Doorman::new(&place).await);
        let functions = functions(&store).mutation("knock", async |tx: Tx, _: Call, door: i64| {
            tx.query("SELECT pg_advisory_xact_lock($1)", params![door]).await.map(drop)
        });
        let work = Work::open(&store, functions).await.unwrap();
        work.pool(Pool::new(POOL).max_parallelism(500)).await.unwrap();
        let knock = |door: i64| NewWork::new(POOL, "knock", &door).unwrap().on_complete("told", &()).unwrap();
        doorman.shut(1).await;
        doorman.shut(2).await;
        let engine = work.start().await.unwrap();
        // These two end together, and the second has not begun when the lease is lost.
        let mut enqueued = work.enqueue_all(vec![knock(1), knock(-1)]).await.unwrap();
        doorman.until_waiting(1).await;
        // These were taken, and wait for their turn.
        let many = (0..MANY).map(put).chain([knock(2)]);
        enqueued.extend(work.enqueue_all(many.rev().collect()).await.unwrap());
        until_depth(&work, |depth| depth.running == MANY as u64 + 3).await;
        let lost = engine.lease();
        let take_away = async |tx: Tx| tx.execute("UPDATE mainstay_leases SET until_ms = 0", &[]).await;
        store.transact(take_away).await.unwrap();
        engine.look_around();
        until(|| engine.lease() != lost).await;
        doorman.open(1).await;
        doorman.until_waiting(1).await;
        until_gone(&store, lost).await;
        doorman.open(2).await;
        drained(&work).await;
        for enqueued in &enqueued {
            let status = work.status(&enqueued.work_id).await.unwrap().unwrap();
            assert_eq!((status.native, status.attempts), (Native::Success, 1));
        }
        engine.stop(PATIENCE).await.unwrap();
        let found = Found::load(&store).await;
        found.check(&[], Actions::InOrder).unwrap_or_else(|wrong| panic!("{wrong}"));
    });
}

async fn until_depth(work: &Work, is_reached: impl Fn(Depth) -> bool) {
    let waiting = async {
        while !work.depth(POOL).await.is_ok_and(&is_reached) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "{:?}", work.depth(POOL).await);
}

/// Waits until what was taken under a lease was taken back.
async fn until_gone(store: &Store, lease: i64) {
    let count = async |tx: Tx, lease: i64| {
        let sql = "SELECT count(*) FROM mainstay_leases WHERE number = $1";
        tx.query_one(sql, params![lease]).await?.get::<i64>(0)
    };
    let waiting = async {
        while store.read_with(lease, count).await.unwrap() > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("nobody takes back what was lost");
}

// --- places that nodes share ------------------------------------------------------------------------------------

const AT_ONCE: usize = 6;

/// How many run at this moment, over all nodes, and how many have run on each.
#[derive(Clone, Default)]
struct Census(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    running: usize,
    most: usize,
    of_node: BTreeMap<&'static str, usize>,
}

impl Census {
    /// What has run since it was asked last: the most at once, and how many on each node.
    fn take(&self) -> (usize, BTreeMap<&'static str, usize>) {
        let mut counts = self.0.lock().unwrap();
        let running = counts.running;
        (std::mem::replace(&mut counts.most, running), std::mem::take(&mut counts.of_node))
    }

    /// A node with the functions `shared` and one that only it knows, which carries its name.
    async fn node(&self, place: &Place, name: &'static str) -> Work {
        // Nobody is paused here, so nothing need be taken from anybody before long.
        let store = open_store(Options::new(place.url()).connections(4)).await;
        let count = |census: Self| {
            move |_: Call, ms: u64| {
                let census = census.clone();
                async move {
                    {
                        let mut counts = census.0.lock().unwrap();
                        counts.running += 1;
                        counts.most = counts.most.max(counts.running);
                        *counts.of_node.entry(name).or_default() += 1;
                    }
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                    census.0.lock().unwrap().running -= 1;
                    Ok::<_, Failure>(())
                }
            }
        };
        let functions =
            Functions::new().action("shared", count(self.clone())).action(name, count(self.clone()));
        let work = Work::open(&store, functions).await.unwrap();
        work.pool(Pool::new(POOL).max_parallelism(AT_ONCE as u32)).await.unwrap();
        work
    }
}

async fn enqueue(work: &Work, function: &str, count: usize, ms: u64) {
    let items = (0..count).map(|_| NewWork::new(POOL, function, &ms).unwrap()).collect();
    work.enqueue_all(items).await.unwrap();
}

/// Less than what passes before somebody looks by itself who was not told.
const SOON: Duration = Duration::from_secs(7);

/// Waits until all is done, and asks what ran at once and where.
async fn counted(census: &Census, work: &Work) -> (usize, BTreeMap<&'static str, usize>) {
    assert!(is_drained_within(work, SOON).await, "somebody was not told: {:?}", work.depth(POOL).await);
    census.take()
}

#[test]
fn b_263_nodes_share_a_pool_and_never_exceed_it() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let census = Census::default();
        let (here, there) = (census.node(&place, "here").await, census.node(&place, "there").await);
        let here_engine = here.start().await.unwrap();
        // Alone, beside nobody.
        enqueue(&here, "shared", 60, 10).await;
        assert_eq!(counted(&census, &here).await, (AT_ONCE, BTreeMap::from([("here", 60)])));
        // The other comes when all places are taken, and has its share before long.
        enqueue(&here, "shared", 300, 30).await;
        until(|| census.0.lock().unwrap().running == AT_ONCE).await;
        let there_engine = there.start().await.unwrap();
        until(|| census.0.lock().unwrap().of_node.contains_key("there")).await;
        census.take();
        let (most, of_node) = counted(&census, &here).await;
        println!("{most} at once, {of_node:?}");
        assert_eq!(most, AT_ONCE);
        let (ours, theirs) = (of_node["here"], of_node["there"]);
        assert!(ours * 3 > theirs && theirs * 3 > ours, "{of_node:?}");
        // One has nothing to do, though it looks: all places are the other's.
        for (busy, name) in [(&here, "here"), (&there, "there")] {
            enqueue(busy, name, 60, 10).await;
            assert_eq!(counted(&census, busy).await, (AT_ONCE, BTreeMap::from([(name, 60)])));
        }
        // Both have something that the other cannot do, one of them little: the other gets its places back.
        enqueue(&here, "here", 12, 10).await;
        enqueue(&there, "there", 300, 20).await;
        until(|| census.0.lock().unwrap().of_node.get("here") == Some(&12)).await;
        assert!(census.take().0 <= AT_ONCE);
        let (most, of_node) = counted(&census, &there).await;
        assert_eq!((most, of_node.contains_key("here")), (AT_ONCE, false));
        here_engine.stop(PATIENCE).await.unwrap();
        there_engine.stop(PATIENCE).await.unwrap();
    });
}

/// Waits for something that nobody tells of.
async fn until(is_reached: impl Fn() -> bool) {
    let waiting = async {
        while !is_reached() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("it never came to that");
}
