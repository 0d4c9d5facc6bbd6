//! How a replay goes through the log.

use super::{chunks_are_tried, ended};
use crate::projections::support::{Bad, Bench, PATIENCE, noting, noting_unless, until};
use mainstay_core::failpoints::{Action, Point};
use mainstay_events::Event;
use mainstay_flows::projections::failures::LetterFilter;
use mainstay_flows::projections::replay::{Rebuild, ReplayStatus};
use mainstay_flows::projections::{Complexity, Lifecycle, Model, Poison, Projection};
use mainstay_store::Tx;
use mainstay_testkit::stores::for_each_store;
use mainstay_work::NewWork;
use serde_json::json;
use std::sync::{Arc, Mutex};

/// A projection that tells the sizes of its chunks.
fn measuring(sizes: &Arc<Mutex<Vec<usize>>>) -> Projection {
    let sizes = sizes.clone();
    noting("a").chunk(move |_: Tx, _: Model, events: Arc<[Event]>| {
        sizes.lock().unwrap().push(events.len());
        async { Ok(()) }
    })
}

#[test]
fn b_192_201_208_250_events_are_chunks_of_100_100_and_50() {
    for_each_store(async |place| {
        let sizes = Arc::new(Mutex::new(Vec::new()));
        let bench = Bench::open(&place, vec![measuring(&sizes)]).await;
        let engine = bench.work.start().await.unwrap();
        for (count, expected) in [(250, vec![100, 100, 50]), (50, vec![100, 100, 100])] {
            bench.append_many(count).await;
            sizes.lock().unwrap().clear();
            let begun = bench.projections.trigger_rebuild(Rebuild::of("a")).await.unwrap();
            let progress = ended(&bench, &begun.replay_id).await;
            assert_eq!(*sizes.lock().unwrap(), expected);
            let total: usize = expected.iter().sum();
            assert_eq!((progress.events_processed, progress.total_events), (total as u64, total as u64));
            assert_eq!((progress.chunks_completed, progress.percent_complete), (3, 100.0));
            let replay = bench.projections.replay(&begun.replay_id).await.unwrap();
            assert_eq!((replay.start_position, replay.last_position), (0, total as u64));
            assert_eq!((replay.target_position, replay.chunk_size), (total as u64, 100));
            assert_eq!((replay.status, replay.error.clone()), (ReplayStatus::Completed, None));
            assert!(replay.completed_at.is_some());
            until("nothing waits or runs", async || {
                let depth = bench.work.depth("eventReplayPool").await.unwrap();
                (depth.pending, depth.running) == (0, 0)
            })
            .await;
            // Three chunks, and none that was empty.
            assert_eq!(sizes.lock().unwrap().len(), 3);
        }
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_194_a_chunk_its_progress_and_the_next_chunk_are_one_commit() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, vec![noting("a")]).await;
        bench.append_many(700).await;
        // The sixth chunk fails, and is tried again a second later.
        bench.store.failpoints().arm(Point::ReplayApplied, Action::Error, 5, u64::MAX);
        let engine = bench.work.start().await.unwrap();
        let begun = bench.projections.trigger_rebuild(Rebuild::of("a")).await.unwrap();
        let replay = async || bench.projections.replay(&begun.replay_id).await.unwrap();
        until("five chunks are done", async || replay().await.chunks_completed == 5).await;
        let found = replay().await;
        assert_eq!((found.last_position, found.events_processed), (500, 500));
        assert_eq!(bench.noted("a").await.len(), 500);
        until("only the next chunk is left", async || {
            let depth = bench.work.depth("eventReplayPool").await.unwrap();
            depth.pending + depth.running == 1
        })
        .await;
        bench.store.failpoints().arm(Point::ReplayApplied, Action::Error, 0, 0);
        assert_eq!(ended(&bench, &begun.replay_id).await.chunks_completed, 7);
        assert_eq!(bench.noted("a").await, (1..=700).collect::<Vec<u64>>());
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_193_a_replay_that_failed_goes_on_after_its_last_chunk() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, vec![noting("a")]).await;
        chunks_are_tried(&bench, 2).await;
        bench.append_many(700).await;
        bench.store.failpoints().arm(Point::ReplayApplied, Action::Error, 5, u64::MAX);
        let engine = bench.work.start().await.unwrap();
        let begun = bench.projections.trigger_rebuild(Rebuild::of("a")).await.unwrap();
        let progress = ended(&bench, &begun.replay_id).await;
        assert_eq!((progress.status, progress.events_processed), (ReplayStatus::Failed, 500));
        assert!(progress.error.is_some_and(|error| error.contains("replay.applied")));
        let status = bench.projections.status("a").await.unwrap();
        assert_eq!((status.status, status.last_global_position), (Lifecycle::Error, 500));
        assert!(status.error_message.is_some());
        bench.store.failpoints().arm(Point::ReplayApplied, Action::Error, 0, 0);
        let again = bench.projections.trigger_rebuild(Rebuild::of("a")).await.unwrap();
        assert_eq!(again, begun);
        let progress = ended(&bench, &again.replay_id).await;
        assert_eq!((progress.status, progress.events_processed), (ReplayStatus::Completed, 700));
        assert_eq!(bench.noted("a").await, (1..=700).collect::<Vec<u64>>());
        assert_eq!(bench.projections.status("a").await.unwrap().status, Lifecycle::Active);
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_195_a_start_beyond_the_head_is_completed_at_once() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, vec![noting("a")]).await;
        bench.append_many(50).await;
        for from in [50, 100] {
            let begun = bench.projections.trigger_rebuild(Rebuild::of("a").from(from)).await.unwrap();
            assert_eq!(begun.total_events, 0);
            let progress = bench.projections.rebuild_status(&begun.replay_id).await.unwrap();
            assert_eq!((progress.status, progress.events_processed), (ReplayStatus::Completed, 0));
            assert!(progress.completed_at.is_some());
            assert_eq!(bench.work.depth("eventReplayPool").await.unwrap().pending, 0);
        }
        let status = bench.projections.status("a").await.unwrap();
        assert_eq!((status.status, status.last_global_position), (Lifecycle::Active, 0));
    });
}

#[test]
fn b_196_the_pool_of_replays_is_half_as_wide_and_patient() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, vec![noting("a")]).await;
        let pool = bench.work.pool_status("eventReplayPool").await.unwrap();
        let settings = serde_json::to_value(&pool.settings).unwrap();
        assert_eq!(settings["maxParallelism"], 5);
        let retry = &settings["retry"];
        assert_eq!((&retry["maxAttempts"], &retry["initialBackoffMs"]), (&json!(5), &json!(1000)));
        assert_eq!((&retry["base"], &settings["logLevel"]), (&json!(2.0), &json!("INFO")));
        assert_eq!(bench.work.pool_status("projectionPool").await.unwrap().settings.at_once(), 10);
    });
}

#[test]
fn b_200_the_size_of_a_chunk_is_given_or_follows_the_complexity() {
    for_each_store(async |place| {
        let complexities = [
            ("default", None, 100),
            ("simple", Some(Complexity::Simple), 100),
            ("medium", Some(Complexity::Medium), 50),
            ("orderWithInventory", Some(Complexity::Complex), 25),
            ("veryComplex", Some(Complexity::VeryComplex), 10),
        ];
        let definition = |(name, complexity, _): &(&str, Option<Complexity>, u32)| match complexity {
            Some(complexity) => noting(name).complexity(*complexity),
            None => noting(name),
        };
        let bench = Bench::open(&place, complexities.iter().map(definition).collect()).await;
        bench.append_many(10).await;
        for (name, _, expected) in complexities {
            let begun = bench.projections.trigger_rebuild(Rebuild::of(name)).await.unwrap();
            assert_eq!(
                bench.projections.replay(&begun.replay_id).await.unwrap().chunk_size,
                expected,
                "{name}"
            );
            bench.projections.cancel_rebuild(&begun.replay_id).await.unwrap();
        }
        let own = Rebuild::of("orderWithInventory").chunk_size(7);
        let begun = bench.projections.trigger_rebuild(own).await.unwrap();
        assert_eq!(bench.projections.replay(&begun.replay_id).await.unwrap().chunk_size, 7);
        for size in [0, 5_001] {
            let refused = bench.projections.trigger_rebuild(Rebuild::of("simple").chunk_size(size)).await;
            assert_eq!(refused.unwrap_err().code(), "FLOW_INVALID");
        }
    });
}

#[test]
fn b_203_a_chunk_that_runs_twice_has_no_double_effect() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, vec![noting("a")]).await;
        bench.append_many(300).await;
        let begun = bench.projections.trigger_rebuild(Rebuild::of("a")).await.unwrap();
        for step in [1, 1, 2, 3, 4] {
            let args = json!({ "replayId": begun.replay_id, "step": step });
            let again = NewWork::platform("eventReplayPool", "mainstay.replay.chunk", &args).unwrap();
            bench.work.enqueue(again).await.unwrap();
        }
        let engine = bench.work.start().await.unwrap();
        let progress = ended(&bench, &begun.replay_id).await;
        assert_eq!((progress.chunks_completed, progress.events_processed), (3, 300));
        until("nothing waits or runs", async || {
            let depth = bench.work.depth("eventReplayPool").await.unwrap();
            (depth.pending, depth.running) == (0, 0)
        })
        .await;
        assert_eq!(bench.noted("a").await, (1..=300).collect::<Vec<u64>>());
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn events_that_fail_in_a_replay_are_put_aside_as_live_ones_are() {
    for_each_store(async |place| {
        let bad = Bad::texts(&["bad"]);
        let poisoned = noting_unless("poisoned", &bad).poison(Poison::new(2, false));
        let bench = Bench::open(&place, vec![poisoned, noting_unless("lettered", &bad)]).await;
        let ids = bench.append("Noted", &["fine", "bad", "fine", "fine", "bad"]).await;
        let engine = bench.work.start().await.unwrap();
        for name in ["poisoned", "lettered"] {
            let begun = bench.projections.trigger_rebuild(Rebuild::of(name).from(0)).await.unwrap();
            let progress = ended(&bench, &begun.replay_id).await;
            assert_eq!((progress.status, progress.events_processed), (ReplayStatus::Completed, 5));
            assert_eq!(bench.noted(name).await, [1, 3, 4]);
            assert_eq!(bench.projections.status(name).await.unwrap().events_failed, 2);
        }
        assert!(bench.projections.is_quarantined("poisoned", &ids[1]).await.unwrap());
        assert_eq!(bench.projections.letters(LetterFilter::default(), 10).await.unwrap().len(), 2);
        // Mended: the replay resolves the letters, and what was quarantined stays aside.
        bad.mend();
        for name in ["poisoned", "lettered"] {
            let begun = bench.projections.trigger_rebuild(Rebuild::of(name).from(0)).await.unwrap();
            ended(&bench, &begun.replay_id).await;
        }
        assert_eq!(bench.noted("poisoned").await, [1, 3, 4]);
        assert_eq!(bench.noted("lettered").await, [1, 2, 3, 4, 5]);
        let stats = bench.projections.letter_stats().await.unwrap().by_projection_and_status;
        assert_eq!(stats["lettered:resolved"], 2);
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_failed_replay_of_a_projection_that_went_on_since_is_not_gone_on_with() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, vec![noting("a")]).await;
        chunks_are_tried(&bench, 1).await;
        bench.append_many(300).await;
        bench.store.failpoints().arm(Point::ReplayApplied, Action::Error, 1, u64::MAX);
        let engine = bench.work.start().await.unwrap();
        let begun = bench.projections.trigger_rebuild(Rebuild::of("a")).await.unwrap();
        assert_eq!(ended(&bench, &begun.replay_id).await.status, ReplayStatus::Failed);
        bench.store.failpoints().arm(Point::ReplayApplied, Action::Error, 0, 0);
        // The operator lets it catch up by itself.
        bench.projections.recover("a").await.unwrap();
        let projecting = bench.projections.start();
        bench.caught_up("a").await;
        assert_eq!(bench.noted("a").await, (1..=300).collect::<Vec<u64>>());
        let again = bench.projections.trigger_rebuild(Rebuild::of("a")).await.unwrap();
        assert_ne!(again.replay_id, begun.replay_id);
        assert_eq!(ended(&bench, &again.replay_id).await.events_processed, 300);
        bench.caught_up("a").await;
        assert_eq!(bench.noted("a").await, (1..=300).collect::<Vec<u64>>());
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}
