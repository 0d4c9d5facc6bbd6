//! Poison events: items 185 to 191.

use super::support::{Bad, Bench, PATIENCE, noting, noting_unless, until};
use mainstay_events::NewEvent;
use mainstay_flows::projections::failures::{LetterFilter, PoisonStatus};
use mainstay_flows::projections::{Poison, Projection, Quarantined};
use mainstay_store::Tx;
use mainstay_testkit::stores::for_each_store;
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
struct Alerts(Arc<Mutex<Vec<Quarantined>>>);

impl Alerts {
    fn all(&self) -> Vec<Quarantined> {
        self.0.lock().unwrap().clone()
    }
}

fn poisoned(name: &str, bad: &Bad, alert: bool, alerts: &Alerts) -> Projection {
    let told = alerts.clone();
    let poison = Poison::new(3, alert).on_quarantine(move |event| told.0.lock().unwrap().push(event));
    noting_unless(name, bad).poison(poison)
}

#[test]
fn b_185_186_187_188_the_third_failure_quarantines_and_later_events_go_on() {
    for_each_store(async |place| {
        let (bad, alerts) = (Bad::texts(&["bad", "panic"]), Alerts::default());
        let bench = Bench::open(&place, vec![poisoned("a", &bad, true, &alerts), noting("other")]).await;
        let ids = bench.append("Noted", &["fine", "bad", "fine", "panic", "fine"]).await;
        let projecting = bench.projections.start();
        bench.caught_up("a").await;
        bench.caught_up("other").await;
        assert_eq!(bench.noted("a").await, [1, 3, 5]);
        assert_eq!(bench.noted("other").await, [1, 2, 3, 4, 5]);
        let record = bench.projections.poison_event("a", &ids[1]).await.unwrap().unwrap();
        assert_eq!((record.status, record.attempts), (PoisonStatus::Quarantined, 3));
        assert_eq!((record.error.as_str(), record.position), ("cannot take bad", 2));
        until("both alerts were told", async || alerts.all().len() == 2).await;
        let first = &alerts.all()[0];
        let expected = Quarantined {
            event_id: ids[1].clone(),
            projection_name: "a".to_owned(),
            attempts: 3,
            error: "cannot take bad".to_owned(),
        };
        assert_eq!(*first, expected);
        assert!(alerts.all()[1].error.contains("cannot take panic"), "{:?}", alerts.all()[1]);
        let status = bench.projections.status("a").await.unwrap();
        assert_eq!((status.events_processed, status.events_failed, status.lag), (3, 2, 0));
        // Met again, it is left out silently.
        bench.projections.set_checkpoint("a", 0, 0).await.unwrap();
        until("the rest is applied again", async || bench.noted("a").await.len() == 6).await;
        assert_eq!(alerts.all().len(), 2);
        projecting.stop(PATIENCE).await;
    });
}

#[test]
fn b_186_failures_before_the_last_are_counted_and_an_event_that_recovers_is_forgotten() {
    for_each_store(async |place| {
        let (bad, alerts) = (Bad::texts(&["bad"]), Alerts::default());
        let slow = mainstay_core::retry::RetryPolicy::new(3, 60_000, 1.0, 60_000).unwrap();
        let bench = Bench::open(&place, vec![poisoned("a", &bad, true, &alerts).retry(slow)]).await;
        let ids = bench.append("Noted", &["fine", "bad"]).await;
        let projecting = bench.projections.start();
        let attempts = async || {
            let found = bench.projections.poison_event("a", &ids[1]).await.unwrap();
            found.map_or(0, |record| record.attempts)
        };
        until("a failure is counted", async || attempts().await == 1).await;
        assert!(!bench.projections.is_quarantined("a", &ids[1]).await.unwrap());
        assert_eq!(bench.noted("a").await, [1]);
        projecting.stop(PATIENCE).await;
        // The count is in the database: another node goes on with it.
        let projecting = bench.projections.start();
        until("the next one too", async || attempts().await == 2).await;
        projecting.stop(PATIENCE).await;
        bad.mend();
        let projecting = bench.projections.start();
        bench.caught_up("a").await;
        assert_eq!(bench.noted("a").await, [1, 2]);
        assert_eq!(bench.projections.poison_event("a", &ids[1]).await.unwrap(), None);
        assert!(alerts.all().is_empty());
        projecting.stop(PATIENCE).await;
    });
}

#[test]
fn b_187_without_alerts_nobody_is_called() {
    for_each_store(async |place| {
        let (bad, alerts) = (Bad::texts(&["bad"]), Alerts::default());
        let bench = Bench::open(&place, vec![poisoned("a", &bad, false, &alerts)]).await;
        bench.append("Noted", &["bad"]).await;
        let projecting = bench.projections.start();
        bench.caught_up("a").await;
        projecting.stop(PATIENCE).await;
        assert_eq!(bench.projections.poison_stats().await.unwrap().total, 1);
        assert!(alerts.all().is_empty());
    });
}

#[test]
fn b_189_190_an_event_that_is_let_out_is_applied_and_its_record_removed() {
    for_each_store(async |place| {
        let (bad, alerts) = (Bad::texts(&["bad", "worse"]), Alerts::default());
        let definitions = vec![poisoned("a", &bad, true, &alerts), poisoned("b", &bad, true, &alerts)];
        let bench = Bench::open(&place, definitions).await;
        let (projecting, engine) = bench.start().await;
        let ids = bench.append("Noted", &["bad", "fine", "worse"]).await;
        bench.caught_up("a").await;
        bench.caught_up("b").await;
        let stats = bench.projections.poison_stats().await.unwrap();
        assert_eq!((stats.total, stats.by_projection["a"], stats.by_projection["b"]), (4, 2, 2));
        let listed = bench.projections.quarantined(Some("a"), None, 10).await.unwrap();
        assert_eq!(listed.iter().map(|one| &one.event_id).collect::<Vec<_>>(), [&ids[0], &ids[2]]);
        // It fails again: it goes back to quarantine, after three more attempts.
        let work = bench.projections.unquarantine("a", &ids[0]).await.unwrap();
        bench.work.wait_for(&work, PATIENCE).await.unwrap();
        assert!(bench.projections.is_quarantined("a", &ids[0]).await.unwrap());
        assert_eq!(bench.noted("a").await, [2]);
        bad.mend();
        // Until it is applied it is known as let out, with its attempts forgotten.
        bench.work.pause("projectionPool").await.unwrap();
        let work = bench.projections.unquarantine("a", &ids[0]).await.unwrap();
        let released = bench.projections.poison_event("a", &ids[0]).await.unwrap().unwrap();
        assert_eq!((released.status, released.attempts), (PoisonStatus::Replayed, 0));
        let twice = bench.projections.unquarantine("a", &ids[0]).await.unwrap_err();
        assert_eq!(twice.code(), "EVENT_NOT_QUARANTINED");
        bench.work.resume("projectionPool").await.unwrap();
        bench.work.wait_for(&work, PATIENCE).await.unwrap();
        assert_eq!(bench.noted("a").await, [1, 2]);
        assert_eq!(bench.projections.poison_event("a", &ids[0]).await.unwrap(), None);
        let unknown = bench.projections.unquarantine("a", &ids[1]).await.unwrap_err();
        assert_eq!(unknown.code(), "EVENT_NOT_QUARANTINED");
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_191_an_event_can_be_left_for_good_or_made_up_for() {
    for_each_store(async |place| {
        let (bad, alerts) = (Bad::texts(&["bad", "worse"]), Alerts::default());
        let bench = Bench::open(&place, vec![poisoned("a", &bad, true, &alerts)]).await;
        let projecting = bench.projections.start();
        let ids = bench.append("Noted", &["bad", "worse"]).await;
        bench.caught_up("a").await;
        bench.projections.ignore_quarantined("a", &ids[0]).await.unwrap();
        let makes_up = NewEvent::new("Noted", &"instead").unwrap().causation(&ids[1]);
        bench.projections.compensate("a", &ids[1], makes_up.into()).await.unwrap();
        bench.caught_up("a").await;
        assert_eq!(bench.noted("a").await, [3]);
        assert_eq!(bench.projections.poison_stats().await.unwrap().total, 0);
        let record = bench.projections.poison_event("a", &ids[0]).await.unwrap().unwrap();
        assert_eq!(record.status, PoisonStatus::Ignored);
        // Ignored ones stay out, also when they could be taken.
        bad.mend();
        bench.projections.set_checkpoint("a", 0, 0).await.unwrap();
        until("the rest is applied again", async || bench.noted("a").await.len() == 2).await;
        assert_eq!(bench.noted("a").await, [3, 3]);
        projecting.stop(PATIENCE).await;
    });
}

#[test]
fn c_041_what_is_quarantined_is_no_letter_of_its_projection() {
    for_each_store(async |place| {
        let (bad, alerts) = (Bad::texts(&["bad"]), Alerts::default());
        let bench =
            Bench::open(&place, vec![poisoned("a", &bad, true, &alerts), noting_unless("b", &bad)]).await;
        bench.append("Noted", &["bad"]).await;
        let projecting = bench.projections.start();
        bench.caught_up("a").await;
        bench.caught_up("b").await;
        projecting.stop(PATIENCE).await;
        let letters = bench.projections.letters(LetterFilter::default(), 10).await.unwrap();
        let named: Vec<&str> = letters.iter().map(|letter| &*letter.projection_name).collect();
        assert_eq!(named, ["b"], "only where nothing is quarantined");
        let list = async |tx: Tx| {
            mainstay_work::inbox::page(&tx, &mainstay_work::inbox::Filter::default(), None, 10).await
        };
        let listed = bench.store.read(list).await.unwrap();
        let mut named: Vec<(&str, &str)> =
            listed.letters.iter().map(|letter| (&*letter.name, letter.kind.as_str())).collect();
        named.sort_unstable();
        assert_eq!(named, [("a", "quarantinedEvent"), ("b", "projection")]);
        assert_eq!(bench.projections.poison_stats().await.unwrap().total, 1);
    });
}
