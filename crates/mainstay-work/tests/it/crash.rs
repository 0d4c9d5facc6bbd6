//! Processes that die while they enqueue and work: by `kill -9` under load, and at each step of a commit.
//!
//! After many deaths a process that lives does what is left: everything that was acknowledged has ended, once, and
//! nothing was done twice.

use crate::ledger::{
    Actions, Done, Found, PATIENCE, Verdict, any_item, block_on, drained, enqueue_items, is_long, open_shop,
    open_store,
};
use mainstay_core::failpoints::{Action, Point};
use mainstay_core::random::{Random, SeededRandom};
use mainstay_store::{Options, Tx};
use mainstay_testkit::crash::{self, Child, Running};
use mainstay_testkit::stores::{Kind, Place};
use mainstay_work::Work;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

const SIGABRT: i32 = 6;
/// Each has a key of its own.
const WRITERS: u64 = 4;
/// Numbers that one cycle may use.
const PER_CYCLE: i64 = 1_000_000;
/// On PostgreSQL nobody takes up what a dead node had before this is over.
const LEASE: Duration = Duration::from_millis(400);

const URL: &str = "TEST_URL";
const CYCLE: &str = "TEST_CYCLE";
const FAILPOINTS: &str = "MAINSTAY_FAILPOINTS";

#[test]
fn child_enqueues_and_works() {
    if !crash::is_child() {
        return;
    }
    block_on(async {
        let cycle: u64 = std::env::var(CYCLE).unwrap().parse().unwrap();
        let store = open_store(Options::new(std::env::var(URL).unwrap()).connections(4)).await;
        let work = open_shop(&store, LEASE).await;
        let _engine = work.start().await.unwrap();
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let work = work.clone();
            writers.spawn(async move {
                let random = SeededRandom::new(cycle * WRITERS + writer);
                let tell = |done: Done| {
                    crash::ack(done);
                    true
                };
                enqueue_items(&work, &format!("key {writer}"), cycle as i64 * PER_CYCLE, &random, tell).await;
            });
        }
        // They never end.
        writers.join_next().await.unwrap().unwrap();
    });
}

/// A shop that outlives those who work in it.
pub(crate) struct Home {
    pub(crate) place: Place,
    done: Vec<Done>,
}

impl Home {
    pub(crate) fn new(kind: Kind) -> Self {
        let home = Self { place: Place::new(kind), done: Vec::new() };
        block_on(async { open_store(home.place.options()).await.close().await });
        home
    }

    fn child(&self, cycle: u64) -> Child {
        self.child_of("child_enqueues_and_works", cycle)
    }

    fn child_of(&self, test: &str, cycle: u64) -> Child {
        let child = Child::of(format!("crash::{test}"));
        child.env(URL, self.place.url()).env(CYCLE, cycle.to_string())
    }

    pub(crate) fn note(&mut self, child: &Running) {
        self.done.extend(child.acknowledged().iter().map(|text| Done::parse(text)));
    }

    /// Lets a process that lives do what is left, and looks for what is wrong.
    pub(crate) fn checked(&self) -> Verdict {
        block_on(async {
            let store = open_store(self.place.options()).await;
            let work = open_shop(&store, LEASE).await;
            let engine = work.start().await.unwrap();
            drained(&work).await;
            engine.stop(PATIENCE).await.unwrap();
            let found = Found::load(&store).await;
            store.close().await;
            println!("{}: {:?}", self.place.kind(), found.tally());
            found.check(&self.done, Actions::InOrder)
        })
    }

    fn check(&self) {
        self.checked().unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

fn survive_kills(kind: Kind, cycles: u64) {
    let (mut home, random, began) = (Home::new(kind), SeededRandom::new(cycles), Instant::now());
    for cycle in 0..cycles {
        let mut child = home.child(cycle).spawn().unwrap();
        // At once, while it opens the shop, or after more or less work.
        let several = random.below(5);
        match several {
            0 => drop(child.wait_for("started", PATIENCE).unwrap()),
            _ => child.wait_for_acks(1 + random.below(several * several * 16) as usize, PATIENCE).unwrap(),
        }
        child.kill9().unwrap();
        home.note(&child);
        if cycle % 10 == 9 {
            home.check();
        }
    }
    home.check();
    println!("{kind}: {cycles} kills, {} calls acknowledged, {:.1?}", home.done.len(), began.elapsed());
}

#[test]
fn kill_9_under_load_loses_and_doubles_nothing_on_sqlite() {
    survive_kills(Kind::SqliteFile, if is_long() { 500 } else { 20 });
}

#[test]
fn kill_9_under_load_loses_and_doubles_nothing_on_postgres() {
    survive_kills(Kind::Postgres, if is_long() { 500 } else { 20 });
}

/// Every transaction of the workshop is cut off at its commit now and then: claims, ends, leases and the rest.
fn die_at_each_commit(kind: Kind, points: &[&str], passings: &[u64]) {
    let (mut home, mut cycle) = (Home::new(kind), 0);
    for point in points {
        for nth in passings {
            let failpoint = format!("{point}=abort@{nth}");
            let mut child = home.child(cycle).env(FAILPOINTS, &failpoint).spawn().unwrap();
            let status = child.wait(PATIENCE).unwrap();
            assert_eq!(status.signal(), Some(SIGABRT), "{failpoint} strikes: {:?}", child.said());
            home.note(&child);
            cycle += 1;
        }
    }
    home.check();
}

#[test]
fn a_death_at_any_commit_loses_and_doubles_nothing() {
    let passings: Vec<u64> = if is_long() { (1..=200).collect() } else { vec![9, 14, 21, 33, 58] };
    die_at_each_commit(Kind::SqliteFile, &["store.commit", "store.committed"], &passings);
    die_at_each_commit(Kind::Postgres, &["store.commit", "store.committed"], &passings);
}

// --- a fault that the check must find ---------------------------------------------------------------------------

/// Promises too early: inside of the transaction.
#[test]
fn child_acknowledges_before_the_commit() {
    if !crash::is_child() {
        return;
    }
    block_on(async {
        let store = open_store(Options::new(std::env::var(URL).unwrap()).connections(1)).await;
        let work = open_shop(&store, LEASE).await;
        let enqueue = async |tx: Tx, work: Work| {
            let receipt = work.enqueue_in(&tx, [any_item(&SeededRandom::new(1), "key", 1)])?;
            crash::ack(Done::Enqueued(receipt.work_ids().to_vec()));
            // The first thing that the transaction does, so that there is something to commit.
            tx.now_ms().await
        };
        store.failpoints().arm(Point::StoreCommit, Action::Abort, 0, 1);
        store.transact_with(work, enqueue).await.unwrap();
    });
}

#[test]
fn the_check_finds_what_a_faulty_program_loses() {
    for kind in [Kind::SqliteFile, Kind::Postgres] {
        let mut home = Home::new(kind);
        let mut child = home.child_of("child_acknowledges_before_the_commit", 0).spawn().unwrap();
        assert_eq!(child.wait(PATIENCE).unwrap().signal(), Some(SIGABRT), "{:?}", child.said());
        home.note(&child);
        let wrong = home.checked().unwrap_err();
        assert!(wrong.ends_with("was acknowledged and is lost"), "{kind}: {wrong}");
    }
}
