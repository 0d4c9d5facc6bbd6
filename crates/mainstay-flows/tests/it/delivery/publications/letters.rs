//! Publications that were not delivered, and what is done about them.

use super::bench::{Bench, Context, targets};
use mainstay_flows::delivery::publications::{LetterFilter, LetterStatus, PublicationFilter, Status};
use mainstay_store::{Tx, params};
use mainstay_testkit::stores::{Place, for_each_lasting_store, for_each_store};
use mainstay_work::Failure;
use serde_json::json;

/// Ten letters for analytics, and none for inventory.
async fn ten(place: &Place) -> (Bench, Context, Vec<String>) {
    let (inventory, analytics) = (Context::default(), Context::failing(Failure::permanent("no")));
    let both = [inventory.target("inventory"), analytics.target("analytics")];
    let bench = Bench::open(place, targets(both)).await;
    let engine = bench.start().await;
    let mut ids = Vec::new();
    for number in 0..10 {
        let id = bench.event("OrderSubmitted", &json!(number)).await;
        bench.publish(&id, &["inventory", "analytics"]).await;
        ids.push(id);
    }
    for id in &ids {
        bench.until(id, "inventory", Status::Delivered).await;
        bench.until(id, "analytics", Status::Failed).await;
    }
    engine.stop(super::bench::PATIENCE).await.unwrap();
    (bench, analytics, ids)
}

#[test]
fn b_173_letters_are_listed_by_target_and_counted_by_target_and_status() {
    for_each_store(async |place| {
        let (bench, _, ids) = ten(&place).await;
        let letters = bench.letters("analytics").await;
        assert_eq!(
            letters.iter().map(|letter| &letter.event_id).collect::<Vec<_>>(),
            ids.iter().collect::<Vec<_>>()
        );
        assert!(bench.letters("inventory").await.is_empty());
        let stats = bench.publisher.letter_stats().await.unwrap();
        assert_eq!(stats.total, 10);
        let counts: Vec<(&str, u64)> =
            stats.by_target_and_status.iter().map(|(key, count)| (key.as_str(), *count)).collect();
        assert_eq!(counts, [("analytics:pending", 10), ("inventory:pending", 0)]);
        assert_eq!(stats.oldest_pending, Some(letters.iter().map(|letter| letter.failed_at).min().unwrap()));

        bench.publisher.ignore_letter(&ids[0], "analytics").await.unwrap();
        bench.publisher.retry_letter(&ids[1], "analytics").await.unwrap();
        let stats = bench.publisher.letter_stats().await.unwrap();
        let count = |key: &str| stats.by_target_and_status.get(key).copied();
        assert_eq!(
            (count("analytics:pending"), count("analytics:ignored"), count("analytics:retried")),
            (Some(8), Some(1), Some(1))
        );
        let correlated =
            LetterFilter { correlation_id: Some("corr-1".to_owned()), ..LetterFilter::default() };
        assert_eq!(bench.publisher.letters(correlated, 4).await.unwrap().len(), 4);
        let other = LetterFilter { correlation_id: Some("other".to_owned()), ..LetterFilter::default() };
        assert_eq!(bench.publisher.letters(other, 4).await.unwrap().len(), 0);
    });
}

#[test]
fn b_173_a_letter_that_is_retried_is_shown_so_until_it_is_delivered_and_after() {
    for_each_store(async |place| {
        let (bench, analytics, ids) = ten(&place).await;
        let work_id = bench.letters("analytics").await[0].work_id.clone().unwrap();
        let again = bench.publisher.retry_letter(&ids[0], "analytics").await.unwrap();
        assert_eq!(bench.publication(&ids[0], "analytics").await.status, Status::Retried);
        let letter = bench.publisher.letter(&ids[0], "analytics").await.unwrap();
        assert_eq!((letter.status, letter.retry_count), (LetterStatus::Retried, 1));
        assert!(letter.work_id.as_ref() == Some(&again) && again != work_id, "a delivery of its own");
        let twice = bench.publisher.retry_letter(&ids[0], "analytics").await.unwrap_err();
        assert_eq!(twice.code(), "PUBLICATION_LETTER_NOT_PENDING");

        // Still failing: pending again, with all attempts counted.
        let engine = bench.start().await;
        let failed = bench.until(&ids[0], "analytics", Status::Failed).await;
        assert_eq!(failed.attempt_count, 2);
        let letter = bench.publisher.letter(&ids[0], "analytics").await.unwrap();
        assert_eq!((letter.status, letter.retry_count, letter.attempt_count), (LetterStatus::Pending, 1, 2));

        analytics.fail(None);
        bench.publisher.retry_letter(&ids[0], "analytics").await.unwrap();
        let delivered = bench.until(&ids[0], "analytics", Status::Delivered).await;
        assert_eq!((delivered.attempt_count, delivered.error), (3, None));
        let letter = bench.publisher.letter(&ids[0], "analytics").await.unwrap();
        assert_eq!(letter.status, LetterStatus::Retried, "kept as resolved");
        assert!(letter.resolved_at.is_some() && !letter.error.is_empty(), "{letter:?}");
        assert_eq!(
            bench.publisher.retry_letter(&ids[0], "analytics").await.unwrap_err().code(),
            "PUBLICATION_LETTER_NOT_PENDING"
        );
        engine.stop(super::bench::PATIENCE).await.unwrap();
    });
}

#[test]
fn b_173_an_ignored_letter_is_left_and_can_be_taken_up_again() {
    for_each_store(async |place| {
        let (bench, analytics, ids) = ten(&place).await;
        bench.publisher.ignore_letter(&ids[0], "analytics").await.unwrap();
        assert_eq!(bench.publication(&ids[0], "analytics").await.status, Status::Failed);
        let twice = bench.publisher.ignore_letter(&ids[0], "analytics").await.unwrap_err();
        assert_eq!(twice.code(), "PUBLICATION_LETTER_NOT_PENDING");
        analytics.fail(None);
        let _engine = bench.start().await;
        bench.publisher.retry_letter(&ids[0], "analytics").await.unwrap();
        bench.until(&ids[0], "analytics", Status::Delivered).await;
    });
}

#[test]
fn b_173_many_letters_are_retried_or_ignored_at_once() {
    for_each_store(async |place| {
        let (bench, analytics, ids) = ten(&place).await;
        analytics.fail(None);
        let of = |target: &str| LetterFilter { target: Some(target.to_owned()), ..LetterFilter::default() };
        assert_eq!(bench.publisher.retry_letters(of("analytics"), Some(4)).await.unwrap(), 4);
        assert_eq!(bench.publisher.retry_letters(of("inventory"), None).await.unwrap(), 0);
        assert_eq!(bench.publisher.ignore_letters(of("analytics"), Some(3)).await.unwrap(), 3);
        let unknown = bench.publisher.retry_letters(of("nowhere"), None).await.unwrap_err();
        assert_eq!(unknown.code(), "UNKNOWN_TARGET");
        let retried = LetterFilter { status: Some(LetterStatus::Retried), ..of("analytics") };
        assert_eq!(bench.publisher.retry_letters(retried, None).await.unwrap_err().code(), "FLOW_INVALID");
        let _engine = bench.start().await;
        for id in &ids[..4] {
            bench.until(id, "analytics", Status::Delivered).await;
        }
        let statuses: Vec<LetterStatus> =
            bench.letters("analytics").await.iter().map(|letter| letter.status).collect();
        let expected =
            [[LetterStatus::Retried; 4].as_slice(), &[LetterStatus::Ignored; 3], &[LetterStatus::Pending; 3]]
                .concat();
        assert_eq!(statuses, expected);
    });
}

#[test]
fn the_work_of_a_publication_has_no_letter_beside_it() {
    for_each_store(async |place| {
        let (bench, ..) = ten(&place).await;
        let work_id = bench.letters("analytics").await[0].work_id.clone().unwrap();
        assert_eq!(bench.work.retry_letter(&work_id).await.unwrap_err().code(), "DEAD_LETTER_NOT_FOUND");
        assert!(bench.work.letters(mainstay_work::LetterFilter::default(), 10).await.unwrap().is_empty());
    });
}

#[test]
fn letters_that_are_not_there_are_not_found() {
    for_each_store(async |place| {
        let (bench, _, ids) = ten(&place).await;
        for (id, target) in [(ids[0].as_str(), "inventory"), ("unknown", "analytics")] {
            assert_eq!(
                bench.publisher.letter(id, target).await.unwrap_err().code(),
                "PUBLICATION_LETTER_NOT_FOUND"
            );
            let retried = bench.publisher.retry_letter(id, target).await.unwrap_err();
            assert_eq!(retried.code(), "PUBLICATION_LETTER_NOT_FOUND");
            let ignored = bench.publisher.ignore_letter(id, target).await.unwrap_err();
            assert_eq!(ignored.code(), "PUBLICATION_LETTER_NOT_FOUND");
        }
        assert_eq!(
            bench.publisher.retry_letter(&ids[0], "nowhere").await.unwrap_err().code(),
            "UNKNOWN_TARGET"
        );
    });
}

/// The ten letters, and 2^15 publications with a letter before them that are another target's and of another correlation.
async fn many(place: &Place) -> (Bench, Vec<String>) {
    let (bench, _, ids) = ten(place).await;
    let fill = async |tx: Tx| {
        let columns = "event_id, source_context, event_type, correlation_id, status, work_id, attempts_before, \
            attempt_count, error, created_at, delivered_at, letter, failed_at, retry_count, retried_at, resolved_at, \
            is_translated, event, history, tenant, delivery_key";
        let one = format!(
            "INSERT INTO mainstay_publications (id, target, {columns}) SELECT ' ', 'far', {} \
             FROM mainstay_publications WHERE letter IS NOT NULL ORDER BY id LIMIT 1",
            columns.replace("correlation_id", "'usual'")
        );
        tx.execute(&one, &[]).await?;
        for double in 0..15 {
            let again = format!(
                "INSERT INTO mainstay_publications (id, target, {columns}) SELECT id || $1, target, {} \
                 FROM mainstay_publications WHERE target = 'far'",
                columns.replace("event_id", "event_id || $1")
            );
            tx.execute(&again, params![format!("{double:x}")]).await?;
        }
        Ok(())
    };
    bench.store.transact(fill).await.unwrap();
    (bench, ids)
}

#[test]
fn a_filter_without_an_index_looks_at_so_many_publications_and_says_where_to_go_on() {
    for_each_lasting_store(async |place| {
        let (bench, ids) = many(&place).await;
        let publisher = &bench.publisher;
        let none = LetterFilter::default;
        let filters = [
            LetterFilter { correlation_id: Some("corr-1".to_owned()), ..none() },
            LetterFilter { target: Some("analytics".to_owned()), ..none() },
            LetterFilter {
                correlation_id: Some("corr-1".to_owned()),
                status: Some(LetterStatus::Pending),
                ..none()
            },
        ];
        for filter in filters {
            let (mut found, mut filter, mut pages) = (Vec::new(), filter, 0);
            loop {
                let page = publisher.letter_page(filter.clone(), 100).await.unwrap();
                assert_eq!(page.is_partial, page.next.is_some(), "{filter:?}");
                found.extend(page.letters.into_iter().map(|letter| letter.event_id));
                (filter.after, pages) = (page.next, pages + 1);
                if filter.after.is_none() {
                    break;
                }
            }
            assert_eq!((&found, pages), (&ids, 2), "{filter:?}");
            filter.after = None;
            assert_eq!(publisher.letters(filter, 100).await.unwrap().len(), 10, "all of them");
        }
        let of_one =
            PublicationFilter { target: Some("analytics".to_owned()), ..PublicationFilter::default() };
        let page = publisher.page(of_one.clone(), 100).await.unwrap();
        assert!(page.publications.is_empty() && page.is_partial);
        assert_eq!(publisher.list(of_one, 100).await.unwrap().len(), 10);
        // What an index has is a whole page at once.
        let pending = LetterFilter {
            target: Some("analytics".to_owned()),
            status: Some(LetterStatus::Pending),
            ..none()
        };
        let page = publisher.letter_page(pending, 100).await.unwrap();
        assert!(page.letters.len() == 10 && page.next.is_none());
        let all = publisher.letter_page(none(), 100).await.unwrap();
        assert!(all.letters.len() == 100 && !all.is_partial && all.next.is_some());
    });
}
