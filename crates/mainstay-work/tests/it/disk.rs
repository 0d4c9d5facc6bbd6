//! A disk that is full, or fails, for a while under work: nobody is told that something was done which was not, nothing is
//! lost or doubled, and work goes on by itself when there is room again.

use crate::crash::Home;
use crate::ledger::{
    Actions, Done, Found, Load, PATIENCE, POOL, any_item, block_on, drained, functions, is_long, open_shop,
    open_store, put, until_more_ended, with_tables,
};
use mainstay_core::random::SeededRandom;
use mainstay_store::Options;
use mainstay_testkit::crash::{self, Child, Running};
use mainstay_testkit::disk::{self, Counts, Disk, Fault};
use mainstay_testkit::postgres::Doorman;
use mainstay_testkit::stores::{Kind, for_each_kind};
use mainstay_work::{Engine, Error, Pool, RetryPolicy, Work};
use std::time::Duration;

/// Longer than any fault here lasts.
const LEASE: Duration = Duration::from_secs(15);

// --- SQLite: the k-th write or sync fails, and some that follow -------------------------------------------------

const CALLS: i64 = 12;
/// How often is tried what must succeed once the fault has passed.
const ATTEMPTS: usize = 100;
/// Writes or syncs that fail before the disk is well again.
const FAILURES: [u64; 2] = [6, 1];

/// Enqueues and works on a disk that fails for a while, and must come through it.
#[test]
fn child_works_on_a_failing_disk() {
    if !crash::is_child() {
        return;
    }
    block_on(async {
        let file = disk::root().unwrap().join("store.db");
        let (work, engine) = in_the_end(async || open(&format!("sqlite:{}", file.display())).await).await;
        let random = SeededRandom::new(7);
        for number in 0..CALLS {
            let items = (0..3).map(|one| any_item(&random, "key", number * 3 + one)).collect();
            match work.enqueue_all(items).await {
                Ok(enqueued) => {
                    crash::ack(Done::Enqueued(enqueued.into_iter().map(|one| one.work_id).collect()));
                }
                Err(error) => crash::say(format_args!("refused {}", error.code())),
            }
            // So that a fault may strike between any two steps.
            while work.depth(POOL).await.is_ok_and(|depth| depth.pending > 1) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        drained(&work).await;
        crash::say(format_args!("endured {}", work.figures().store_failures.get()));
        // What it cannot give back is found by whoever comes next.
        if let Err(error) = engine.stop(PATIENCE).await {
            crash::say(format_args!("stopped {}", error.code()));
        }
        work.store().clone().close().await;
    });
}

async fn open(url: &str) -> Result<(Work, Engine), Error> {
    let store = with_tables(Options::new(url)).open().await?;
    let work = Work::open_with_lease(&store, functions(&store), LEASE).await?;
    work.pool(Pool::new(POOL).max_parallelism(8).retry(RetryPolicy::new(20, 1, 1.0, 10).unwrap())).await?;
    let engine = work.start().await?;
    Ok((work, engine))
}

async fn in_the_end<T>(attempt: impl AsyncFn() -> Result<T, Error>) -> T {
    for _ in 0..ATTEMPTS {
        if let Ok(value) = attempt().await {
            return value;
        }
    }
    attempt().await.unwrap_or_else(|error| panic!("{error}"))
}

#[derive(Debug, Default)]
struct Tally {
    runs: usize,
    refused: usize,
    endured: u64,
}

impl Tally {
    fn add(&mut self, child: &Running) {
        self.runs += 1;
        for said in child.said() {
            self.refused += usize::from(said.starts_with("refused STORE_"));
            self.endured += said.strip_prefix("endured ").map_or(0, |count| count.parse::<u64>().unwrap());
        }
    }
}

fn run(home: &mut Home, disk: &Disk) -> Running {
    let mut child = Child::of("disk::child_works_on_a_failing_disk").disk(disk).spawn().unwrap();
    child.wait_for_success(PATIENCE).unwrap();
    home.note(&child);
    child
}

fn disk_of(home: &Home) -> Disk {
    Disk::new(home.place.folder().unwrap())
}

/// How much an undisturbed run asks of the disk.
fn undisturbed() -> Counts {
    let (mut home, counting) = (Home::new(Kind::SqliteFile), tempfile::tempdir().unwrap());
    let count = counting.path().join("count");
    let disk = disk_of(&home).count(&count);
    run(&mut home, &disk);
    home.checked().unwrap();
    disk::counts(count).unwrap()
}

fn strike(fault: impl Fn(u64) -> Fault, last: u64) -> Tally {
    let mut tally = Tally::default();
    let step = if is_long() { 3 } else { last.div_ceil(6) };
    for (round, first) in (1..=last).step_by(step as usize).enumerate() {
        let fault = fault(first).times(FAILURES[round % FAILURES.len()]);
        let mut home = Home::new(Kind::SqliteFile);
        let disk = disk_of(&home).fault(fault);
        let child = run(&mut home, &disk);
        home.checked().unwrap_or_else(|wrong| panic!("{fault}: {wrong}\n{:#?}", child.said()));
        tally.add(&child);
    }
    tally
}

#[test]
fn a_full_disk_under_work_on_sqlite_is_outlived() {
    let tally = strike(Fault::enospc, undisturbed().writes);
    println!("ENOSPC: {tally:?}");
    assert!(tally.endured > 0, "{tally:?}");
}

#[test]
fn a_disk_that_fails_under_work_on_sqlite_is_outlived() {
    let Counts { writes, syncs } = undisturbed();
    let (of_writes, of_syncs) = (strike(Fault::eio, writes), strike(Fault::eio_sync, syncs));
    println!("EIO: {of_writes:?}; EIO at a sync: {of_syncs:?}");
    assert!(of_writes.endured > 0 && of_syncs.endured > 0, "{of_writes:?} {of_syncs:?}");
}

// --- PostgreSQL: the server says that there is no room ----------------------------------------------------------

#[test]
fn a_full_disk_under_work_on_postgres_is_outlived() {
    const TABLES: [&str; 4] =
        ["mainstay_work", "mainstay_batches", "mainstay_ended", "mainstay_pool_changes"];
    for_each_kind(&[Kind::Postgres], async |place| {
        let (store, doorman) = (open_store(place.options()).await, Doorman::new(&place).await);
        let work = open_shop(&store, LEASE).await;
        let engine = work.start().await.unwrap();
        // Whatever it is that finds no room: enqueueing, taking, ending, the effect of a mutation or who is told.
        let of_authors = ["effects", "told", "steps"];
        let rounds: [(&[&str], bool); 3] = [(&TABLES, false), (&TABLES[2..3], true), (&of_authors, false)];
        for (round, (tables, is_seen_late)) in rounds.into_iter().enumerate() {
            let load = Load::start(&[work.clone(), work.clone()], round as i64);
            until_more_ended(&store, 20).await;
            let before = work.figures().store_failures.get();
            doorman.fill_disk(tables, is_seen_late).await;
            let failing = async {
                while work.figures().store_failures.get() < before + 2 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(PATIENCE, failing).await.expect("nobody notices");
            if tables.contains(&"mainstay_work") {
                assert_eq!(work.enqueue(put(0)).await.unwrap_err().code(), "STORE_DISK_FULL");
            }
            doorman.make_room(tables).await;
            until_more_ended(&store, 20).await;
            let done = load.stop().await;
            drained(&work).await;
            let found = Found::load(&store).await;
            println!("{tables:?}: {} calls acknowledged, {:?}", done.len(), found.tally());
            found.check(&done, Actions::InOrder).unwrap_or_else(|wrong| panic!("{wrong}"));
        }
        assert_eq!(work.figures().lost.get(), 0, "a lease is kept without any room");
        engine.stop(PATIENCE).await.unwrap();
    });
}
