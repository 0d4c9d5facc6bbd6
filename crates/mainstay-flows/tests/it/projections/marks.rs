//! When events came into read models, and which were left out: items 225 to 227.

use super::support::{Bench, PATIENCE, components, noting, until};
use mainstay_events::Selection;
use mainstay_flows::projections::replay::{Rebuild, ReplayStatus};
use mainstay_store::{Store, Tx};
use mainstay_testkit::stores::for_each_store;
use mainstay_testkit::time::{START_MS, VirtualTime};

const DAY_MS: i64 = 86_400_000;

/// Follows the log until everything is in the read model. A projector that has just begun knows of no move before it.
async fn follow(bench: &Bench) {
    let projecting = bench.projections.start();
    bench.caught_up("a").await;
    projecting.stop(PATIENCE).await;
}

/// The positions that are in the read model, each with its time.
async fn updates(bench: &Bench) -> Vec<(u64, i64)> {
    let page = bench.log.read(&Selection::all(), 100).await.unwrap();
    let updates = bench.projections.updates(&page.events).await.unwrap();
    let position =
        |event_id: &str| page.events.iter().find(|event| event.id() == event_id).unwrap().position();
    updates.iter().map(|update| (position(&update.event_id), update.updated_at)).collect()
}

async fn positions(bench: &Bench) -> Vec<u64> {
    updates(bench).await.into_iter().map(|(position, _)| position).collect()
}

async fn count(store: &Store) -> u64 {
    let read = async |tx: Tx| {
        tx.query_one("SELECT count(*) FROM mainstay_projection_marks", &[]).await?.get::<u64>(0)
    };
    store.read(read).await.unwrap()
}

#[test]
fn b_225_an_update_has_the_time_of_its_event_and_not_of_the_last_one() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let bench = Bench::on(store, vec![noting("a")]).await;
        for _ in 0..3 {
            bench.append("Noted", &["x", "y"]).await;
            follow(&bench).await;
            time.advance(60_000).await.unwrap();
        }
        let expected: Vec<(u64, i64)> =
            (0..6).map(|index| (index + 1, START_MS + index as i64 / 2 * 60_000)).collect();
        assert_eq!(updates(&bench).await, expected);
    });
}

#[test]
fn what_an_operator_passes_over_is_in_no_read_model() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, vec![noting("a")]).await;
        bench.append("Noted", &["x", "x"]).await;
        follow(&bench).await;
        bench.append("Noted", &["x"; 4]).await;
        bench.projections.set_checkpoint("a", 0, 5).await.unwrap();
        follow(&bench).await;
        assert_eq!(bench.noted("a").await, [1, 2, 6]);
        assert_eq!(positions(&bench).await, [1, 2, 6], "3 to 5 were left out");
        // A part of it is applied after all.
        bench.projections.set_checkpoint("a", 0, 4).await.unwrap();
        follow(&bench).await;
        assert_eq!(positions(&bench).await, [1, 2, 5, 6]);
        // All of it is.
        let engine = bench.work.start().await.unwrap();
        let begun = bench.projections.trigger_rebuild(Rebuild::of("a").from(0)).await.unwrap();
        until("it is filled anew", async || {
            bench.projections.rebuild_status(&begun.replay_id).await.unwrap().status
                == ReplayStatus::Completed
        })
        .await;
        assert_eq!(positions(&bench).await, [1, 2, 3, 4, 5, 6]);
        assert_eq!(bench.noted("a").await, [1, 2, 3, 4, 5, 6]);
        // A replay from further on leaves out what lies before it.
        bench.append("Noted", &["x"; 4]).await;
        let begun = bench.projections.trigger_rebuild(Rebuild::of("a").from(8)).await.unwrap();
        until("that is done, too", async || {
            bench.projections.rebuild_status(&begun.replay_id).await.unwrap().status
                == ReplayStatus::Completed
        })
        .await;
        assert_eq!(positions(&bench).await, [1, 2, 3, 4, 5, 6, 9, 10]);
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn marks_are_forgotten_after_a_week_except_of_what_was_left_out() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let bench = Bench::on(store, vec![noting("a")]).await;
        bench.append("Noted", &["x"]).await;
        bench.projections.set_checkpoint("a", 0, 1).await.unwrap();
        for _ in 0..5 {
            bench.append("Noted", &["x"]).await;
            follow(&bench).await;
        }
        assert_eq!(count(&bench.store).await, 5, "where it was put, and four places that it has left");
        time.advance(8 * DAY_MS).await.unwrap();
        for _ in 0..4 {
            bench.append("Noted", &["x"]).await;
            follow(&bench).await;
        }
        assert_eq!(count(&bench.store).await, 4, "where it was put, and three places of today");
        assert_eq!(positions(&bench).await, (2..=10).collect::<Vec<u64>>());
    });
}
