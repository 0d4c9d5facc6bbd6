//! What has failed is kept with a letter whatever is done about it, and goes with it.

use super::bench::{Bench, PATIENCE, SHOP, about, of_kind, text, until};
use super::kinds::{KINDS, one_of_each};
use mainstay_flows::dead_letters::{Action, Attempt, Filter, Status};
use mainstay_store::{Tx, params};
use mainstay_testkit::stores::for_each_store;
use std::collections::BTreeMap;

/// The failures of the only letter of a kind.
async fn attempts(bench: &Bench, kind: &str) -> Vec<Attempt> {
    let letter = bench.list(of_kind(kind)).await.remove(0);
    bench.letters.get(letter.number).await.unwrap().attempts
}

/// How many failures are known of the letter of each kind.
async fn counts(bench: &Bench) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for kind in KINDS {
        counts.insert(kind, attempts(bench, kind).await.len());
    }
    counts
}

/// So many failures of each letter; each item of the read model's is tried three times.
fn times(count: usize) -> BTreeMap<&'static str, usize> {
    KINDS.into_iter().map(|kind| (kind, if kind == "projection" { 3 * count } else { count })).collect()
}

async fn retry_all(bench: &Bench) {
    for kind in KINDS {
        let letter = bench.list(of_kind(kind)).await.remove(0);
        bench.letters.retry(letter.number, "ann").await.unwrap();
    }
}

/// Retries all letters, and waits until all of them have failed again.
async fn fail_again(bench: &Bench) {
    let engine = bench.start().await;
    retry_all(bench).await;
    until("all of them fail again", async || bench.count(Status::Pending).await == 5).await;
    engine.stop(PATIENCE).await.unwrap();
}

async fn count(bench: &Bench, table: &str) -> i64 {
    let read = async |tx: Tx, sql: String| tx.query_one(&sql, &[]).await?.get::<i64>(0);
    bench.store.read_with(format!("SELECT count(*) FROM {table}"), read).await.unwrap()
}

#[test]
fn every_failure_of_a_letter_is_kept_whatever_is_done_about_it() {
    for_each_store(async |place| {
        let bench = one_of_each(&place).await;
        assert_eq!(counts(&bench).await, times(1));
        fail_again(&bench).await;
        assert_eq!(counts(&bench).await, times(2), "retried, and failed again");
        for kind in KINDS {
            let letter = bench.list(of_kind(kind)).await.remove(0);
            bench.letters.ignore(letter.number, "ann").await.unwrap();
        }
        assert_eq!(counts(&bench).await, times(2), "ignored");
        fail_again(&bench).await;
        assert_eq!(counts(&bench).await, times(3), "ignored, retried, and failed again");
        // Nobody works, so that what is retried waits and is cancelled.
        retry_all(&bench).await;
        for kind in KINDS {
            let letter = bench.list(of_kind(kind)).await.remove(0);
            let detail = bench.letters.get(letter.number).await.unwrap();
            let own = text(about(&detail, "work")["retriedAs"].clone());
            let delivery = text(about(&detail, "publication")["workId"].clone());
            let run = text(about(&detail, "projection")["retryRunId"].clone());
            bench.work.cancel(&own.or(delivery).or(run).unwrap()).await.unwrap();
        }
        assert_eq!((bench.count(Status::Pending).await, counts(&bench).await), (5, times(3)), "cancelled");
        fail_again(&bench).await;
        assert_eq!(counts(&bench).await, times(4), "cancelled, retried, and failed again");
        for kind in KINDS {
            let attempts = attempts(&bench, kind).await;
            assert!(attempts.windows(2).all(|two| two[0].at_ms <= two[1].at_ms), "{kind}: {attempts:#?}");
            let items =
                attempts.iter().map(|one| one.work_id.clone()).collect::<std::collections::BTreeSet<_>>();
            assert_eq!(items.len(), 4, "{kind}: {attempts:#?}");
        }
        // What others keep leaves no letter of work that nobody would ever deal with.
        let letters = bench.work.letters(mainstay_work::LetterFilter::default(), 100).await.unwrap();
        let mut kinds: Vec<&str> = letters.iter().map(|letter| letter.kind.as_str()).collect();
        kinds.sort_unstable();
        assert_eq!(kinds, ["append", "onComplete", "work"]);
        assert_eq!(bench.work.count_letters(100).await.unwrap(), 5);
        assert_eq!(bench.work.count_letters(3).await.unwrap(), 3, "and no further than asked for");
        let by_kind = bench.work.count_letters_by_kind(100).await.unwrap();
        assert_eq!(by_kind, KINDS.map(|kind| (kind.into(), 1)));
        bench.mend();
        let engine = bench.start().await;
        retry_all(&bench).await;
        until("letters are resolved", async || bench.count(Status::Resolved).await == 4).await;
        until("the append fails again", async || bench.count(Status::Pending).await == 1).await;
        engine.stop(PATIENCE).await.unwrap();
        let expected = BTreeMap::from([("append", 5), ("projection", 12)]);
        for (kind, count) in counts(&bench).await {
            assert_eq!(
                count,
                expected.get(kind).copied().unwrap_or(4),
                "{kind}: what is resolved keeps its history"
            );
        }
        assert_eq!(bench.work.count_letters(100).await.unwrap(), 1);
    });
}

#[test]
fn purging_leaves_nothing_of_what_has_failed() {
    for_each_store(async |place| {
        let bench = one_of_each(&place).await;
        fail_again(&bench).await;
        fail_again(&bench).await;
        let purge = Filter { status: Some(Status::Pending), ..Filter::default() };
        let operation = bench.letters.preview(Action::Purge, purge, "ann").await.unwrap();
        let engine = bench.start().await;
        bench.letters.run(&operation.operation_id).await.unwrap();
        assert_eq!(bench.ended(&operation.operation_id).await.done, 5);
        engine.stop(PATIENCE).await.unwrap();
        let tables = [
            "mainstay_dead_letters",
            "mainstay_letters",
            "mainstay_publications",
            "mainstay_projection_failures",
        ];
        for table in tables {
            assert_eq!(count(&bench, table).await, 0, "{table}");
        }
    });
}

#[test]
fn of_what_came_after_all_the_publication_stays_and_its_letter_goes() {
    for_each_store(async |place| {
        let bench = one_of_each(&place).await;
        bench.mend();
        let engine = bench.start().await;
        let letter = bench.list(of_kind("publication")).await.remove(0);
        bench.letters.retry(letter.number, "ann").await.unwrap();
        until("it came", async || bench.count(Status::Resolved).await == 1).await;
        let operation = bench.letters.preview(Action::Purge, Filter::default(), "ann").await.unwrap();
        bench.letters.run(&operation.operation_id).await.unwrap();
        assert_eq!(bench.ended(&operation.operation_id).await.done, 1);
        engine.stop(PATIENCE).await.unwrap();
        let rows = "mainstay_publications WHERE status = 'delivered' AND letter IS NULL AND error IS NULL AND history IS NULL";
        assert_eq!(count(&bench, rows).await, 1, "publishing it again does not deliver it again");
    });
}

/// The letter of an item of work that failed for somebody else, as it was before letters had a history of their own.
async fn letter_of_work(bench: &Bench, order: &str) -> String {
    bench.charge([order.to_owned()]).await;
    let found =
        bench.list(Filter { error: Some(format!("order {order} ")), ..Filter::default() }).await.remove(0);
    let unlist = async |tx: Tx, number: i64| mainstay_work::inbox::remove_numbers(&tx, &[number]).await;
    bench.store.transact_with(found.number, unlist).await.unwrap();
    found.reference
}

#[test]
fn what_older_programs_have_kept_elsewhere_is_told_and_taken_over() {
    for_each_store(async |place| {
        let bench = one_of_each(&place).await;
        let engine = bench.start().await;
        let run = letter_of_work(&bench, "run").await;
        let delivery = letter_of_work(&bench, "delivery").await;
        bench.drained(SHOP).await;
        engine.stop(PATIENCE).await.unwrap();
        let forget = async |tx: Tx, (run, delivery): (String, String)| {
            let sql = "UPDATE mainstay_projection_failures SET history = NULL, retry_run_id = $1";
            tx.execute(sql, params![run]).await?;
            let sql = "UPDATE mainstay_publications SET history = NULL, work_id = $1";
            tx.execute(sql, params![delivery]).await
        };
        bench.store.transact_with((run.clone(), delivery.clone()), forget).await.unwrap();
        for (kind, work_id) in [("projection", &run), ("publication", &delivery)] {
            let told = attempts(&bench, kind).await;
            assert_eq!((told.len(), told[0].work_id.as_ref()), (1, Some(work_id)), "{kind}");
        }
        fail_again(&bench).await;
        for (kind, work_id, count) in [("projection", &run, 4), ("publication", &delivery, 2)] {
            let told = attempts(&bench, kind).await;
            assert_eq!((told.len(), told[0].work_id.as_ref()), (count, Some(work_id)), "{kind}: {told:#?}");
            assert_eq!(bench.work.letter(work_id).await.unwrap_err().code(), "DEAD_LETTER_NOT_FOUND");
        }
    });
}
