//! Quarantined events are dead letters: they are listed, retried, ignored and purged like letters of other kinds.

use super::bench::{about, components, of_kind};
use crate::projections::support::{Bad, Bench, PATIENCE, noting_unless, until};
use mainstay_flows::dead_letters::{
    Action, DeadLetters, Filter, Kind, Listed, Operation, OperationStatus, Sources, Status, Upkeep,
};
use mainstay_flows::projections::failures::PoisonStatus;
use mainstay_flows::projections::{Poison, Projection};
use mainstay_testkit::stores::{Place, for_each_store};

const KIND: &str = "quarantinedEvent";

fn poisoned(name: &str, bad: &Bad, attempts: u32) -> Projection {
    noting_unless(name, bad).poison(Poison::new(attempts, false))
}

async fn open(place: &Place, definitions: Vec<Projection>) -> (Bench, DeadLetters) {
    let store = components(place.options()).open().await.unwrap();
    let bench = Bench::on(store, definitions).await;
    let sources = Sources::default().with(bench.projections.clone());
    let letters = DeadLetters::open(&bench.work, sources, Upkeep::none()).await.unwrap();
    (bench, letters)
}

async fn list(letters: &DeadLetters, filter: Filter) -> Vec<Listed> {
    letters.list(filter, None, 1_000).await.unwrap().letters
}

async fn count(letters: &DeadLetters, status: Status) -> u64 {
    letters.stats(Filter { status: Some(status), ..of_kind(KIND) }).await.unwrap().total
}

/// Previews an operation, runs it and waits for its end.
async fn carry_out(letters: &DeadLetters, action: Action, filter: Filter) -> Operation {
    let previewed = letters.preview(action, filter, "ann").await.unwrap();
    let ids = previewed.operation_id;
    letters.run(&ids).await.unwrap();
    until("an operation ends", async || {
        letters.operation(&ids).await.unwrap().status == OperationStatus::Done
    })
    .await;
    letters.operation(&ids).await.unwrap()
}

#[test]
fn b_187_189_191_a_quarantined_event_is_retried_and_ignored_as_a_dead_letter() {
    for_each_store(async |place| {
        let bad = Bad::texts(&["bad", "worse"]);
        let (bench, letters) = open(&place, vec![poisoned("a", &bad, 3)]).await;
        let (projecting, engine) = bench.start().await;
        let ids = bench.append("Noted", &["bad", "fine", "worse"]).await;
        bench.caught_up("a").await;
        let mut listed = list(&letters, of_kind(KIND)).await;
        listed.sort_by_key(|letter| letter.number);
        let shown: Vec<_> = listed.iter().map(|one| (&*one.name, &*one.reference, one.status)).collect();
        assert_eq!(shown, [("a", &*ids[0], Status::Pending), ("a", &*ids[2], Status::Pending)]);
        assert_eq!(listed[0].error, "cannot take bad");
        let [first, second] = [listed[0].number, listed[1].number];
        let detail = letters.get(first).await.unwrap();
        let told = about(&detail, KIND);
        assert_eq!((&told["payload"], &told["status"]), (&"bad".into(), &"quarantined".into()));
        assert_eq!(detail.attempts.len(), 3, "{detail:?}");

        // It fails again: it is the same letter, with all that has failed.
        letters.retry(first, "ann").await.unwrap();
        let status = async |number| letters.get(number).await.unwrap().letter.status;
        until("it fails again", async || status(first).await == Status::Pending).await;
        assert!(bench.projections.is_quarantined("a", &ids[0]).await.unwrap());
        let detail = letters.get(first).await.unwrap();
        assert_eq!((detail.letter.retry_count, detail.attempts.len()), (1, 6), "{detail:?}");

        bad.mend();
        bench.work.pause("projectionPool").await.unwrap();
        letters.retry(first, "ann").await.unwrap();
        let record = bench.projections.poison_event("a", &ids[0]).await.unwrap().unwrap();
        assert_eq!((record.status, record.attempts), (PoisonStatus::Replayed, 0));
        assert_eq!(status(first).await, Status::Retrying);
        for refused in [letters.retry(first, "ann").await, letters.ignore(first, "ann").await] {
            assert_eq!(refused.unwrap_err().code(), "DEAD_LETTER_NOT_PENDING");
        }
        bench.work.resume("projectionPool").await.unwrap();
        until("it is resolved", async || status(first).await == Status::Resolved).await;
        assert_eq!(bench.noted("a").await, [1, 2]);
        assert_eq!(bench.projections.poison_event("a", &ids[0]).await.unwrap(), None, "item 189");
        assert!(letters.get(first).await.unwrap().about.is_empty());

        letters.ignore(second, "ann").await.unwrap();
        let record = bench.projections.poison_event("a", &ids[2]).await.unwrap().unwrap();
        assert_eq!((record.status, status(second).await), (PoisonStatus::Ignored, Status::Ignored));
        letters.retry(second, "ann").await.unwrap();
        until("it is in the model after all", async || status(second).await == Status::Resolved).await;
        assert_eq!(bench.noted("a").await, [1, 2, 3]);
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_189_191_what_is_done_by_the_projections_own_calls_is_seen_in_the_inbox() {
    for_each_store(async |place| {
        let bad = Bad::texts(&["bad", "worse"]);
        let (bench, letters) = open(&place, vec![poisoned("a", &bad, 1)]).await;
        let (projecting, engine) = bench.start().await;
        let ids = bench.append("Noted", &["bad", "worse"]).await;
        bench.caught_up("a").await;
        bench.projections.ignore_quarantined("a", &ids[0]).await.unwrap();
        bad.mend();
        bench.projections.unquarantine("a", &ids[1]).await.unwrap();
        until("it is resolved", async || count(&letters, Status::Resolved).await == 1).await;
        assert_eq!((count(&letters, Status::Ignored).await, count(&letters, Status::Pending).await), (1, 0));
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn quarantined_events_are_retried_and_purged_by_the_hundred() {
    const MANY: usize = 300;
    for_each_store(async |place| {
        let bad = Bad::texts(&["bad"]);
        let (bench, letters) = open(&place, vec![poisoned("a", &bad, 1)]).await;
        let (projecting, engine) = bench.start().await;
        bench.append("Noted", &["bad"; MANY]).await;
        bench.caught_up("a").await;
        assert_eq!(count(&letters, Status::Pending).await, MANY as u64);
        bad.mend();
        let retried = carry_out(&letters, Action::Retry, of_kind(KIND)).await;
        let counted = (retried.total, retried.done, retried.failed, retried.left);
        assert_eq!(counted, (MANY as u64, MANY as u64, 0, 0), "{retried:?}");
        assert_eq!((&retried.preview[0].kind, &*retried.preview[0].name), (&Kind::QuarantinedEvent, "a"));
        until("all are resolved", async || count(&letters, Status::Resolved).await == MANY as u64).await;
        assert_eq!(bench.noted("a").await.len(), MANY);
        assert_eq!(bench.projections.poison_stats().await.unwrap().total, 0);
        assert_eq!(carry_out(&letters, Action::Purge, of_kind(KIND)).await.done, MANY as u64);
        assert!(list(&letters, Filter::default()).await.is_empty());
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn quarantined_events_are_ignored_and_purged_by_filter() {
    for_each_store(async |place| {
        let bad = Bad::texts(&["bad"]);
        let definitions = vec![poisoned("a", &bad, 1), poisoned("b", &bad, 1), noting_unless("c", &bad)];
        let (bench, letters) = open(&place, definitions).await;
        let (projecting, engine) = bench.start().await;
        let ids = bench.append("Noted", &["bad", "bad"]).await;
        for name in ["a", "b", "c"] {
            bench.caught_up(name).await;
        }
        let of_b = Filter { name: Some("b".to_owned()), ..of_kind(KIND) };
        assert_eq!(carry_out(&letters, Action::Ignore, of_b.clone()).await.done, 2);
        let stats = letters.stats(Filter::default()).await.unwrap();
        let mut counts: Vec<_> =
            stats.counts.iter().map(|one| (one.kind.as_str(), &*one.name, one.status, one.count)).collect();
        counts.sort_unstable();
        let expected = [
            ("projection", "c", Status::Pending, 2),
            (KIND, "a", Status::Pending, 2),
            (KIND, "b", Status::Ignored, 2),
        ];
        assert_eq!(counts, expected);
        // Of what is purged nothing is known any more.
        let ignored = Filter { status: Some(Status::Ignored), ..of_b };
        assert_eq!(carry_out(&letters, Action::Purge, ignored).await.done, 2);
        assert_eq!(bench.projections.poison_event("b", &ids[0]).await.unwrap(), None);
        assert!(bench.projections.poison_event("a", &ids[0]).await.unwrap().is_some());
        assert!(bench.projections.letter("c", &ids[0]).await.is_ok());
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn an_event_of_a_projection_that_loses_its_poison_handling_changes_its_kind() {
    for_each_store(async |place| {
        let bad = Bad::texts(&["bad"]);
        let store = components(place.options()).open().await.unwrap();
        let bench = Bench::on(store.clone(), vec![poisoned("a", &bad, 1)]).await;
        let projecting = bench.projections.start();
        let ids = bench.append("Noted", &["bad"]).await;
        bench.caught_up("a").await;
        projecting.stop(PATIENCE).await;
        // Let out, but not applied yet when another version of the program comes to the event again.
        bench.projections.unquarantine("a", &ids[0]).await.unwrap();
        let bench = Bench::on(store, vec![noting_unless("a", &bad)]).await;
        bench.projections.set_checkpoint("a", 0, 0).await.unwrap();
        let projecting = bench.projections.start();
        bench.caught_up("a").await;
        projecting.stop(PATIENCE).await;
        let sources = Sources::default().with(bench.projections.clone());
        let letters = DeadLetters::open(&bench.work, sources, Upkeep::none()).await.unwrap();
        let listed = list(&letters, Filter::default()).await;
        let shown: Vec<_> = listed.iter().map(|one| (one.kind.as_str(), one.status)).collect();
        assert_eq!(shown, [("projection", Status::Pending)]);
    });
}
