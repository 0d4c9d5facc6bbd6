//! Processes that die at every step of a chunk, of a failure that is written down, of a replay and of the switch.
//!
//! After many deaths a process that lives does what is left: every event that was acknowledged is in the log, and every
//! read model is what the log makes of it.

use super::ended;
use crate::projections::support::{Bad, Bench, PATIENCE, at_once, components, noting_unless};
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

fn beside() -> Projection {
    let bad = bad();
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

fn bad() -> Bad {
    Bad::texts(&["bad"])
}

async fn open(url: &str) -> Bench {
    let store = components(Options::new(url).connections(4)).open().await.unwrap();
    let in_place = noting_unless("inPlace", &bad()).retry(at_once(2)).partitioned(2, By::Stream);
    let bench = Bench::leased(store, vec![in_place, beside()], Functions::new(), LEASE).await;
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
        let bench = open(&std::env::var(URL).unwrap()).await;
        let _running = bench.start().await;
        loop {
            for id in bench.append("Noted", &["fine", "fine", "bad", "fine", "fine"]).await {
                crash::ack(id);
            }
            for name in NAMES {
                // One that runs already is as good.
                let rebuild = Rebuild::of(name).from(0).chunk_size(10);
                drop(bench.projections.trigger_rebuild(rebuild).await);
            }
            while !bench.projections.active_rebuilds().await.unwrap().is_empty() {
                crash::ack(&bench.append("Noted", &["fine"]).await[0]);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    });
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

/// Lets a process that lives do what is left, and looks for what is wrong.
async fn check(url: &str, acknowledged: &[String]) {
    let bench = open(url).await;
    let (projecting, engine) = bench.start().await;
    for replay in bench.projections.active_rebuilds().await.unwrap() {
        ended(&bench, &replay.replay_id).await;
    }
    let (mut good, mut bad, mut after) = (Vec::new(), Vec::new(), 0);
    let mut ids = std::collections::HashSet::new();
    loop {
        let page = bench.log.read(&Selection::all().after(after), 1_000).await.unwrap();
        for event in &page.events {
            ids.insert(event.id().to_owned());
            let text: String = event.data_as().unwrap();
            if text == "bad" { bad.push(event.position()) } else { good.push(event.position()) }
        }
        let Some(next) = page.next else { break };
        after = next;
    }
    assert!(acknowledged.iter().all(|id| ids.contains(id)), "an acknowledged event is lost");
    for name in NAMES {
        bench.caught_up(name).await;
        assert_eq!(rows(&bench, name).await, good, "{name}");
        let (mut lettered, mut after) = (Vec::new(), None);
        loop {
            let filter = LetterFilter {
                projection: Some(name.to_owned()),
                status: Some(LetterStatus::Pending),
                after: after.take(),
                ..LetterFilter::default()
            };
            let page = bench.projections.letters(filter, 1_000).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some((last.position, last.projection_name.clone()));
            lettered.extend(page.iter().map(|letter| letter.position));
        }
        assert_eq!(lettered, bad, "{name}");
    }
    println!("{url}: {} events, {} of them bad", good.len() + bad.len(), bad.len());
    projecting.stop(PATIENCE).await;
    engine.stop(PATIENCE).await.unwrap();
    bench.store.close().await;
}

fn die_at_each_step(kind: Kind) {
    let place = Place::new(kind);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut acknowledged = Vec::new();
    let points = [
        ("projections.applied", 3),
        ("projections.checkpoint", 4),
        ("projections.failure", 2),
        ("replay.applied", 7),
        ("replay.advanced", 3),
        ("replay.advanced", 8),
        ("replay.switched", 1),
        ("replay.switched", 2),
        ("store.commit", 60),
        ("store.committed", 90),
    ];
    for (point, nth) in points {
        let failpoint = format!("{point}=abort@{nth}");
        let child = Child::of("replay::crash::child_appends_projects_and_rebuilds").env(URL, place.url());
        let mut child = child.env("MAINSTAY_FAILPOINTS", &failpoint).spawn().unwrap();
        let status = child.wait(PATIENCE).unwrap();
        assert_eq!(status.signal(), Some(SIGABRT), "{failpoint} strikes: {:?}", child.said());
        acknowledged.extend(child.acknowledged());
        runtime.block_on(check(place.url(), &acknowledged));
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
