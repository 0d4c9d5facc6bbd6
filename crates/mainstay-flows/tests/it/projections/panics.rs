//! Panics outside of a handler: none of them stops a read model without a word.

use super::support::{Bad, Bench, PATIENCE, noting, noting_unless, until};
use mainstay_core::failpoints::{Action, Point};
use mainstay_events::Event;
use mainstay_flows::projections::failures::LetterStatus;
use mainstay_flows::projections::{By, Lifecycle, Poison};
use mainstay_testkit::stores::for_each_store;

/// Keys that are made of what an event says, unless that is bad.
fn by_text(bad: &Bad) -> By {
    let bad = bad.clone();
    By::custom(move |event: &Event| {
        if let Err(error) = bad.check(event) {
            panic!("{error}");
        }
        event.position().to_string()
    })
}

#[test]
fn an_event_whose_key_panics_is_a_letter_and_the_lanes_go_on() {
    for_each_store(async |place| {
        let bad = Bad::texts(&["bad"]);
        let bench = Bench::open(&place, vec![noting("a").partitioned(3, by_text(&bad))]).await;
        let (projecting, engine) = bench.start().await;
        let texts: Vec<&str> = (1..=40).map(|number| if number % 20 == 7 { "bad" } else { "fine" }).collect();
        let ids = bench.append("Noted", &texts).await;
        bench.caught_up("a").await;
        let fine: Vec<u64> = (1..=40).filter(|position| position % 20 != 7).collect();
        assert_eq!(bench.noted("a").await, fine);
        let letter = bench.projections.letter("a", &ids[6]).await.unwrap();
        assert_eq!(letter.status, LetterStatus::Pending);
        assert!(letter.error.contains("key panicked: cannot take bad"), "{}", letter.error);
        // Tried again it fails again, and once the key is mended it is in the read model.
        let again = bench.projections.retry_letter("a", &ids[6]).await.unwrap();
        bench.work.wait_for(&again, PATIENCE).await.unwrap();
        let letter = bench.projections.letter("a", &ids[6]).await.unwrap();
        assert_eq!(letter.status, LetterStatus::Pending);
        bad.mend();
        bench.projections.retry_letter("a", &ids[6]).await.unwrap();
        until("it is applied", async || bench.noted("a").await.contains(&7)).await;
        let status = bench.projections.status("a").await.unwrap();
        assert_eq!((status.status, status.events_failed), (Lifecycle::Active, 2));
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn an_event_whose_key_panics_is_quarantined_once() {
    for_each_store(async |place| {
        let bad = Bad::texts(&["bad"]);
        let definition = noting_unless("a", &Bad::default()).partitioned(2, by_text(&bad));
        let bench = Bench::open(&place, vec![definition.poison(Poison::new(2, true))]).await;
        let projecting = bench.projections.start();
        let ids = bench.append("Noted", &["fine", "bad", "fine"]).await;
        bench.caught_up("a").await;
        let record = bench.projections.poison_event("a", &ids[1]).await.unwrap().unwrap();
        assert_eq!((bench.noted("a").await, record.attempts), (vec![1, 3], 2));
        bench.projections.ignore_quarantined("a", &ids[1]).await.unwrap();
        // Met again, it is left out silently.
        for lane in 0..2 {
            bench.projections.set_checkpoint("a", lane, 0).await.unwrap();
        }
        until("the rest is applied again", async || bench.noted("a").await == [1, 1, 3, 3]).await;
        bench.caught_up("a").await;
        let ignored = bench.projections.poison_event("a", &ids[1]).await.unwrap().unwrap();
        assert_eq!(ignored.attempts, 2);
        assert_eq!(bench.projections.poison_stats().await.unwrap().total, 0);
        projecting.stop(PATIENCE).await;
    });
}

#[test]
fn a_projector_that_dies_is_begun_again_and_one_that_dies_each_time_is_seen() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, vec![noting("a")]).await;
        let points = bench.store.failpoints().clone();
        points.arm(Point::ProjectionsStep, Action::Panic, 0, 2);
        let projecting = bench.projections.start();
        bench.append_many(3).await;
        bench.caught_up("a").await;
        assert_eq!(bench.noted("a").await, [1, 2, 3]);
        points.arm(Point::ProjectionsStep, Action::Panic, 0, u64::MAX);
        bench.append_many(1).await;
        let status = async || bench.projections.status("a").await.unwrap();
        until("it stops", async || status().await.status == Lifecycle::Error).await;
        let error = status().await.error_message.unwrap();
        assert!(error.contains("failpoint projections.step"), "{error}");
        points.arm(Point::ProjectionsStep, Action::Panic, 0, 0);
        bench.projections.recover("a").await.unwrap();
        bench.caught_up("a").await;
        assert_eq!(bench.noted("a").await, [1, 2, 3, 4]);
        projecting.stop(PATIENCE).await;
    });
}
