//! Replays while the log grows: items 197 and 211.

use super::ended;
use crate::projections::support::{Bench, PATIENCE, noting, until};
use mainstay_events::Event;
use mainstay_flows::projections::replay::{Rebuild, ReplayStatus};
use mainstay_flows::projections::{By, Category, Complexity, Lifecycle, Model, Projection};
use mainstay_store::{Tx, params};
use mainstay_testkit::stores::for_each_store;
use std::time::{Duration, Instant};

#[test]
fn b_211_a_rebuild_in_place_holds_live_events_and_catches_up() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, vec![noting("a").partitioned(3, By::Stream)]).await;
        let projecting = bench.projections.start();
        bench.append_many(500).await;
        bench.caught_up("a").await;
        let begun = bench.projections.trigger_rebuild(Rebuild::of("a").from(0)).await.unwrap();
        let status = bench.projections.status("a").await.unwrap();
        assert_eq!((status.status, status.last_global_position), (Lifecycle::Rebuilding, 0));
        assert!(bench.noted("a").await.is_empty());
        let refused = bench.projections.set_checkpoint("a", 0, 10).await.unwrap_err();
        assert_eq!(refused.code(), "FLOW_INVALID");
        // Events that come meanwhile are neither lost nor skipped.
        bench.append_many(100).await;
        let engine = bench.work.start().await.unwrap();
        bench.append_many(100).await;
        assert_eq!(ended(&bench, &begun.replay_id).await.status, ReplayStatus::Completed);
        bench.caught_up("a").await;
        assert_eq!(bench.noted("a").await, (1..=700).collect::<Vec<u64>>());
        until("it is active again", async || {
            bench.projections.status("a").await.unwrap().status == Lifecycle::Active
        })
        .await;
        bench.append_many(10).await;
        bench.caught_up("a").await;
        assert_eq!(bench.noted("a").await.len(), 710);
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

/// Within this, live events are in the read models that readers see, whatever is replayed meanwhile.
const SOON: Duration = Duration::from_millis(500);

/// How long ten live events took to be in `live` while `rebuilt` was replayed: the first time in a release build. In a debug
/// build on a loaded machine the best of several says as much, since what waits for a replay waits every time. A replay that
/// was over before them says nothing.
async fn live_events(bench: &Bench, live: &str, rebuilt: &str) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..8 {
        let begun = bench.projections.trigger_rebuild(Rebuild::of(rebuilt).from(0)).await.unwrap();
        until("it runs", async || {
            bench.projections.rebuild_status(&begun.replay_id).await.unwrap().chunks_completed > 0
        })
        .await;
        let began = Instant::now();
        bench.append_many(10).await;
        bench.caught_up(live).await;
        let took = began.elapsed();
        let progress = bench.projections.rebuild_status(&begun.replay_id).await.unwrap();
        assert_eq!(ended(bench, &begun.replay_id).await.status, ReplayStatus::Completed);
        bench.caught_up(rebuilt).await;
        if progress.status != ReplayStatus::Running {
            continue;
        }
        best = best.min(took);
        if best < SOON || !cfg!(debug_assertions) {
            break;
        }
    }
    best
}

#[test]
fn b_197_live_events_of_others_do_not_wait_for_a_replay() {
    for_each_store(async |place| {
        let slow = noting("slow").complexity(Complexity::VeryComplex);
        let bench = Bench::open(&place, vec![slow, noting("live")]).await;
        bench.append_many(1_000).await;
        let (projecting, engine) = bench.start().await;
        bench.caught_up("live").await;
        bench.caught_up("slow").await;
        let took = live_events(&bench, "live", "slow").await;
        println!("{}: 10 live events within {took:.1?} beside a replay", place.kind());
        assert!(took < SOON, "{took:?}");
        let head = bench.log.head().await.unwrap();
        assert_eq!(bench.noted("slow").await, (1..=head).collect::<Vec<u64>>());
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_197_live_events_are_in_the_old_version_while_the_new_one_is_built() {
    for_each_store(async |place| {
        let create = ["CREATE TABLE {table} (position BIGINT NOT NULL)"];
        let rows = Projection::new("rows", Category::View)
            .complexity(Complexity::VeryComplex)
            .table("live_rows", &create)
            .each(async |tx: Tx, model: Model, event: Event| {
                let sql = format!("INSERT INTO {} (position) VALUES ($1)", model.table("live_rows")?);
                tx.execute(&sql, params![event.position() as i64]).await
            });
        let bench = Bench::open(&place, vec![rows]).await;
        bench.append_many(1_000).await;
        let (projecting, engine) = bench.start().await;
        bench.caught_up("rows").await;
        let took = live_events(&bench, "rows", "rows").await;
        println!("{}: 10 live events within {took:.1?} in the old version", place.kind());
        assert!(took < SOON, "{took:?}");
        let count = async |tx: Tx| tx.query_one("SELECT count(*) FROM live_rows", &[]).await?.get::<u64>(0);
        assert_eq!(bench.store.read(count).await.unwrap(), bench.log.head().await.unwrap());
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}
