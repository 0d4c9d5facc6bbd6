//! Processes that die while they write: by `kill -9` under load, and at each step of a commit.

use crate::pairs::{self, Found, block_on, is_long};
use mainstay_store::{Options, Store, Tx};
use mainstay_testkit::crash::{self, Child, Running};
use mainstay_testkit::stores::{Kind, Place};
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const SIGABRT: i32 = 6;
const TASKS: i64 = 16;
/// Numbers that one cycle may use.
const NUMBERS_PER_CYCLE: i64 = 1_000_000_000;
const NUMBERS_PER_TASK: i64 = NUMBERS_PER_CYCLE / TASKS;

const URL: &str = "TEST_URL";
const FIRST: &str = "TEST_FIRST";
const FAILPOINTS: &str = "MAINSTAY_FAILPOINTS";

fn child(test: &str, place: &Place, first: i64) -> Child {
    Child::of(test).env(URL, place.url()).env(FIRST, first.to_string())
}

async fn open_in_child() -> (Store, i64) {
    let store = Options::new(std::env::var(URL).unwrap()).connections(4).open().await.unwrap();
    (store, std::env::var(FIRST).unwrap().parse().unwrap())
}

fn acknowledged(child: &Running) -> Vec<i64> {
    child.acknowledged().iter().map(|id| id.parse().unwrap()).collect()
}

/// A place whose tables are there.
fn prepared(kind: Kind) -> Place {
    let place = Place::new(kind);
    block_on(async {
        let store = place.open().await;
        pairs::create_tables(&store).await.unwrap();
        store.close().await;
    });
    place
}

/// Opens the place again after a death, and looks for what one cycle wrote.
fn reopened(place: &Place, first: i64) -> Found {
    let found = block_on(async {
        let store = place.open().await;
        let found = Found::load(&store, first).await.unwrap();
        store.close().await;
        found
    });
    if let Some(file) = place.file() {
        pairs::check_integrity(&file).unwrap();
    }
    found
}

// --- kill -9 under load -----------------------------------------------------------------------------------------

#[test]
fn child_inserts_in_many_tasks() {
    if !crash::is_child() {
        return;
    }
    block_on(async {
        let (store, first) = open_in_child().await;
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..TASKS {
            let store = store.clone();
            tasks.spawn(async move {
                for id in first + task * NUMBERS_PER_TASK.. {
                    pairs::insert(&store, id, "filling").await.unwrap();
                    crash::ack(id);
                }
            });
        }
        // They end only by failing.
        tasks.join_next().await.unwrap().unwrap();
    });
}

/// Kills and looks again and again, on the same database. Returns how many acknowledgements were checked.
fn survive_kills(place: &Place, cycles: i64) -> usize {
    let mut everything = Vec::new();
    for cycle in 0..cycles {
        let first = cycle * NUMBERS_PER_CYCLE;
        let mut child = child("crash::child_inserts_in_many_tasks", place, first).spawn().unwrap();
        // At once, while it opens the store, or after more or less work: not always at the same moment.
        match cycle % 5 {
            0 => drop(child.wait_for("started", PATIENCE).unwrap()),
            several => child.wait_for_acks((several * several * 100) as usize, PATIENCE).unwrap(),
        }
        child.kill9().unwrap();
        let acknowledged = acknowledged(&child);
        if let Err(wrong) = reopened(place, first).check(&acknowledged) {
            panic!("cycle {cycle}: {wrong}");
        }
        everything.extend(acknowledged);
    }
    // A later cycle may have destroyed what an earlier one left.
    reopened(place, 0).check(&everything).unwrap();
    everything.len()
}

fn report_kills(kind: Kind, cycles: i64) {
    let began = Instant::now();
    let acknowledged = survive_kills(&prepared(kind), cycles);
    println!("{kind}: {cycles} kills, {acknowledged} acknowledged, none lost, {:.1?}", began.elapsed());
}

#[test]
fn kill_9_under_load_loses_nothing_on_sqlite() {
    report_kills(Kind::SqliteFile, if is_long() { 500 } else { 20 });
}

#[test]
fn kill_9_under_load_loses_nothing_on_postgres() {
    report_kills(Kind::Postgres, if is_long() { 50 } else { 5 });
}

// --- faults that the check must find ----------------------------------------------------------------------------

/// Promises too early: inside of the transaction.
#[test]
fn child_acknowledges_before_the_commit() {
    if !crash::is_child() {
        return;
    }
    block_on(async {
        let (store, first) = open_in_child().await;
        for id in first.. {
            let work = async |tx: Tx, id: i64| {
                pairs::insert_left(&tx, id, "").await?;
                pairs::insert_right(&tx, id, "").await?;
                crash::ack(id);
                Ok(())
            };
            store.transact_with(id, work).await.unwrap();
        }
    });
}

/// Tears its pairs: a transaction for each half.
#[test]
fn child_inserts_by_halves() {
    if !crash::is_child() {
        return;
    }
    block_on(async {
        let (store, first) = open_in_child().await;
        for id in first.. {
            store.transact_with(id, async |tx, id| pairs::insert_left(&tx, id, "").await).await.unwrap();
            store.transact_with(id, async |tx, id| pairs::insert_right(&tx, id, "").await).await.unwrap();
            crash::ack(id);
        }
    });
}

#[test]
fn the_check_finds_what_a_faulty_program_loses() {
    for kind in [Kind::SqliteFile, Kind::Postgres] {
        let place = prepared(kind);
        let early = die_at(&place, "crash::child_acknowledges_before_the_commit", 0, "store.commit=abort@7");
        let wrong = reopened(&place, 0).check(&acknowledged(&early)).unwrap_err();
        assert_eq!(wrong, "6 was acknowledged and is lost", "{kind}");

        let place = prepared(kind);
        let torn = die_at(&place, "crash::child_inserts_by_halves", 0, "store.commit=abort@8");
        let wrong = reopened(&place, 0).check(&acknowledged(&torn)).unwrap_err();
        assert_eq!(wrong, "there is half of 3", "{kind}");
    }
}

// --- death at each step of a commit -----------------------------------------------------------------------------

/// Runs a child that a failpoint ends.
fn die_at(place: &Place, test: &str, first: i64, failpoint: &str) -> Running {
    let mut child = child(test, place, first).env(FAILPOINTS, failpoint).spawn().unwrap();
    let status = child.wait(PATIENCE).unwrap();
    assert_eq!(status.signal(), Some(SIGABRT), "{failpoint} strikes: {:?}", child.said());
    child
}

#[test]
fn child_inserts_one_after_another() {
    if !crash::is_child() {
        return;
    }
    block_on(async {
        let (store, first) = open_in_child().await;
        for id in first.. {
            pairs::insert(&store, id, "").await.unwrap();
            crash::ack(id);
        }
    });
}

#[test]
fn a_death_before_the_commit_leaves_nothing_and_one_after_it_leaves_everything() {
    for kind in [Kind::SqliteFile, Kind::Postgres] {
        let place = prepared(kind);
        let mut first = 0;
        for (point, is_committed) in
            [("store.begin", false), ("store.commit", false), ("store.committed", true)]
        {
            // PostgreSQL begins with the first statement.
            if kind == Kind::Postgres && point == "store.begin" {
                continue;
            }
            for nth in [1, 2, 17] {
                let failpoint = format!("{point}=abort@{nth}");
                let child = die_at(&place, "crash::child_inserts_one_after_another", first, &failpoint);
                let last = first + nth - 1;
                assert_eq!(acknowledged(&child), Vec::from_iter(first..last), "{kind}, {failpoint}");
                let found = reopened(&place, first);
                found.check(&acknowledged(&child)).unwrap();
                assert_eq!(found.contains(last), is_committed, "{kind}, {failpoint}");
                first += 100;
            }
        }
    }
}

/// Holds the writer with one transaction until the others wait behind it, so that they share the next commit.
async fn hold_the_writer(store: Store, is_held: Arc<tokio::sync::Notify>) {
    let work = async |tx: Tx, (store, is_held): (Store, Arc<tokio::sync::Notify>)| {
        tx.query("SELECT count(*) FROM lefts", &[]).await?;
        is_held.notify_one();
        while store.figures().in_flight.get() <= TASKS {
            std::thread::yield_now();
        }
        Ok(())
    };
    store.transact_with((store.clone(), is_held), work).await.unwrap();
}

#[test]
fn child_inserts_in_a_group() {
    if !crash::is_child() {
        return;
    }
    block_on(async {
        let (store, first) = open_in_child().await;
        let is_held = Arc::new(tokio::sync::Notify::new());
        let mut group = tokio::task::JoinSet::new();
        group.spawn(hold_the_writer(store.clone(), is_held.clone()));
        is_held.notified().await;
        for id in first..first + TASKS {
            let store = store.clone();
            group.spawn(async move {
                let work = async |tx: Tx, id: i64| {
                    pairs::insert_left(&tx, id, "").await?;
                    pairs::insert_right(&tx, id, "").await?;
                    crash::say(format_args!("member {id}"));
                    Ok(())
                };
                store.transact_with(id, work).await.unwrap();
                crash::ack(id);
            });
        }
        group.join_all().await;
    });
}

#[test]
fn a_death_in_a_shared_commit_takes_all_of_the_group_or_nothing() {
    let place = prepared(Kind::SqliteFile);
    for (first, point, is_committed) in [(0, "store.commit", false), (100, "store.committed", true)] {
        let child = die_at(&place, "crash::child_inserts_in_a_group", first, &format!("{point}=abort@2"));
        let said = child.said();
        let members = said.iter().filter_map(|said| said.strip_prefix("member "));
        let members: Vec<i64> = members.map(|id| id.parse().unwrap()).collect();
        assert!(members.len() > 1, "{point}: no group was formed: {said:?}");
        let found = reopened(&place, first);
        found.check(&acknowledged(&child)).unwrap();
        for id in members {
            assert_eq!(found.contains(id), is_committed, "{point}, member {id}");
        }
    }
}

// --- opening after a death --------------------------------------------------------------------------------------

const ROWS: i64 = 1_000_000;
const ROWS_PER_TRANSACTION: i64 = 50_000;

/// Fills a table while a read is open, so that the write-ahead log cannot be cleared and holds all of it.
#[test]
fn child_leaves_a_million_rows_in_the_log() {
    if !crash::is_child() {
        return;
    }
    block_on(async {
        let (store, _) = open_in_child().await;
        let reader = store.clone();
        let (is_reading, reading) = std::sync::mpsc::channel();
        tokio::task::spawn_blocking(move || {
            let read = move |tx: Tx| {
                let is_reading = is_reading.clone();
                async move {
                    tx.query("SELECT count(*) FROM lefts", &[]).await?;
                    is_reading.send(()).unwrap();
                    loop {
                        std::thread::park();
                    }
                }
            };
            let _: mainstay_store::Result<()> = tokio::runtime::Handle::current().block_on(reader.read(read));
        });
        tokio::task::spawn_blocking(move || reading.recv().unwrap()).await.unwrap();
        for first in (0..ROWS).step_by(ROWS_PER_TRANSACTION as usize) {
            let fill = async |tx: Tx, first: i64| {
                let rows = "WITH RECURSIVE n (id) AS (SELECT $1 UNION ALL SELECT id + 1 FROM n WHERE id < $2) \
                            INSERT INTO lefts (id, filling) SELECT id, 'row ' || id FROM n";
                tx.execute(rows, mainstay_store::params![first, first + ROWS_PER_TRANSACTION - 1]).await
            };
            store.transact_with(first, fill).await.unwrap();
        }
        crash::ack(ROWS);
        std::future::pending::<()>().await;
    });
}

/// A second is the promise. It is held where nothing runs beside this; elsewhere only what grows without bounds is
/// noticed.
fn opens_within() -> Duration {
    Duration::from_secs(if is_long() { 1 } else { 10 })
}

#[test]
fn opening_after_a_crash_with_a_million_rows_takes_less_than_a_second() {
    let place = prepared(Kind::SqliteFile);
    let mut child = child("crash::child_leaves_a_million_rows_in_the_log", &place, 0).spawn().unwrap();
    child.wait_for_acks(1, PATIENCE).unwrap();
    child.kill9().unwrap();
    let log_bytes = std::fs::metadata(place.folder().unwrap().join("store.db-wal")).unwrap().len();
    let (took, rows) = block_on(async {
        let began = Instant::now();
        let store = place.open().await;
        let took = began.elapsed();
        let count = async |tx: Tx| tx.query_one("SELECT count(*) FROM lefts", &[]).await?.get::<i64>(0);
        let rows = store.read(count).await.unwrap();
        store.close().await;
        (took, rows)
    });
    println!("opening {ROWS} rows, {} MiB of them in the log: {took:.1?}", log_bytes >> 20);
    assert_eq!(rows, ROWS);
    assert!(took < opens_within(), "opening took {took:?}");
}
