//! Triggering, cancelling, pausing, and looking.

use super::{chunks_are_tried, ended};
use crate::projections::support::{Bad, Bench, PATIENCE, note, noting, noting_unless, until};
use mainstay_core::failpoints::Point;
use mainstay_events::Event;
use mainstay_flows::projections::failures::LetterStatus;
use mainstay_flows::projections::replay::{Rebuild, ReplayStatus};
use mainstay_flows::projections::{Category, Kind, Lifecycle, Model, Projection};
use mainstay_store::Tx;
use mainstay_testkit::stores::for_each_store;
use std::sync::{Arc, Mutex};

#[test]
fn b_199_207_one_replay_for_each_projection_and_several_at_once() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, vec![noting("a"), noting("b")]).await;
        bench.append_many(250).await;
        let first = bench.projections.trigger_rebuild(Rebuild::of("a")).await.unwrap();
        let refused = bench.projections.trigger_rebuild(Rebuild::of("a").from(0)).await.unwrap_err();
        assert_eq!(refused.code(), "REPLAY_ALREADY_ACTIVE");
        assert!(refused.to_string().contains(&first.replay_id), "{refused}");
        let second = bench.projections.trigger_rebuild(Rebuild::of("b")).await.unwrap();
        let active = bench.projections.active_rebuilds().await.unwrap();
        let ids: Vec<&String> = active.iter().map(|progress| &progress.replay_id).collect();
        assert_eq!(ids, [&first.replay_id, &second.replay_id]);
        assert!(active.iter().all(|one| one.status == ReplayStatus::Running && one.total_events == 250));
        // b_198: different projections beside each other, each with a checkpoint of its own.
        let engine = bench.work.start().await.unwrap();
        for (name, begun) in [("a", &first), ("b", &second)] {
            assert_eq!(ended(&bench, &begun.replay_id).await.status, ReplayStatus::Completed);
            assert_eq!(bench.noted(name).await, (1..=250).collect::<Vec<u64>>());
        }
        assert!(bench.projections.active_rebuilds().await.unwrap().is_empty());
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_209_a_cancelled_replay_ends_and_the_projection_goes_on_from_there() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, vec![noting("a")]).await;
        bench.append_many(300).await;
        let begun = bench.projections.trigger_rebuild(Rebuild::of("a")).await.unwrap();
        // It stops after one chunk.
        bench.store.failpoints().arm(
            Point::ReplayApplied,
            mainstay_core::failpoints::Action::Error,
            1,
            u64::MAX,
        );
        let engine = bench.work.start().await.unwrap();
        until("a chunk is done", async || bench.noted("a").await.len() == 100).await;
        let cancelled = bench.projections.cancel_rebuild(&begun.replay_id).await.unwrap();
        assert!(cancelled.success);
        assert_eq!(cancelled.events_processed_before_cancel, 100);
        let twice = bench.projections.cancel_rebuild(&begun.replay_id).await.unwrap_err();
        assert_eq!(twice.code(), "REPLAY_NOT_RUNNING");
        assert!(twice.to_string().ends_with("is cancelled"), "{twice}");
        let unknown = bench.projections.cancel_rebuild("replay_nobody").await.unwrap_err();
        assert_eq!(unknown.code(), "REPLAY_NOT_FOUND");
        let projecting = bench.projections.start();
        bench.caught_up("a").await;
        assert_eq!(bench.noted("a").await, (1..=300).collect::<Vec<u64>>());
        until("it is active", async || {
            bench.projections.status("a").await.unwrap().status == Lifecycle::Active
        })
        .await;
        let progress = bench.projections.rebuild_status(&begun.replay_id).await.unwrap();
        assert_eq!((progress.status, progress.events_processed), (ReplayStatus::Cancelled, 100));
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_210_a_paused_replay_goes_on_where_it_was() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, vec![noting("a")]).await;
        chunks_are_tried(&bench, 3).await;
        bench.append_many(200).await;
        let begun = bench.projections.trigger_rebuild(Rebuild::of("a")).await.unwrap();
        bench.projections.pause_rebuild(&begun.replay_id).await.unwrap();
        let engine = bench.work.start().await.unwrap();
        until("its chunk has ended without doing anything", async || {
            let depth = bench.work.depth("eventReplayPool").await.unwrap();
            (depth.pending, depth.running) == (0, 0)
        })
        .await;
        assert!(bench.noted("a").await.is_empty());
        assert_eq!(bench.projections.active_rebuilds().await.unwrap()[0].status, ReplayStatus::Paused);
        let twice = bench.projections.pause_rebuild(&begun.replay_id).await.unwrap_err();
        assert_eq!(twice.code(), "REPLAY_NOT_RUNNING");
        bench.projections.resume_rebuild(&begun.replay_id).await.unwrap();
        assert_eq!(ended(&bench, &begun.replay_id).await.status, ReplayStatus::Completed);
        assert_eq!(bench.noted("a").await, (1..=200).collect::<Vec<u64>>());
        // Without a start, a trigger goes on with one that is paused.
        bench.work.pause("eventReplayPool").await.unwrap();
        let begun = bench.projections.trigger_rebuild(Rebuild::of("a")).await.unwrap();
        bench.projections.pause_rebuild(&begun.replay_id).await.unwrap();
        let again = bench.projections.trigger_rebuild(Rebuild::of("a")).await.unwrap();
        assert_eq!(again.replay_id, begun.replay_id);
        bench.work.resume("eventReplayPool").await.unwrap();
        assert_eq!(ended(&bench, &begun.replay_id).await.status, ReplayStatus::Completed);
        assert_eq!(bench.noted("a").await, (1..=200).collect::<Vec<u64>>());
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_208_213_all_are_rebuilt_in_the_order_of_the_registry() {
    for_each_store(async |place| {
        let plain = Projection::new("plain", Category::Logic).each(async |_: Tx, _: Model, _: Event| Ok(()));
        let definitions = vec![noting("overview").kind(Kind::CrossContext), plain, noting("orders")];
        let bench = Bench::open(&place, definitions).await;
        bench.append_many(120).await;
        let engine = bench.work.start().await.unwrap();
        let all = bench.projections.rebuild_all(Some(50)).await;
        let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["plain", "orders", "overview"]);
        for (name, begun) in &all {
            match begun {
                Ok(begun) => {
                    assert_eq!(ended(&bench, &begun.replay_id).await.chunks_completed, 3);
                    assert_eq!(bench.noted(name).await, (1..=120).collect::<Vec<u64>>());
                }
                Err(error) => {
                    assert_eq!((name.as_str(), error.code()), ("plain", "PROJECTION_NOT_REBUILDABLE"));
                }
            }
        }
        let unknown = bench.projections.trigger_rebuild(Rebuild::of("nobody")).await.unwrap_err();
        assert_eq!(unknown.code(), "UNKNOWN_PROJECTION");
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_letter_is_not_tried_again_before_the_replay_that_comes_to_its_event() {
    for_each_store(async |place| {
        let bad = Bad::texts(&["bad"]);
        let bench = Bench::open(&place, vec![noting_unless("a", &bad)]).await;
        let (projecting, engine) = bench.start().await;
        let ids = bench.append("Noted", &["fine", "bad", "fine"]).await;
        bench.caught_up("a").await;
        bad.mend();
        bench.work.pause("eventReplayPool").await.unwrap();
        let begun = bench.projections.trigger_rebuild(Rebuild::of("a").from(0)).await.unwrap();
        let retried = bench.projections.retry_letter("a", &ids[1]).await.unwrap();
        bench.work.wait_for(&retried, PATIENCE).await.unwrap();
        assert!(bench.noted("a").await.is_empty());
        let letter = bench.projections.letter("a", &ids[1]).await.unwrap();
        assert!(letter.last_error.is_some_and(|error| error.contains("comes to this event by itself")));
        bench.work.resume("eventReplayPool").await.unwrap();
        assert_eq!(ended(&bench, &begun.replay_id).await.status, ReplayStatus::Completed);
        bench.caught_up("a").await;
        assert_eq!(bench.noted("a").await, [1, 2, 3]);
        assert_eq!(bench.projections.letter("a", &ids[1]).await.unwrap().status, LetterStatus::Resolved);
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

/// A projection that also tells in which order it is given events.
fn telling(name: &str, bad: &Bad, order: &Arc<Mutex<Vec<u64>>>) -> Projection {
    let (model, bad, order) = (name.to_owned(), bad.clone(), order.clone());
    let slow = mainstay_core::retry::RetryPolicy::new(3, 3_600_000, 1.0, 3_600_000).unwrap();
    noting(name).retry(slow).each(move |tx: Tx, _: Model, event: Event| {
        let (model, bad, order) = (model.clone(), bad.clone(), order.clone());
        async move {
            bad.check(&event)?;
            order.lock().unwrap().push(event.position());
            note(&tx, &model, &event).await
        }
    })
}

/// The events of chunks as they were told, without those of transactions that the store ran again: such a run begins with
/// an event of the chunk that was told last.
fn without_reruns(told: &[u64], chunk_size: usize) -> Vec<u64> {
    let mut kept: Vec<u64> = Vec::new();
    for event in told {
        if let Some(at) = kept.iter().position(|one| one == event) {
            assert!(at % chunk_size == 0 && kept.len() - at <= chunk_size, "a step back: {told:?}");
            kept.truncate(at);
        }
        kept.push(*event);
    }
    kept
}

#[test]
fn a_chunk_that_ran_again_is_no_disorder_and_a_step_back_is() {
    assert_eq!(without_reruns(&[1, 2, 1, 2, 3, 3, 4, 3, 4, 5, 5], 2), [1, 2, 3, 4, 5]);
    assert_eq!(without_reruns(&[3, 4, 1, 2], 2), [3, 4, 1, 2]);
    for step_back in [&[1, 2, 3, 1][..], &[1, 2, 3, 4, 1, 2], &[1, 2, 2]] {
        assert!(std::panic::catch_unwind(|| without_reruns(step_back, 2)).is_err(), "{step_back:?}");
    }
}

#[test]
fn b_198_chunks_of_a_projection_take_turns_and_projections_do_not_wait_for_each_other() {
    for_each_store(async |place| {
        let (bad, order) = (Bad::texts(&["bad"]), Arc::new(Mutex::new(Vec::new())));
        let (stuck, free) =
            (telling("stuck", &bad, &Arc::default()), telling("free", &Bad::default(), &order));
        let bench = Bench::open(&place, vec![stuck, free]).await;
        bench.append("Noted", &["x", "x", "x", "bad", "x"]).await;
        let mut replays = Vec::new();
        for name in ["stuck", "free"] {
            let rebuild = Rebuild::of(name).from(0).chunk_size(2);
            replays.push(bench.projections.trigger_rebuild(rebuild).await.unwrap().replay_id);
        }
        let keys = async |tx: Tx| {
            let rows = tx.query("SELECT work_key FROM mainstay_work ORDER BY work_key", &[]).await?;
            rows.iter().map(|row| row.get(0)).collect::<mainstay_store::Result<Vec<String>>>()
        };
        assert_eq!(bench.store.read(keys).await.unwrap(), ["replay:free", "replay:stuck"]);
        let second = bench.projections.trigger_rebuild(Rebuild::of("stuck").from(0)).await.unwrap_err();
        assert_eq!(second.code(), "REPLAY_ALREADY_ACTIVE");
        let engine = bench.work.start().await.unwrap();
        assert_eq!(ended(&bench, &replays[1]).await.chunks_completed, 3);
        let order = without_reruns(&order.lock().unwrap(), 2);
        assert_eq!(order, [1, 2, 3, 4, 5], "one chunk after another");
        until("the other one has come to what it cannot take", async || {
            bench.noted("stuck").await == [1, 2, 3]
        })
        .await;
        let places: Vec<(String, u64)> = bench
            .projections
            .checkpoints()
            .await
            .unwrap()
            .into_iter()
            .map(|one| (one.projection, one.last_global_position))
            .collect();
        assert_eq!(places, [("free".to_owned(), 5), ("stuck".to_owned(), 3)]);
        let progress = bench.projections.rebuild_status(&replays[0]).await.unwrap();
        assert_eq!((progress.status, progress.chunks_completed), (ReplayStatus::Running, 1));
        engine.stop(PATIENCE).await.unwrap();
    });
}
