//! Replays on a clock that is set back.

use super::beside::{exists, managed, rows};
use super::{chunks_are_tried, ended};
use crate::projections::support::{Bad, Bench, PATIENCE, components, noting};
use mainstay_core::failpoints::{Action, Point};
use mainstay_flows::projections;
use mainstay_flows::projections::replay::{Rebuild, ReplayStatus};
use mainstay_store::migrations::Component;
use mainstay_store::{Error, Options, Tx, params};
use mainstay_testkit::stores::{for_each_lasting_store, for_each_store};
use mainstay_testkit::time::VirtualTime;

const HOUR_MS: i64 = 3_600_000;

/// Fills a projection anew from 0 and waits until that has ended.
async fn rebuilt(bench: &Bench, name: &str) -> (String, ReplayStatus) {
    let begun = bench.projections.trigger_rebuild(Rebuild::of(name).from(0)).await.unwrap();
    let engine = bench.work.start().await.unwrap();
    let status = ended(bench, &begun.replay_id).await.status;
    engine.stop(PATIENCE).await.unwrap();
    (begun.replay_id, status)
}

#[test]
fn b_199_one_replay_for_each_projection_also_when_the_clock_is_set_back() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let bench = Bench::on(store, vec![noting("a")]).await;
        bench.append_many(150).await;
        assert_eq!(rebuilt(&bench, "a").await.1, ReplayStatus::Completed);
        time.advance(-HOUR_MS).await.unwrap();
        let first = bench.projections.trigger_rebuild(Rebuild::of("a").from(0)).await.unwrap();
        let refused = bench.projections.trigger_rebuild(Rebuild::of("a").from(0)).await.unwrap_err();
        assert_eq!(refused.code(), "REPLAY_ALREADY_ACTIVE");
        assert!(refused.to_string().contains(&first.replay_id), "{refused}");
        // Nobody gets past the database either.
        let twice = async |tx: Tx, replay_id: String| {
            let sql = "UPDATE mainstay_replays SET status = 'running' WHERE replay_id <> $1";
            tx.execute(sql, params![replay_id]).await
        };
        let refused = bench.store.transact_with(first.replay_id.clone(), twice).await.unwrap_err();
        assert!(matches!(refused, Error::Constraint { .. }), "{refused}");
        let engine = bench.work.start().await.unwrap();
        assert_eq!(ended(&bench, &first.replay_id).await.status, ReplayStatus::Completed);
        assert_eq!(bench.noted("a").await, (1..=150).collect::<Vec<u64>>());
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_replay_that_has_failed_takes_nothing_from_readers_after_the_clock_was_set_back() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let bench = Bench::on(store, vec![managed(&Bad::default(), false)]).await;
        chunks_are_tried(&bench, 1).await;
        bench.append_many(30).await;
        bench.store.failpoints().arm(Point::ReplayApplied, Action::Error, 0, 1);
        let (failed, status) = rebuilt(&bench, "orders").await;
        assert_eq!(status, ReplayStatus::Failed);
        time.advance(-HOUR_MS).await.unwrap();
        let (_, status) = rebuilt(&bench, "orders").await;
        assert_eq!(status, ReplayStatus::Completed);
        let superseded = bench.projections.replay(&failed).await.unwrap();
        assert_eq!(superseded.status, ReplayStatus::Cancelled, "another one has followed it");
        assert!(superseded.error.is_some(), "why it failed is still known");
        assert_eq!(bench.projections.status("orders").await.unwrap().generation, 2);
        // As it was before failed replays gave way to others: nothing of it is left to give up.
        let as_before = async |tx: Tx, replay_id: String| {
            let sql = "UPDATE mainstay_replays SET status = 'failed' WHERE replay_id = $1";
            tx.execute(sql, params![replay_id]).await
        };
        bench.store.transact_with(failed.clone(), as_before).await.unwrap();
        let begun = bench.projections.trigger_rebuild(Rebuild::of("orders")).await.unwrap();
        assert_ne!(begun.replay_id, failed);
        assert!(exists(&bench.store, "order_rows__g2").await);
        assert_eq!(rows(&bench.store).await, (1..=30).collect::<Vec<u64>>());
        let engine = bench.work.start().await.unwrap();
        assert_eq!(ended(&bench, &begun.replay_id).await.status, ReplayStatus::Completed);
        assert_eq!(rows(&bench.store).await, (1..=30).collect::<Vec<u64>>());
        assert_eq!(bench.projections.status("orders").await.unwrap().generation, 3);
        engine.stop(PATIENCE).await.unwrap();
    });
}

/// As programs were that let the clock say which replay is the latest.
fn before(options: Options) -> Options {
    let projections = Component { name: "projections", steps: &projections::COMPONENT.steps[..1] };
    options.component(mainstay_events::COMPONENT).component(mainstay_work::COMPONENT).component(projections)
}

const REPLAYS: &str = "INSERT INTO mainstay_replays (replay_id, projection, status, shape, start_position, last_position, \
     target_position, chunk_size, total_events, events_processed, chunks_completed, step, started_at, updated_at) VALUES \
     ('r1', 'a', 'failed', '', 0, 0, 9, 5, 9, 0, 0, 1, 10, 10), ('r2', 'a', 'completed', '', 0, 9, 9, 5, 9, 9, 2, 2, 20, 20), \
     ('r3', 'a', 'failed', '', 0, 0, 9, 5, 9, 0, 0, 1, 30, 30), \
     ('r4', 'b', 'running', '', 0, 0, 9, 5, 9, 0, 0, 1, 20, 20), ('r5', 'b', 'running', '', 0, 0, 9, 5, 9, 0, 0, 1, 10, 10)";

#[test]
fn replays_from_before_there_could_be_one_only_are_put_in_order() {
    for_each_lasting_store(async |place| {
        let store = before(place.options()).open().await.unwrap();
        store.transact(async |tx: Tx| tx.execute(REPLAYS, &[]).await).await.unwrap();
        store.close().await;
        let store = components(place.options()).open().await.unwrap();
        let read = async |tx: Tx| {
            let rows = tx.query("SELECT status FROM mainstay_replays ORDER BY replay_id", &[]).await?;
            rows.iter().map(|row| row.get::<String>(0)).collect::<mainstay_store::Result<Vec<_>>>()
        };
        let found = store.read(read).await.unwrap();
        assert_eq!(found, ["cancelled", "completed", "failed", "cancelled", "running"]);
        store.close().await;
    });
}

#[test]
fn of_replays_that_are_over_the_last_hundred_are_kept() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let bench = Bench::on(store, vec![noting("a"), noting("b")]).await;
        let other = bench.projections.trigger_rebuild(Rebuild::of("b").from(0)).await.unwrap();
        let mut all = Vec::new();
        for _ in 0..103 {
            // The log is empty: each is over at once.
            all.push(bench.projections.trigger_rebuild(Rebuild::of("a").from(0)).await.unwrap().replay_id);
            time.advance(1).await.unwrap();
        }
        for (index, replay_id) in all.iter().enumerate() {
            let found = bench.projections.replay(replay_id).await;
            assert_eq!(found.is_ok(), index >= 3, "{index}: {found:?}");
        }
        assert!(bench.projections.replay(&other.replay_id).await.is_ok());
    });
}
