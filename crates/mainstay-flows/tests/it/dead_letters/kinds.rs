//! Letters of every kind are rows of one inbox, and are dealt with in one way.

use super::bench::{Bench, PATIENCE, SHOP, about, of_kind, text, until};
use mainstay_flows::dead_letters::{Action, Filter, OperationStatus, Status};
use mainstay_flows::delivery::{appends, publications};
use mainstay_testkit::stores::{Place, for_each_lasting_store, for_each_store};
use mainstay_work::NewWork;
use std::collections::BTreeSet;

pub(super) const KINDS: [&str; 5] = ["append", "onComplete", "projection", "publication", "work"];

/// One letter of every kind.
pub(super) async fn one_of_each(place: &Place) -> Bench {
    let bench = Bench::open(place).await;
    fail_once_each(&bench).await;
    bench
}

/// One letter of every kind.
pub(super) async fn fail_once_each(bench: &Bench) {
    let engine = bench.start().await;
    bench.charge(["o1".to_owned()]).await;
    let telling = NewWork::new(SHOP, "nothing", "x").unwrap().on_complete("told", "t1").unwrap();
    bench.work.enqueue(telling.correlated("corr-told")).await.unwrap();
    bench.append_late("late").await;
    bench.drained(appends::APPEND_POOL).await;
    let event_id = bench.spoiled_event("corr-bad").await;
    let projecting = bench.projections.start();
    let head = bench.log.head().await.unwrap();
    bench.projections.wait_for("orders", head, PATIENCE).await.unwrap();
    projecting.stop(PATIENCE).await;
    bench.publish(&event_id).await;
    bench.drained(publications::POOL).await;
    bench.drained(SHOP).await;
    until("there is a letter of every kind", async || bench.count(Status::Pending).await == 5).await;
    engine.stop(PATIENCE).await.unwrap();
}

#[test]
fn letters_of_every_kind_are_listed_once_with_what_they_belong_to() {
    for_each_store(async |place| {
        let bench = one_of_each(&place).await;
        let all = bench.list(Filter::default()).await;
        let kinds: BTreeSet<&str> = all.iter().map(|letter| letter.kind.as_str()).collect();
        assert_eq!((all.len(), kinds), (5, BTreeSet::from(KINDS)), "{all:#?}");
        let stats = bench.letters.stats(Filter::default()).await.unwrap();
        assert_eq!((stats.total, stats.pending), (5, 5));
        assert_eq!(stats.oldest_pending, all.iter().map(|letter| letter.failed_at).min());
        let named: Vec<(&str, &str)> =
            stats.counts.iter().map(|one| (one.kind.as_str(), one.name.as_str())).collect();
        let expected = [
            ("append", "mainstay.append"),
            ("onComplete", "told"),
            ("projection", "orders"),
            ("publication", "inventory"),
            ("work", "charge"),
        ];
        assert_eq!(named, expected);
        let of_projections: Vec<_> = stats.by_projection_and_status.iter().collect();
        assert_eq!(of_projections, [(&"orders:pending".to_owned(), &1)]);
        for (correlation, kinds) in [
            ("corr-bad", vec!["projection", "publication"]),
            ("corr-told", vec!["onComplete"]),
            ("corr-late", vec!["append"]),
        ] {
            let filter = Filter { correlation_id: Some(correlation.to_owned()), ..Filter::default() };
            let mut found: Vec<String> =
                bench.list(filter).await.into_iter().map(|letter| letter.kind.to_string()).collect();
            found.sort();
            assert_eq!(found, kinds);
        }
        // All that is needed to understand it is there.
        for letter in &all {
            let detail = bench.letters.get(letter.number).await.unwrap();
            let told = detail.about.keys().copied().collect::<Vec<_>>();
            match letter.kind.as_str() {
                // It was tried three times before it was passed over.
                "projection" => assert_eq!((told, detail.attempts.len()), (vec!["projection"], 3)),
                "publication" => assert_eq!((told, detail.attempts.len()), (vec!["publication"], 1)),
                _ => assert_eq!((told, detail.attempts.len()), (vec!["work"], 1)),
            }
        }
    });
}

#[test]
fn letters_of_every_kind_are_retried_and_resolved_one_by_one() {
    for_each_store(async |place| {
        let bench = one_of_each(&place).await;
        bench.mend();
        for kind in KINDS {
            let letter = bench.list(of_kind(kind)).await.remove(0);
            let operation = bench.letters.retry(letter.number, "ann").await.unwrap();
            assert_eq!(
                (operation.status, operation.done, &*operation.asked_by),
                (OperationStatus::Done, 1, "ann")
            );
            let retrying = bench.letters.get(letter.number).await.unwrap().letter;
            assert_eq!((retrying.status, retrying.retry_count), (Status::Retrying, 1), "{kind}");
            // What is tried again is neither tried again once more nor ignored.
            for again in [
                bench.letters.retry(letter.number, "ann").await,
                bench.letters.ignore(letter.number, "ann").await,
            ] {
                assert_eq!(again.unwrap_err().code(), "DEAD_LETTER_NOT_PENDING", "{kind}");
            }
        }
        let engine = bench.start().await;
        // The append has a conflict still, and is pending again.
        until("letters are resolved", async || bench.count(Status::Resolved).await == 4).await;
        until("the append fails again", async || bench.count(Status::Pending).await == 1).await;
        engine.stop(PATIENCE).await.unwrap();
        let again = bench.list(of_kind("append")).await.remove(0);
        assert_eq!((again.status, again.retry_count), (Status::Pending, 1));
        assert_eq!(bench.letters.get(again.number).await.unwrap().attempts.len(), 2, "history is kept");
        let effects = bench.effects().await;
        assert!(effects.len() == 3 && effects.values().all(|count| *count == 1), "{effects:?}");
        // Everything that was done is on record, with who wanted it.
        let record = bench.letters.operations(None, None, 100).await.unwrap();
        assert_eq!(record.len(), 5);
        assert!(record.iter().all(|one| one.asked_by == "ann" && one.letter_id.is_some()));
    });
}

#[test]
fn letters_of_every_kind_are_ignored_and_may_be_retried_after_all() {
    for_each_store(async |place| {
        let bench = one_of_each(&place).await;
        for kind in KINDS {
            let letter = bench.list(of_kind(kind)).await.remove(0);
            bench.letters.ignore(letter.number, "ann").await.unwrap();
            let again = bench.letters.ignore(letter.number, "ann").await.unwrap_err();
            assert_eq!(again.code(), "DEAD_LETTER_NOT_PENDING");
        }
        assert_eq!(bench.count(Status::Ignored).await, 5);
        bench.mend();
        for letter in bench.list(Filter::default()).await {
            bench.letters.retry(letter.number, "ann").await.unwrap();
        }
        let engine = bench.start().await;
        until("letters are resolved", async || bench.count(Status::Resolved).await == 4).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_retry_that_is_cancelled_leaves_the_letter_pending() {
    for_each_store(async |place| {
        let bench = one_of_each(&place).await;
        for kind in ["work", "onComplete", "publication"] {
            let letter = bench.list(of_kind(kind)).await.remove(0);
            bench.letters.retry(letter.number, "ann").await.unwrap();
            let detail = bench.letters.get(letter.number).await.unwrap();
            let work_id = match kind {
                "publication" => about(&detail, "publication")["workId"].clone(),
                _ => about(&detail, "work")["retriedAs"].clone(),
            };
            let work_id = text(work_id).unwrap();
            bench.work.cancel(&work_id).await.unwrap();
            let found = bench.letters.get(letter.number).await.unwrap().letter;
            assert_eq!(found.status, Status::Pending, "{kind}");
            bench.letters.retry(letter.number, "ann").await.unwrap();
        }
    });
}

#[test]
fn a_letter_that_nobody_has_is_not_found() {
    for_each_store(async |place| {
        let bench = Bench::open(&place).await;
        assert_eq!(bench.letters.get(1).await.unwrap_err().code(), "DEAD_LETTER_NOT_FOUND");
        assert_eq!(bench.letters.retry(1, "ann").await.unwrap_err().code(), "DEAD_LETTER_NOT_FOUND");
        assert_eq!(bench.letters.ignore(1, "").await.unwrap_err().code(), "WORK_INVALID");
        assert_eq!(
            bench.letters.operation("nonsense").await.unwrap_err().code(),
            "LETTER_OPERATION_NOT_FOUND"
        );
        assert!(bench.letters.operations(None, None, 10).await.unwrap().is_empty());
    });
}

/// The older operations, each on its own kind, and the inbox tell the same.
#[test]
fn b_216_what_is_done_about_letters_of_one_kind_is_seen_in_the_inbox() {
    for_each_store(async |place| {
        let bench = one_of_each(&place).await;
        let status = async |kind: &str| bench.list(of_kind(kind)).await.remove(0).status;
        let work_id = bench.list(of_kind("work")).await.remove(0).reference;
        bench.work.ignore_letter(&work_id).await.unwrap();
        assert_eq!(status("work").await, Status::Ignored);
        bench.projections.bulk_ignore("orders", None).await.unwrap();
        assert_eq!(status("projection").await, Status::Ignored);
        bench.publisher.ignore_letters(publications::LetterFilter::default(), None).await.unwrap();
        assert_eq!(status("publication").await, Status::Ignored);
        bench.mend();
        let ignored = mainstay_flows::projections::failures::LetterStatus::Ignored;
        bench.projections.retry_all(ignored, None).await.unwrap();
        assert_eq!(status("projection").await, Status::Retrying);
        let ignored = Some(publications::LetterStatus::Ignored);
        let ignored = publications::LetterFilter { status: ignored, ..publications::LetterFilter::default() };
        bench.publisher.retry_letters(ignored, None).await.unwrap();
        assert_eq!(status("publication").await, Status::Retrying);
        let engine = bench.start().await;
        until("both are resolved", async || bench.count(Status::Resolved).await == 2).await;
        engine.stop(PATIENCE).await.unwrap();
        bench.work.purge_letters(i64::MAX).await.unwrap();
        assert!(bench.list(of_kind("work")).await.is_empty());
    });
}

/// Retries all letters that are pending; done, failed and left.
async fn retry_all(bench: Bench) -> (u64, u64, u64, Vec<String>) {
    bench.mend();
    let engine = bench.start().await;
    let operation = bench.letters.preview(Action::Retry, Filter::default(), "ann").await.unwrap();
    bench.letters.run(&operation.operation_id).await.unwrap();
    let ended = bench.ended(&operation.operation_id).await;
    assert_eq!(ended.status, OperationStatus::Done);
    let left = bench.count(Status::Pending).await;
    assert_eq!(left, ended.left + ended.failed, "what was not done is as it was");
    let resolved = async || bench.count(Status::Retrying).await == 0;
    until("what is retried has ended", resolved).await;
    engine.stop(PATIENCE).await.unwrap();
    bench.store.close().await;
    (ended.done, ended.failed, ended.left, ended.failures.into_iter().map(|failed| failed.code).collect())
}

#[test]
fn letters_of_what_a_node_does_not_know_are_left_for_one_that_does() {
    for_each_lasting_store(async |place| {
        let bench = one_of_each(&place).await;
        // It would fail again.
        let append = bench.list(of_kind("append")).await.remove(0);
        bench.letters.ignore(append.number, "ann").await.unwrap();
        bench.store.close().await;
        let (done, failed, left, mut codes) = retry_all(Bench::bare(&place).await).await;
        codes.sort();
        assert_eq!((done, failed, left), (2, 0, 2), "{codes:?}");
        assert_eq!(codes, ["UNKNOWN_PROJECTION", "UNKNOWN_TARGET"]);
        assert_eq!(retry_all(Bench::open(&place).await).await, (2, 0, 0, Vec::new()));
    });
}
