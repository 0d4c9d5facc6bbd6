//! Blue and green: the next generation is filled beside the one that readers see.

use super::ended;
use crate::projections::support::{Bad, Bench, PATIENCE, at_once, components, until};
use mainstay_events::Event;
use mainstay_flows::projections::failures::{LetterFilter, LetterStatus};
use mainstay_flows::projections::replay::{Rebuild, ReplayStatus};
use mainstay_flows::projections::{By, Category, Lifecycle, Model, Poison, Projection};
use mainstay_store::{Store, Tx, params};
use mainstay_testkit::stores::{Place, for_each_lasting_store, for_each_store};
use mainstay_testkit::time::VirtualTime;
use mainstay_work::NewWork;
use mainstay_work::inbox::{self, Kind, Status};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A projection with a managed table of one row for each event. `doubled` is another shape of it.
pub(super) fn managed(bad: &Bad, is_doubled: bool) -> Projection {
    let bad = bad.clone();
    let column = if is_doubled { ", twice BIGINT NOT NULL" } else { "" };
    let create = format!("CREATE TABLE {{table}} (position BIGINT NOT NULL{column})");
    Projection::new("orders", Category::View)
        .retry(at_once(2))
        .partitioned(2, By::Stream)
        .table("order_rows", &[&create, "CREATE INDEX {table}_by_position ON {table} (position)"])
        .each(move |tx: Tx, model: Model, event: Event| {
            let bad = bad.clone();
            async move {
                let (table, position) = (model.table("order_rows")?, event.position() as i64);
                if is_doubled {
                    let sql = format!("INSERT INTO {table} (position, twice) VALUES ($1, $2)");
                    tx.execute(&sql, params![position, position * 2]).await?;
                } else {
                    let sql = format!("INSERT INTO {table} (position) VALUES ($1)");
                    tx.execute(&sql, params![position]).await?;
                }
                bad.check(&event)
            }
        })
}

pub(super) async fn rows(store: &Store) -> Vec<u64> {
    let read = async |tx: Tx| {
        let rows = tx.query("SELECT position FROM order_rows ORDER BY position", &[]).await?;
        rows.iter().map(|row| row.get::<u64>(0)).collect::<mainstay_store::Result<Vec<_>>>()
    };
    store.read(read).await.unwrap()
}

pub(super) async fn exists(store: &Store, table: &str) -> bool {
    let sql = format!("SELECT count(*) FROM {table}");
    let look = async |tx: Tx, sql: String| tx.query(&sql, &[]).await;
    store.read_with(sql, look).await.is_ok()
}

#[test]
fn readers_see_a_whole_model_all_the_time() {
    for_each_store(async |place| {
        // In one lane, so that there are no gaps.
        let definition = managed(&Bad::default(), false).partitioned(1, By::Stream);
        let bench = Bench::open(&place, vec![definition]).await;
        let (projecting, engine) = bench.start().await;
        bench.append_many(400).await;
        bench.caught_up("orders").await;
        let (store, is_over) = (bench.store.clone(), Arc::new(AtomicBool::new(false)));
        let told = is_over.clone();
        let reader = tokio::spawn(async move {
            let (mut least, mut looks) = (400, 0);
            while !told.load(Ordering::SeqCst) {
                let seen = rows(&store).await;
                assert!(seen.len() >= least, "{} after {least}", seen.len());
                assert!(seen.iter().copied().eq(1..=seen.len() as u64), "a row is missing or double");
                (least, looks) = (seen.len(), looks + 1);
            }
            looks
        });
        for generation in 2..=4 {
            let rebuild = Rebuild::of("orders").from(0).chunk_size(50);
            let begun = bench.projections.trigger_rebuild(rebuild).await.unwrap();
            // b_197: the old version goes on being served, and with it what is live.
            while bench.projections.rebuild_status(&begun.replay_id).await.unwrap().status
                == ReplayStatus::Running
            {
                bench.append_many(5).await;
                bench.caught_up("orders").await;
                assert_eq!(bench.projections.status("orders").await.unwrap().status, Lifecycle::Active);
            }
            assert_eq!(ended(&bench, &begun.replay_id).await.status, ReplayStatus::Completed);
            assert_eq!(bench.projections.status("orders").await.unwrap().generation, generation);
        }
        is_over.store(true, Ordering::SeqCst);
        assert!(reader.await.unwrap() > 0);
        bench.append_many(20).await;
        bench.caught_up("orders").await;
        let head = bench.log.head().await.unwrap();
        assert_eq!(rows(&bench.store).await, (1..=head).collect::<Vec<u64>>());
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn an_old_generation_is_removed_when_nobody_can_read_it_any_more() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let bench = Bench::on(store, vec![managed(&Bad::default(), false)]).await;
        let engine = bench.work.start().await.unwrap();
        bench.append_many(30).await;
        for _ in 0..2 {
            let begun = bench.projections.trigger_rebuild(Rebuild::of("orders")).await.unwrap();
            assert_eq!(ended(&bench, &begun.replay_id).await.status, ReplayStatus::Completed);
            assert_eq!(rows(&bench.store).await.len(), 30);
        }
        for (table, is_there) in
            [("order_rows__g1", true), ("order_rows__g2", true), ("order_rows__g3", true)]
        {
            assert_eq!(exists(&bench.store, table).await, is_there, "{table}");
        }
        // A lease does not outlive that long a moment.
        engine.stop(PATIENCE).await.unwrap();
        time.advance(601_000).await.unwrap();
        let engine = bench.work.start().await.unwrap();
        until("both are removed", async || {
            engine.look_around();
            !exists(&bench.store, "order_rows__g1").await && !exists(&bench.store, "order_rows__g2").await
        })
        .await;
        assert_eq!(rows(&bench.store).await, (1..=30).collect::<Vec<u64>>());
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_cancelled_rebuild_leaves_what_readers_see() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, vec![managed(&Bad::default(), false)]).await;
        let projecting = bench.projections.start();
        bench.append_many(30).await;
        bench.caught_up("orders").await;
        let begun = bench.projections.trigger_rebuild(Rebuild::of("orders")).await.unwrap();
        assert!(exists(&bench.store, "order_rows__g2").await);
        bench.projections.cancel_rebuild(&begun.replay_id).await.unwrap();
        assert!(!exists(&bench.store, "order_rows__g2").await);
        bench.append_many(10).await;
        bench.caught_up("orders").await;
        assert_eq!(rows(&bench.store).await.len(), 40);
        // And another one can begin.
        let engine = bench.work.start().await.unwrap();
        let begun = bench.projections.trigger_rebuild(Rebuild::of("orders")).await.unwrap();
        assert_eq!(ended(&bench, &begun.replay_id).await.status, ReplayStatus::Completed);
        assert_eq!(rows(&bench.store).await.len(), 40);
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_model_of_another_shape_is_served_until_the_new_one_is_built() {
    for_each_lasting_store(async |place| {
        let bench = Bench::open(&place, vec![managed(&Bad::default(), false)]).await;
        let projecting = bench.projections.start();
        bench.append_many(60).await;
        bench.caught_up("orders").await;
        projecting.stop(PATIENCE).await;
        let Bench { store, log, work, projections } = bench;
        drop((log, work, projections));
        store.close().await;

        let store = components(place.options()).open().await.unwrap();
        let bench = Bench::on(store, vec![managed(&Bad::default(), true)]).await;
        let (projecting, engine) = bench.start().await;
        assert!(bench.projections.status("orders").await.unwrap().is_outdated);
        // The new handler does not write to the old table: readers see it as it was.
        bench.append_many(10).await;
        assert_eq!(rows(&bench.store).await.len(), 60);
        let begun = bench.projections.trigger_rebuild(Rebuild::of("orders")).await.unwrap();
        assert_eq!(ended(&bench, &begun.replay_id).await.status, ReplayStatus::Completed);
        bench.caught_up("orders").await;
        bench.append_many(10).await;
        bench.caught_up("orders").await;
        let sum = async |tx: Tx| {
            tx.query_one("SELECT CAST(sum(twice) AS BIGINT) FROM order_rows", &[]).await?.get::<i64>(0)
        };
        assert_eq!(bench.store.read(sum).await.unwrap(), 80 * 81);
        let status = bench.projections.status("orders").await.unwrap();
        assert_eq!((status.is_outdated, status.generation), (false, 2));
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn letters_follow_the_generation_that_readers_see() {
    for_each_store(async |place| {
        let bad = Bad::texts(&["bad"]);
        let bench = Bench::open(&place, vec![managed(&bad, false)]).await;
        let (projecting, engine) = bench.start().await;
        let first = bench.append("Noted", &["bad", "fine"]).await;
        bench.caught_up("orders").await;
        assert_eq!(rows(&bench.store).await, [2]);
        // The same event fails in the new generation too: there is one letter, and it can be tried again.
        let begun = bench.projections.trigger_rebuild(Rebuild::of("orders")).await.unwrap();
        assert_eq!(ended(&bench, &begun.replay_id).await.status, ReplayStatus::Completed);
        let letters = bench.projections.letters(LetterFilter::default(), 10).await.unwrap();
        assert_eq!(letters.iter().map(|letter| &letter.event_id).collect::<Vec<_>>(), [&first[0]]);
        bad.mend();
        let work = bench.projections.retry_letter("orders", &first[0]).await.unwrap();
        bench.work.wait_for(&work, PATIENCE).await.unwrap();
        until("it is applied", async || rows(&bench.store).await == [1, 2]).await;
        // A rebuild resolves what it could take.
        let begun = bench.projections.trigger_rebuild(Rebuild::of("orders")).await.unwrap();
        assert_eq!(ended(&bench, &begun.replay_id).await.status, ReplayStatus::Completed);
        assert_eq!(rows(&bench.store).await, [1, 2]);
        let stats = bench.projections.letter_stats().await.unwrap().by_projection_and_status;
        assert_eq!(
            stats.iter().map(|(name, count)| (name.as_str(), *count)).collect::<Vec<_>>(),
            [("orders:resolved", 1)]
        );
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_203_a_chunk_beside_that_runs_several_times_at_once_has_one_effect() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, vec![managed(&Bad::default(), false)]).await;
        bench.append_many(600).await;
        let rebuild = Rebuild::of("orders").from(0).chunk_size(300);
        let begun = bench.projections.trigger_rebuild(rebuild).await.unwrap();
        // Without a key they run beside each other, as on a node that has lost its lease and does not know it yet.
        for step in [1, 1, 1, 1, 2, 2] {
            let args = json!({ "replayId": begun.replay_id, "step": step });
            let again = NewWork::platform("eventReplayPool", "mainstay.replay.chunk", &args).unwrap();
            bench.work.enqueue(again).await.unwrap();
        }
        let engine = bench.work.start().await.unwrap();
        let progress = ended(&bench, &begun.replay_id).await;
        assert_eq!((progress.chunks_completed, progress.events_processed), (2, 600));
        until("nothing waits or runs", async || {
            let depth = bench.work.depth("eventReplayPool").await.unwrap();
            // The old generation is removed much later.
            (depth.pending, depth.running) == (1, 0)
        })
        .await;
        assert_eq!(rows(&bench.store).await, (1..=600).collect::<Vec<u64>>());
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn events_that_fail_at_the_switch_are_seen_to_before_it() {
    for_each_store(async |place| {
        let bad = Bad::texts(&["bad"]);
        let bench = Bench::open(&place, vec![managed(&bad, false)]).await;
        let (projecting, engine) = bench.start().await;
        bench.append("Noted", &["fine", "bad"]).await;
        bench.caught_up("orders").await;
        bench.work.pause("eventReplayPool").await.unwrap();
        let begun = bench.projections.trigger_rebuild(Rebuild::of("orders")).await.unwrap();
        // The lanes are ahead of where the replay was to end, with an event that fails as well.
        bench.append("Noted", &["bad", "fine"]).await;
        bench.caught_up("orders").await;
        bench.work.resume("eventReplayPool").await.unwrap();
        let progress = ended(&bench, &begun.replay_id).await;
        assert_eq!((progress.status, progress.events_processed), (ReplayStatus::Completed, 4));
        assert_eq!(rows(&bench.store).await, [1, 4]);
        let letters = bench.projections.letters(LetterFilter::default(), 10).await.unwrap();
        assert_eq!(letters.iter().map(|letter| letter.position).collect::<Vec<_>>(), [2, 3]);
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

/// A bench whose second event of many is bad, and a replay beside that has passed it and is paused.
async fn paused_behind_a_bad_event(
    place: &Place,
    bad: &Bad,
    definition: Projection,
) -> (Bench, String, String) {
    let bench = Bench::open(place, vec![definition.partitioned(1, By::Stream)]).await;
    let texts: Vec<&str> = (0..300).map(|number| if number == 1 { "bad" } else { "fine" }).collect();
    bad.spoil("bad");
    let ids = bench.append("Noted", &texts).await;
    let projecting = bench.projections.start();
    bench.caught_up("orders").await;
    projecting.stop(PATIENCE).await;
    let rebuild = Rebuild::of("orders").from(0).chunk_size(1);
    let replay_id = bench.projections.trigger_rebuild(rebuild).await.unwrap().replay_id;
    let engine = bench.work.start().await.unwrap();
    until("the replay is past the bad event", async || {
        bench.projections.rebuild_status(&replay_id).await.unwrap().events_processed > 2
    })
    .await;
    bench.projections.pause_rebuild(&replay_id).await.unwrap();
    engine.stop(PATIENCE).await.unwrap();
    bad.mend();
    (bench, ids[1].clone(), replay_id)
}

#[test]
fn a_letter_that_is_tried_again_is_that_of_the_model_that_readers_see() {
    for_each_store(async |place| {
        let bad = Bad::default();
        let (bench, event_id, replay_id) =
            paused_behind_a_bad_event(&place, &bad, managed(&bad, false)).await;
        let running = bench.start().await;
        bench.projections.retry_letter("orders", &event_id).await.unwrap();
        until("it is in the model that readers see", async || rows(&bench.store).await.contains(&2)).await;
        let resolved = bench.projections.letter("orders", &event_id).await.unwrap();
        assert_eq!(resolved.status, LetterStatus::Resolved);
        bench.projections.resume_rebuild(&replay_id).await.unwrap();
        assert_eq!(ended(&bench, &replay_id).await.status, ReplayStatus::Completed);
        assert!(!rows(&bench.store).await.contains(&2), "the new one had given it up before");
        let letter = bench.projections.letter("orders", &event_id).await.unwrap();
        assert_eq!(letter.status, LetterStatus::Pending, "and that is known");
        running.0.stop(PATIENCE).await;
        running.1.stop(PATIENCE).await.unwrap();
    });
}

/// Kinds and states of dead letters.
async fn listed(bench: &Bench) -> Vec<(Kind, Status)> {
    let read = async |tx: Tx| inbox::page(&tx, &inbox::Filter::default(), None, 10).await;
    let page = bench.store.read(read).await.unwrap();
    page.letters.into_iter().map(|letter| (letter.kind, letter.status)).collect()
}

#[test]
fn an_event_that_is_let_out_beside_a_replay_is_still_aside_in_the_new_model() {
    for_each_store(async |place| {
        let bad = Bad::default();
        let definition = managed(&bad, false).poison(Poison::new(1, false));
        let (bench, event_id, replay_id) = paused_behind_a_bad_event(&place, &bad, definition).await;
        let running = bench.start().await;
        bench.projections.unquarantine("orders", &event_id).await.unwrap();
        until("it is in the model that readers see", async || rows(&bench.store).await.contains(&2)).await;
        assert!(!bench.projections.is_quarantined("orders", &event_id).await.unwrap());
        assert_eq!(listed(&bench).await, [(Kind::QuarantinedEvent, Status::Resolved)]);
        bench.projections.resume_rebuild(&replay_id).await.unwrap();
        assert_eq!(ended(&bench, &replay_id).await.status, ReplayStatus::Completed);
        assert!(!rows(&bench.store).await.contains(&2));
        assert!(bench.projections.is_quarantined("orders", &event_id).await.unwrap(), "which is known");
        assert_eq!(listed(&bench).await, [(Kind::QuarantinedEvent, Status::Pending)]);
        bench.projections.unquarantine("orders", &event_id).await.unwrap();
        until("it is in the new one too", async || rows(&bench.store).await.contains(&2)).await;
        running.0.stop(PATIENCE).await;
        running.1.stop(PATIENCE).await.unwrap();
    });
}
