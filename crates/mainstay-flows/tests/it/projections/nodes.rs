//! Several nodes on one PostgreSQL, one of them paused while its handler is at work.

use super::support::{Bench, PATIENCE, components, noting};
use crate::replay::ended;
use mainstay_core::failpoints::{Action, Point};
use mainstay_events::Event;
use mainstay_flows::projections::failures::LetterFilter;
use mainstay_flows::projections::replay::{Rebuild, ReplayStatus};
use mainstay_flows::projections::{Category, Model, Projection};
use mainstay_store::{Error, Options, Store, Tx, params};
use mainstay_testkit::crash::{self, Child};
use mainstay_testkit::stores::{Kind, for_each_kind, for_each_lasting_store};
use mainstay_work::{Failure, Functions};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

const URL: &str = "TEST_URL";
const LEASE: Duration = Duration::from_millis(600);
/// A paused node's locks are taken from it after this long.
const LIMIT: Duration = Duration::from_secs(2);
/// Long enough to be paused in; much longer than a signal takes.
const MOMENT: Duration = Duration::from_millis(250);

async fn node(url: &str, definition: Projection) -> Bench {
    let options = components(Options::new(url).connections(4).transaction_timeout(LIMIT));
    Bench::leased(options.open().await.unwrap(), vec![definition], Functions::new(), LEASE).await
}

/// Notes every event, and tells when it is at work on one of type `Slow`.
fn telling() -> Projection {
    static TIMES: AtomicUsize = AtomicUsize::new(0);
    noting("a").each(async |tx: Tx, _: Model, event: Event| {
        let sql = "INSERT INTO noted (model, position) VALUES ('a', $1)";
        tx.execute(sql, params![event.position() as i64]).await?;
        if event.event_type() == "Slow" {
            crash::say(format!("inside {}.", TIMES.fetch_add(1, Ordering::SeqCst)));
            std::thread::sleep(MOMENT);
        }
        Ok(())
    })
}

/// The same in a table that is rebuilt beside; tells where it is, if it is to.
fn beside(is_telling: bool) -> Projection {
    static TIMES: AtomicUsize = AtomicUsize::new(0);
    Projection::new("a", Category::View)
        .table("beside_rows", &["CREATE TABLE {table} (position BIGINT NOT NULL)"])
        .each(move |tx: Tx, model: Model, event: Event| async move {
            let sql = format!("INSERT INTO {} (position) VALUES ($1)", model.table("beside_rows")?);
            tx.execute(&sql, params![event.position() as i64]).await?;
            if is_telling && event.event_type() == "Slow" {
                crash::say(format!("inside {}.", TIMES.fetch_add(1, Ordering::SeqCst)));
                std::thread::sleep(MOMENT);
            }
            Ok(())
        })
}

fn follow(definition: Projection) {
    if !crash::is_child() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let bench = node(&std::env::var(URL).unwrap(), definition).await;
        let _running = bench.start().await;
        crash::say("follows");
        std::future::pending::<()>().await;
    });
}

#[test]
fn child_follows_the_log() {
    follow(telling());
}

#[test]
fn child_follows_the_log_beside() {
    follow(beside(true));
}

#[test]
fn a_node_paused_inside_of_a_handler_applies_nothing_twice() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let bench = node(place.url(), noting("a")).await;
        let child = Child::of("projections::nodes::child_follows_the_log").env(URL, place.url());
        let child = child.spawn().unwrap();
        child.wait_for("follows", PATIENCE).unwrap();
        for round in 0..3 {
            bench.append_many(20).await;
            bench.append("Slow", &["x"]).await;
            bench.append_many(20).await;
            child.wait_for(&format!("inside {round}."), PATIENCE).unwrap();
            child.stop().unwrap();
            // What it holds is taken from it, and this node goes on.
            let projecting = bench.projections.start();
            bench.caught_up("a").await;
            child.cont().unwrap();
            bench.append_many(50).await;
            bench.caught_up("a").await;
            projecting.stop(PATIENCE).await;
        }
        let head = bench.log.head().await.unwrap();
        assert_eq!(bench.noted("a").await, (1..=head).collect::<Vec<u64>>());
    });
}

#[test]
fn a_node_paused_inside_of_a_replay_applies_nothing_twice() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let bench = node(place.url(), noting("a")).await;
        bench.append_many(150).await;
        bench.append("Slow", &["x"]).await;
        bench.append_many(100).await;
        let child = Child::of("projections::nodes::child_follows_the_log").env(URL, place.url());
        let child = child.spawn().unwrap();
        // Once live, and once in each replay.
        child.wait_for("inside 0.", PATIENCE).unwrap();
        bench.caught_up("a").await;
        for round in 1..=2 {
            let begun = bench.projections.trigger_rebuild(Rebuild::of("a").from(0)).await.unwrap();
            child.wait_for(&format!("inside {round}."), PATIENCE).unwrap();
            child.stop().unwrap();
            let (projecting, engine) = bench.start().await;
            bench.caught_up("a").await;
            let progress = bench.projections.rebuild_status(&begun.replay_id).await.unwrap();
            assert_eq!(progress.status, ReplayStatus::Completed, "{progress:?}");
            child.cont().unwrap();
            bench.append_many(20).await;
            bench.caught_up("a").await;
            projecting.stop(PATIENCE).await;
            engine.stop(PATIENCE).await.unwrap();
            let head = bench.log.head().await.unwrap();
            assert_eq!(bench.noted("a").await, (1..=head).collect::<Vec<u64>>());
        }
    });
}

#[test]
fn a_node_paused_inside_of_a_rebuild_beside_applies_nothing_twice() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let bench = node(place.url(), beside(false)).await;
        bench.append_many(150).await;
        bench.append("Slow", &["x"]).await;
        bench.append_many(100).await;
        let child = Child::of("projections::nodes::child_follows_the_log_beside").env(URL, place.url());
        let child = child.spawn().unwrap();
        // Once live, and once in each replay.
        child.wait_for("inside 0.", PATIENCE).unwrap();
        bench.caught_up("a").await;
        for round in 1..=2 {
            let rebuild = Rebuild::of("a").from(0).chunk_size(100);
            let begun = bench.projections.trigger_rebuild(rebuild).await.unwrap();
            child.wait_for(&format!("inside {round}."), PATIENCE).unwrap();
            child.stop().unwrap();
            let (projecting, engine) = bench.start().await;
            bench.append_many(20).await;
            let progress = ended(&bench, &begun.replay_id).await;
            assert_eq!(progress.status, ReplayStatus::Completed, "{progress:?}");
            child.cont().unwrap();
            bench.append_many(20).await;
            bench.caught_up("a").await;
            projecting.stop(PATIENCE).await;
            engine.stop(PATIENCE).await.unwrap();
            let status = bench.projections.status("a").await.unwrap();
            assert_eq!(status.generation, 1 + round, "readers see another generation, once");
            let read = async |tx: Tx| {
                let rows = tx.query("SELECT position FROM beside_rows ORDER BY position", &[]).await?;
                rows.iter().map(|row| row.get::<u64>(0)).collect::<mainstay_store::Result<Vec<_>>>()
            };
            let head = bench.log.head().await.unwrap();
            assert_eq!(bench.store.read(read).await.unwrap(), (1..=head).collect::<Vec<u64>>());
        }
    });
}

/// A handler that fails for an event of type `Slow` as soon as another node waits for its turn with that event.
fn ill(store: &Store, is_inside: &Arc<Notify>) -> Projection {
    let (store, is_inside) = (store.clone(), is_inside.clone());
    noting("a").each(move |tx: Tx, _: Model, event: Event| {
        let (store, is_inside) = (store.clone(), is_inside.clone());
        async move {
            if event.event_type() == "Slow" {
                is_inside.notify_one();
                if store.capabilities().many_nodes {
                    // Only a chunk waits with this statement; what a node does as it starts waits with others.
                    let waiting = "SELECT count(*) FROM pg_stat_activity \
                         WHERE datname = current_database() AND wait_event_type = 'Lock' \
                         AND query LIKE '%mainstay_projection_lanes WHERE projection = $1 AND lane = $2%FOR UPDATE'";
                    while tx.query_one(waiting, &[]).await?.get::<i64>(0)? == 0 {}
                } else {
                    while store.figures().queued.get() == 0 {
                        std::thread::yield_now();
                    }
                }
                return Err(Error::application(Failure::permanent("this node is ill")));
            }
            let sql = "INSERT INTO noted (model, position) VALUES ('a', $1)";
            tx.execute(sql, params![event.position() as i64]).await.map(drop)
        }
    })
}

#[test]
fn a_failure_is_not_recorded_once_another_node_has_moved_on() {
    for_each_lasting_store(async |place| {
        let (store, is_inside) = (components(place.options()).open().await.unwrap(), Arc::new(Notify::new()));
        let other = if store.capabilities().many_nodes {
            components(place.options()).open().await.unwrap()
        } else {
            store.clone()
        };
        let failing = ill(&store, &is_inside);
        let failing = Bench::leased(store, vec![failing], Functions::new(), LEASE).await;
        let well = Bench::leased(other, vec![noting("a")], Functions::new(), LEASE).await;
        for _ in 0..3 {
            // What an earlier round has left; no node runs now.
            let _ = tokio::time::timeout(Duration::ZERO, is_inside.notified()).await;
            // Alone in its chunk: of several events each is tried alone before a failure is recorded, which looks at the lane.
            failing.append("Slow", &["x"]).await;
            let slow = failing.projections.start();
            tokio::time::timeout(PATIENCE, is_inside.notified()).await.expect("it is given the event");
            let fast = well.projections.start();
            well.caught_up("a").await;
            fast.stop(PATIENCE).await;
            // The failing node goes on, and so has done whatever it does about its failure.
            failing.append_many(20).await;
            failing.caught_up("a").await;
            slow.stop(PATIENCE).await;
            let head = failing.log.head().await.unwrap();
            assert_eq!(failing.noted("a").await, (1..=head).collect::<Vec<u64>>(), "no step back");
            let letters = failing.projections.letters(LetterFilter::default(), 10).await.unwrap();
            assert!(letters.is_empty(), "{letters:?}");
            let count = async |tx: Tx| {
                tx.query_one("SELECT count(*) FROM mainstay_projection_failures", &[]).await?.get::<i64>(0)
            };
            assert_eq!(failing.store.read(count).await.unwrap(), 0, "nothing of the failure is kept");
        }
    });
}

/// The same without the guard on the checkpoint: that must be seen.
#[test]
fn without_the_guard_events_are_applied_twice() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let nodes = [node(place.url(), noting("a")).await, node(place.url(), noting("a")).await];
        for bench in &nodes {
            bench.store.failpoints().arm(Point::ProjectionsGuard, Action::Error, 0, u64::MAX);
        }
        nodes[0].append_many(1_000).await;
        let running = nodes.each_ref().map(|bench| bench.projections.start());
        nodes[0].caught_up("a").await;
        for projecting in running {
            projecting.stop(PATIENCE).await;
        }
        assert!(nodes[0].noted("a").await.len() > 1_000, "nothing was applied twice");
    });
}
