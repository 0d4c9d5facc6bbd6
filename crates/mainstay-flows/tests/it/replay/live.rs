//! Replays while the log grows: items 197 and 211.

use super::ended;
use crate::projections::support::{Bench, PATIENCE, noting, until};
use mainstay_flows::projections::replay::{Rebuild, ReplayStatus};
use mainstay_flows::projections::{By, Complexity, Lifecycle};
use mainstay_testkit::stores::for_each_store;
use std::time::Instant;

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

#[test]
fn b_197_live_events_of_others_do_not_wait_for_a_replay() {
    for_each_store(async |place| {
        let slow = noting("slow").complexity(Complexity::VeryComplex);
        let bench = Bench::open(&place, vec![slow, noting("live")]).await;
        bench.append_many(1_000).await;
        let (projecting, engine) = bench.start().await;
        bench.caught_up("live").await;
        bench.caught_up("slow").await;
        let begun = bench.projections.trigger_rebuild(Rebuild::of("slow").from(0)).await.unwrap();
        until("it runs", async || {
            bench.projections.rebuild_status(&begun.replay_id).await.unwrap().chunks_completed > 0
        })
        .await;
        let began = Instant::now();
        bench.append_many(10).await;
        bench.caught_up("live").await;
        let took = began.elapsed();
        let progress = bench.projections.rebuild_status(&begun.replay_id).await.unwrap();
        println!(
            "{}: 10 live events within {took:.1?} of a replay at {}",
            place.kind(),
            progress.events_processed
        );
        assert_eq!(progress.status, ReplayStatus::Running, "{progress:?}");
        assert_eq!(ended(&bench, &begun.replay_id).await.status, ReplayStatus::Completed);
        bench.caught_up("slow").await;
        assert_eq!(bench.noted("slow").await, (1..=1_010).collect::<Vec<u64>>());
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}
