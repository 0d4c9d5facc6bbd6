//! What is done about many letters: preview, run, progress, cancel.

use super::bench::{Bench, PATIENCE, SHOP, components, orders, until};
use mainstay_flows::dead_letters::{Action, CHUNK, Filter, OperationStatus, POOL, RETENTION, Status, Upkeep};
use mainstay_store::Tx;
use mainstay_testkit::stores::{Place, for_each_store};
use mainstay_testkit::time::VirtualTime;
use mainstay_work::{NewWork, Pool, RetryPolicy};
use std::time::Duration;

/// So many letters of charges.
async fn charged(place: &Place, count: usize) -> Bench {
    let bench = Bench::open(place).await;
    let engine = bench.start().await;
    bench.charge(orders(count)).await;
    engine.stop(PATIENCE).await.unwrap();
    bench
}

#[test]
fn a_preview_says_what_running_it_touches_and_changes_nothing() {
    for_each_store(async |place| {
        let bench = charged(&place, CHUNK * 2 + 7).await;
        let operation = bench.letters.preview(Action::Retry, Filter::default(), "ann").await.unwrap();
        let total = (CHUNK * 2 + 7) as u64;
        assert_eq!((operation.status, operation.total), (OperationStatus::Previewed, total));
        let counted = &operation.preview[..];
        assert_eq!(
            (counted.len(), counted[0].kind.as_str(), &*counted[0].name, counted[0].count),
            (1, "work", "charge", total)
        );
        assert_eq!(bench.count(Status::Pending).await, total);
        bench.mend();
        bench.letters.run(&operation.operation_id).await.unwrap();
        let engine = bench.start().await;
        let ended = bench.ended(&operation.operation_id).await;
        assert_eq!(
            (ended.status, ended.done, ended.skipped, ended.failed),
            (OperationStatus::Done, total, 0, 0)
        );
        until("all are resolved", async || bench.count(Status::Resolved).await == total).await;
        engine.stop(PATIENCE).await.unwrap();
        let effects = bench.effects().await;
        assert_eq!(effects.len() as u64, total);
        assert!(effects.values().all(|count| *count == 1));
        let again = bench.letters.run(&operation.operation_id).await.unwrap_err();
        assert_eq!(again.code(), "LETTER_OPERATION_STATUS_CONFLICT");
    });
}

#[test]
fn letters_that_come_later_or_fail_again_are_left_alone() {
    for_each_store(async |place| {
        let bench = charged(&place, CHUNK + 10).await;
        let operation = bench.letters.preview(Action::Retry, Filter::default(), "ann").await.unwrap();
        let engine = bench.start().await;
        bench.charge(["later".to_owned()]).await;
        // Everything is as broken as before.
        bench.letters.run(&operation.operation_id).await.unwrap();
        let ended = bench.ended(&operation.operation_id).await;
        let total = (CHUNK + 10) as u64;
        assert_eq!((ended.done, ended.skipped, ended.failed), (total, 0, 0));
        bench.drained(SHOP).await;
        until("all are pending again", async || bench.count(Status::Pending).await == total + 1).await;
        engine.stop(PATIENCE).await.unwrap();
        let all = bench.list(Filter::default()).await;
        let retried = all.iter().filter(|letter| letter.retry_count == 1).count() as u64;
        assert_eq!((all.len() as u64, retried), (total + 1, total), "each once, and the later one never");
    });
}

#[test]
fn only_what_a_filter_names_is_touched() {
    for_each_store(async |place| {
        let bench = charged(&place, 20).await;
        let one = Filter { error: Some("order o7 ".into()), ..Filter::default() };
        let operation = bench.letters.preview(Action::Ignore, one, "ann").await.unwrap();
        assert_eq!(operation.total, 1);
        bench.letters.run(&operation.operation_id).await.unwrap();
        let engine = bench.start().await;
        assert_eq!(bench.ended(&operation.operation_id).await.done, 1);
        let ignored = bench.list(Filter { status: Some(Status::Ignored), ..Filter::default() }).await;
        assert!(ignored.len() == 1 && ignored[0].error.ends_with("order o7 has no stock"), "{ignored:?}");
        // Nothing is resolved yet, and ignored ones are purged only when they are named.
        for (status, expected) in [(None, 0), (Some(Status::Ignored), 1), (Some(Status::Pending), 19)] {
            let filter = Filter { status, ..Filter::default() };
            let operation = bench.letters.preview(Action::Purge, filter, "ann").await.unwrap();
            bench.letters.run(&operation.operation_id).await.unwrap();
            assert_eq!(bench.ended(&operation.operation_id).await.done, expected);
        }
        engine.stop(PATIENCE).await.unwrap();
        assert!(bench.list(Filter::default()).await.is_empty());
        assert!(bench.work.letters(mainstay_work::LetterFilter::default(), 10).await.unwrap().is_empty());
    });
}

#[test]
fn a_pool_names_its_letters_and_none_of_other_sources() {
    for_each_store(async |place| {
        let bench = Bench::open(&place).await;
        let never = RetryPolicy::new(1, 1, 1.0, 1).unwrap();
        bench.work.pool(Pool::new("depot").retry(never)).await.unwrap();
        let engine = bench.start().await;
        bench.charge(orders(3)).await;
        let items = ["p1", "p2"].map(|order| NewWork::new("depot", "charge", &order).unwrap());
        bench.work.enqueue_all(items.to_vec()).await.unwrap();
        bench.drained("depot").await;
        let event_id = bench.spoiled_event("corr").await;
        bench.publish(&event_id).await;
        until("all have failed", async || bench.count(Status::Pending).await == 6).await;
        let of = |pool: &str| Filter { pool: Some(pool.to_owned()), ..Filter::default() };
        for (pool, expected) in [(SHOP, 3), ("depot", 2), ("nowhere", 0)] {
            assert_eq!(bench.list(of(pool)).await.len() as u64, expected, "{pool}");
            assert_eq!(bench.letters.stats(of(pool)).await.unwrap().total, expected, "{pool}");
            let groups = bench.letters.groups(of(pool), 10).await.unwrap().groups;
            assert_eq!(groups.iter().map(|group| group.count).sum::<u64>(), expected, "{pool}");
        }
        assert!(bench.list(Filter { kind: Some("publication".into()), ..of(SHOP) }).await.is_empty());
        let page = bench.letters.list(of("depot"), None, 1).await.unwrap();
        let rest = bench.letters.list(of("depot"), page.next, 10).await.unwrap().letters;
        assert!(rest.len() == 1 && rest[0].number < page.letters[0].number, "{rest:?}");

        // What is tried again and fails again is of the same pool.
        for action in [Action::Retry, Action::Ignore] {
            let operation = bench.letters.preview(action, of("depot"), "ann").await.unwrap();
            assert_eq!(operation.total, 2, "{action:?}");
            bench.letters.run(&operation.operation_id).await.unwrap();
            assert_eq!(bench.ended(&operation.operation_id).await.done, 2, "{action:?}");
            until("none is being retried", async || bench.count(Status::Retrying).await == 0).await;
        }
        engine.stop(PATIENCE).await.unwrap();
        let ignored = bench.list(Filter { status: Some(Status::Ignored), ..of("depot") }).await;
        assert_eq!((ignored.len() as u64, bench.count(Status::Ignored).await), (2, 2));
        assert_eq!(bench.count(Status::Pending).await, 4, "of the shop and the publication");
        let empty = bench.letters.list(of(""), None, 10).await.unwrap_err();
        assert_eq!(empty.code(), "WORK_INVALID");
    });
}

#[test]
fn a_purge_removes_what_failed_before_a_moment_and_nothing_newer() {
    for_each_store(async |place| {
        let bench = charged(&place, 6).await;
        let age = async |tx: Tx| {
            let sql = "UPDATE mainstay_dead_letters SET failed_at = number * 10, status = CASE WHEN number > 4 THEN 3 \
                 ELSE 0 END";
            tx.execute(sql, &[]).await.map(drop)
        };
        bench.store.transact(age).await.unwrap();
        let newest = bench.list(Filter::default()).await;
        let engine = bench.start().await;
        // The third letter failed at that moment, and stays. Those that are ignored are newer.
        let moment = newest[newest.len() - 3].failed_at;
        for (status, expected) in [(Status::Ignored, 0), (Status::Pending, 2)] {
            let old = Filter { failed_before: Some(moment), status: Some(status), ..Filter::default() };
            let operation = bench.letters.preview(Action::Purge, old, "ann").await.unwrap();
            bench.letters.run(&operation.operation_id).await.unwrap();
            let ended = bench.ended(&operation.operation_id).await;
            assert_eq!((ended.total, ended.done), (expected, expected), "{status:?}");
        }
        engine.stop(PATIENCE).await.unwrap();
        let left = bench.list(Filter::default()).await;
        assert_eq!(left, newest[..4], "the others are as they were");
    });
}

#[test]
fn what_is_done_about_a_letter_of_which_somebody_else_was_faster_is_skipped() {
    for_each_store(async |place| {
        let bench = charged(&place, 10).await;
        let operation = bench.letters.preview(Action::Retry, Filter::default(), "ann").await.unwrap();
        let letter = bench.list(Filter::default()).await.remove(3);
        bench.letters.ignore(letter.number, "bob").await.unwrap();
        bench.letters.run(&operation.operation_id).await.unwrap();
        let engine = bench.start().await;
        let ended = bench.ended(&operation.operation_id).await;
        engine.stop(PATIENCE).await.unwrap();
        assert_eq!((ended.total, ended.done), (10, 9));
        assert_eq!(bench.count(Status::Ignored).await, 1);
    });
}

#[test]
fn an_operation_that_is_cancelled_half_way_does_nothing_more() {
    for_each_store(async |place| {
        let bench = charged(&place, CHUNK * 6).await;
        let operation = bench.letters.preview(Action::Ignore, Filter::default(), "ann").await.unwrap();
        bench.letters.run(&operation.operation_id).await.unwrap();
        let engine = bench.start().await;
        until("it has begun", async || {
            bench.letters.operation(&operation.operation_id).await.unwrap().done > 0
        })
        .await;
        let cancelled = bench.letters.cancel(&operation.operation_id).await;
        bench.drained(POOL).await;
        engine.stop(PATIENCE).await.unwrap();
        let ended = bench.letters.operation(&operation.operation_id).await.unwrap();
        match cancelled {
            Ok(_) => assert_eq!(ended.status, OperationStatus::Cancelled),
            // It was faster.
            Err(error) => assert_eq!(error.code(), "LETTER_OPERATION_STATUS_CONFLICT"),
        }
        assert_eq!(ended.done, bench.count(Status::Ignored).await, "what was done is on record");
        assert_eq!(ended.done + bench.count(Status::Pending).await, (CHUNK * 6) as u64);
        let again = bench.letters.cancel(&operation.operation_id).await.unwrap_err();
        assert_eq!(again.code(), "LETTER_OPERATION_STATUS_CONFLICT");
    });
}

#[test]
fn a_cancelled_preview_cannot_be_run_and_an_old_one_has_expired() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let bench = Bench::on(store, Duration::from_secs(15), Upkeep::none()).await;
        let operation = bench.letters.preview(Action::Retry, Filter::default(), "ann").await.unwrap();
        bench.letters.cancel(&operation.operation_id).await.unwrap();
        let late = bench.letters.run(&operation.operation_id).await.unwrap_err();
        assert_eq!(late.code(), "LETTER_OPERATION_STATUS_CONFLICT");
        let operation = bench.letters.preview(Action::Retry, Filter::default(), "ann").await.unwrap();
        time.advance(mainstay_flows::dead_letters::PREVIEW_LASTS.as_millis() as i64 + 1).await.unwrap();
        let late = bench.letters.run(&operation.operation_id).await.unwrap_err();
        assert_eq!(late.code(), "LETTER_PREVIEW_EXPIRED");
        // The record of both is kept, and not for ever.
        assert_eq!(bench.letters.operations(None, None, 10).await.unwrap().len(), 2);
        let cancelled = Some(OperationStatus::Cancelled);
        assert_eq!(bench.letters.operations(cancelled, None, 10).await.unwrap().len(), 1);
        time.advance(RETENTION.as_millis() as i64 + 1).await.unwrap();
        bench.letters.preview(Action::Retry, Filter::default(), "ann").await.unwrap();
        assert_eq!(bench.letters.operations(None, None, 10).await.unwrap().len(), 1);
    });
}

#[test]
fn what_cannot_be_done_about_letters_of_a_status_is_refused() {
    for_each_store(async |place| {
        let bench = Bench::open(&place).await;
        for (action, status) in [
            (Action::Retry, Status::Resolved),
            (Action::Retry, Status::Retrying),
            (Action::Ignore, Status::Ignored),
            (Action::Purge, Status::Retrying),
        ] {
            let filter = Filter { status: Some(status), ..Filter::default() };
            let refused = bench.letters.preview(action, filter, "ann").await.unwrap_err();
            assert_eq!(refused.code(), "WORK_INVALID", "{action:?} {status:?}");
        }
        assert!(bench.letters.operations(None, None, 10).await.unwrap().is_empty());
    });
}

#[test]
fn a_letter_that_cannot_be_tried_again_is_named_and_holds_nobody_up() {
    for_each_store(async |place| {
        let bench = charged(&place, 3).await;
        let spoil = async |tx: Tx| {
            let sql = "UPDATE mainstay_letters SET letter = '{}' WHERE number = (SELECT min(number) FROM mainstay_letters)";
            tx.execute(sql, &[]).await
        };
        bench.store.transact(spoil).await.unwrap();
        let operation = bench.letters.preview(Action::Retry, Filter::default(), "ann").await.unwrap();
        bench.letters.run(&operation.operation_id).await.unwrap();
        let engine = bench.start().await;
        let ended = bench.ended(&operation.operation_id).await;
        engine.stop(PATIENCE).await.unwrap();
        assert_eq!((ended.status, ended.done, ended.failed), (OperationStatus::Done, 2, 1));
        assert_eq!((ended.failures.len(), &*ended.failures[0].code), (1, "WORK_INVALID"));
    });
}

#[test]
fn an_operation_goes_on_when_the_clock_is_set_back() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let bench = Bench::on(store, Duration::from_secs(15), Upkeep::none()).await;
        let engine = bench.start().await;
        bench.charge(orders(CHUNK + 1)).await;
        engine.stop(PATIENCE).await.unwrap();
        let operation = bench.letters.preview(Action::Ignore, Filter::default(), "ann").await.unwrap();
        bench.letters.run(&operation.operation_id).await.unwrap();
        time.advance(-3_600_000).await.unwrap();
        let engine = bench.start().await;
        let done = async || bench.letters.operation(&operation.operation_id).await.unwrap().done;
        until("the first chunk is done", async || done().await == CHUNK as u64).await;
        // The pace that it keeps, and nothing of the hour.
        time.advance(1_000).await.unwrap();
        assert_eq!(bench.ended(&operation.operation_id).await.done, CHUNK as u64 + 1);
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn what_was_done_is_forgotten_after_a_while_whoever_does_the_next_thing() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let bench = Bench::on(store, Duration::from_secs(15), Upkeep::none()).await;
        let engine = bench.start().await;
        bench.charge(orders(4)).await;
        engine.stop(PATIENCE).await.unwrap();
        let retention = i64::try_from(RETENTION.as_millis()).unwrap();
        let all = bench.list(Filter::default()).await;
        let on_record = async || bench.letters.operations(None, None, 10).await.unwrap();
        bench.letters.retry(all[0].number, "ann").await.unwrap();
        time.advance(retention).await.unwrap();
        bench.letters.ignore(all[1].number, "bob").await.unwrap();
        assert_eq!(on_record().await.len(), 2);
        time.advance(retention + 1).await.unwrap();
        let old = Upkeep { ignore_after: Some(Duration::from_secs(1)), ..Upkeep::none() };
        assert_eq!(bench.letters.tend(&old).await.unwrap().ignored, 2);
        let left = on_record().await;
        assert_eq!((left.len(), &*left[0].asked_by), (1, "upkeep"));
    });
}
