//! Processes that die at every step of a chunk, of a failure that is written down or tried again, of a replay from its
//! beginning to its switch or its cancellation, and right after the switch.
//!
//! After each death a process that lives does what is left: every event that was acknowledged is in the log, and every
//! read model is what the log makes of it, but for what is known to be missing.

use super::ended;
use crate::projections::support::{Bad, Bench, PATIENCE, at_once, components, noting_unless, until};
use mainstay_core::random::{Random, SeededRandom};
use mainstay_events::{Event, Selection};
use mainstay_flows::projections::failures::{LetterFilter, LetterStatus};
use mainstay_flows::projections::replay::Rebuild;
use mainstay_flows::projections::{By, Category, Model, Projection};
use mainstay_store::{Options, Tx, params};
use mainstay_testkit::crash::{self, Child};
use mainstay_testkit::stores::{Kind, Place};
use mainstay_work::{Functions, Pool};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

const SIGABRT: i32 = 6;
const URL: &str = "TEST_URL";
/// On PostgreSQL nobody takes up what a dead node had before this is over.
const LEASE: Duration = Duration::from_millis(400);
const NAMES: [&str; 2] = ["inPlace", "beside"];

/// The points, and how often they are passed at the most before the process dies.
const POINTS: [(&str, u64); 12] = [
    ("projections.applied", 6),
    ("projections.checkpoint", 6),
    ("projections.failure", 4),
    ("projections.retried", 3),
    ("replay.triggered", 4),
    ("replay.applied", 10),
    ("replay.advanced", 10),
    ("replay.switched", 3),
    ("replay.shown", 3),
    ("replay.cancelled", 3),
    ("store.commit", 100),
    ("store.committed", 100),
];

fn beside(bad: &Bad) -> Projection {
    let bad = bad.clone();
    Projection::new("beside", Category::View)
        .retry(at_once(2))
        .table("beside_rows", &["CREATE TABLE {table} (position BIGINT NOT NULL)"])
        .each(move |tx: Tx, model: Model, event: Event| {
            let bad = bad.clone();
            async move {
                let sql = format!("INSERT INTO {} (position) VALUES ($1)", model.table("beside_rows")?);
                tx.execute(&sql, params![event.position() as i64]).await?;
                bad.check(&event)
            }
        })
}

async fn open(url: &str, bad: &Bad) -> Bench {
    let store = components(Options::new(url).connections(4)).open().await.unwrap();
    let in_place = noting_unless("inPlace", bad).retry(at_once(2)).partitioned(2, By::Stream);
    let bench = Bench::leased(store, vec![in_place, beside(bad)], Functions::new(), LEASE).await;
    bench.work.pool(Pool::new("eventReplayPool").max_parallelism(5).retry(at_once(100))).await.unwrap();
    bench
}

#[test]
fn child_appends_projects_and_rebuilds() {
    if !crash::is_child() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let bad = Bad::texts(&["bad"]);
        let bench = open(&std::env::var(URL).unwrap(), &bad).await;
        let _running = bench.start().await;
        for round in 0_u64.. {
            for id in bench.append("Noted", &["fine", "fine", "bad", "fine", "fine"]).await {
                crash::ack(id);
            }
            for name in NAMES {
                // One that runs already is as good.
                let rebuild = Rebuild::of(name).from(0).chunk_size(10);
                let begun = bench.projections.trigger_rebuild(rebuild).await;
                if let (Ok(begun), true) = (begun, round % 3 == 1) {
                    // It may have ended.
                    drop(bench.projections.cancel_rebuild(&begun.replay_id).await);
                }
            }
            while !bench.projections.active_rebuilds().await.unwrap().is_empty() {
                crash::ack(&bench.append("Noted", &["fine"]).await[0]);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            // For a while everything can be taken.
            bad.mend();
            bench.projections.retry_all(LetterStatus::Pending, Some(2)).await.unwrap();
            idle(&bench).await;
            bad.spoil("bad");
        }
    });
}

/// Waits until no event is being tried again.
async fn idle(bench: &Bench) {
    until("nothing is tried again any more", async || {
        let depth = bench.work.depth("projectionPool").await.unwrap();
        depth.pending + depth.running == 0
    })
    .await;
}

async fn rows(bench: &Bench, name: &str) -> Vec<u64> {
    if name == "inPlace" {
        return bench.noted(name).await;
    }
    let read = async |tx: Tx| {
        let rows = tx.query("SELECT position FROM beside_rows ORDER BY position", &[]).await?;
        rows.iter().map(|row| row.get::<u64>(0)).collect::<mainstay_store::Result<Vec<_>>>()
    };
    bench.store.read(read).await.unwrap()
}

/// The positions of the letters that wait.
async fn lettered(bench: &Bench, name: &str) -> Vec<u64> {
    let (mut lettered, mut after) = (Vec::new(), None);
    loop {
        let filter = LetterFilter {
            projection: Some(name.to_owned()),
            status: Some(LetterStatus::Pending),
            after: after.take(),
            ..LetterFilter::default()
        };
        let page = bench.projections.letters(filter, 1_000).await.unwrap();
        let Some(last) = page.last() else { return lettered };
        after = Some((last.position, last.projection_name.clone()));
        lettered.extend(page.iter().map(|letter| letter.position));
    }
}

/// Lets a process that lives do what is left, and looks for what is wrong.
async fn check(url: &str, acknowledged: &[String]) {
    let bench = open(url, &Bad::texts(&["bad"])).await;
    let (projecting, engine) = bench.start().await;
    for replay in bench.projections.active_rebuilds().await.unwrap() {
        ended(&bench, &replay.replay_id).await;
    }
    let (mut all, mut bad, mut after) = (Vec::new(), Vec::new(), 0);
    let mut ids = std::collections::HashSet::new();
    loop {
        let page = bench.log.read(&Selection::all().after(after), 1_000).await.unwrap();
        for event in &page.events {
            ids.insert(event.id().to_owned());
            all.push(event.position());
            if event.data_as::<String>().unwrap() == "bad" {
                bad.push(event.position());
            }
        }
        let Some(next) = page.next else { break };
        after = next;
    }
    assert!(acknowledged.iter().all(|id| ids.contains(id)), "an acknowledged event is lost");
    for name in NAMES {
        bench.caught_up(name).await;
    }
    idle(&bench).await;
    for name in NAMES {
        let missing = lettered(&bench, name).await;
        assert!(missing.iter().all(|position| bad.contains(position)), "{name}: {missing:?}");
        let mut found = rows(&bench, name).await;
        found.extend(missing);
        found.sort_unstable();
        assert_eq!(found, all, "{name}");
    }
    println!("{url}: {} events, {} of them bad", all.len(), bad.len());
    projecting.stop(PATIENCE).await;
    engine.stop(PATIENCE).await.unwrap();
    bench.store.close().await;
}

/// Dies at every point, when a seed says so; a long run is another one every time.
fn die_at_each_step(kind: Kind) {
    let is_long = std::env::var_os("MAINSTAY_LONG").is_some();
    let given = std::env::var("MAINSTAY_SEED").ok().map(|seed| seed.parse().unwrap());
    let now = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let seed = given.unwrap_or_else(|| if is_long { now() } else { 6 });
    println!("on {kind} with MAINSTAY_SEED={seed}");
    let random = SeededRandom::new(seed);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for _ in 0..if is_long { 20 } else { 1 } {
        let (place, mut acknowledged) = (Place::new(kind), Vec::new());
        for (point, passings) in POINTS {
            let failpoint = format!("{point}=abort@{}", 1 + random.below(passings));
            let child = Child::of("replay::crash::child_appends_projects_and_rebuilds").env(URL, place.url());
            let mut child = child.env("MAINSTAY_FAILPOINTS", &failpoint).spawn().unwrap();
            let status = child.wait(PATIENCE).unwrap();
            assert_eq!(status.signal(), Some(SIGABRT), "{failpoint} strikes: {:?}", child.said());
            acknowledged.extend(child.acknowledged());
            println!("{failpoint}");
            runtime.block_on(check(place.url(), &acknowledged));
        }
    }
}

#[test]
fn a_death_at_any_step_leaves_what_the_log_makes_of_it_on_sqlite() {
    die_at_each_step(Kind::SqliteFile);
}

#[test]
fn a_death_at_any_step_leaves_what_the_log_makes_of_it_on_postgres() {
    die_at_each_step(Kind::Postgres);
}
