//! Lists, filters, pages and groups.

use super::bench::{Bench, PATIENCE, about, orders, until};
use mainstay_flows::dead_letters::{Action, Filter, OperationStatus, Status};
use mainstay_store::Tx;
use mainstay_testkit::stores::for_each_store;
use mainstay_work::inbox::{self, Entry};

fn entry<'a>(name: &'a str, reference: &'a str, error: &'a str, failed_at: i64) -> Entry<'a> {
    let (kind, status) = ("imported".into(), Status::Pending);
    Entry { kind, name, reference, status, failed_at, retries: 0, correlation: None, error, pool: None }
}

#[test]
fn pages_do_not_overlap_and_go_from_the_newest_to_the_oldest() {
    for_each_store(async |place| {
        let bench = Bench::open(&place).await;
        let engine = bench.start().await;
        bench.charge(orders(25)).await;
        engine.stop(PATIENCE).await.unwrap();
        let (mut seen, mut before) = (Vec::new(), None);
        loop {
            let page = bench.letters.list(Filter::default(), before, 10).await.unwrap().letters;
            let Some(last) = page.last() else { break };
            before = Some(last.number);
            seen.extend(page.iter().map(|letter| letter.number));
        }
        assert_eq!(seen.len(), 25);
        assert!(seen.is_sorted_by(|one, next| one > next));
    });
}

#[test]
fn a_filter_leaves_out_everything_else() {
    for_each_store(async |place| {
        let bench = Bench::open(&place).await;
        let put = async |tx: Tx| {
            let letters = [
                entry("a", "1", "cannot reach 10.0.0.1", 10),
                entry("a", "2", "cannot reach 10.0.0.2", 20),
                entry("b", "3", "100% of \\ is wrong_here", 30),
                entry("b", "4", "100x of \\ is wrongXhere", 40),
                entry("b", "5", "ÄRGER mit Umlaut", 50),
            ];
            inbox::put(&tx, &letters).await
        };
        bench.store.transact(put).await.unwrap();
        let found = async |filter: Filter| -> Vec<String> {
            let mut found: Vec<String> =
                bench.list(filter).await.into_iter().map(|letter| letter.reference).collect();
            found.sort();
            found
        };
        let with = |error: &str| Filter { error: Some(error.to_owned()), ..Filter::default() };
        assert_eq!(found(Filter { name: Some("a".into()), ..Filter::default() }).await, ["1", "2"]);
        assert_eq!(found(Filter { kind: Some("work".into()), ..Filter::default() }).await, [""; 0]);
        assert_eq!(found(Filter { failed_since: Some(40), ..Filter::default() }).await, ["4", "5"]);
        assert_eq!(found(Filter { failed_before: Some(20), ..Filter::default() }).await, ["1"]);
        assert_eq!(found(Filter { status: Some(Status::Ignored), ..Filter::default() }).await, [""; 0]);
        assert_eq!(found(with("REACH")).await, ["1", "2"]);
        // What stands for something else in SQL stands for itself.
        assert_eq!(found(with("100%")).await, ["3"]);
        assert_eq!(found(with("wrong_")).await, ["3"]);
        assert_eq!(found(with("\\ IS")).await, ["3", "4"]);
        assert_eq!(found(with("Ärger MIT")).await, ["5"]);
        let groups = bench.letters.groups(Filter::default(), 10).await.unwrap().groups;
        let shown: Vec<(&str, u64, i64, i64)> = groups
            .iter()
            .map(|group| (group.name.as_str(), group.count, group.oldest_failed_at, group.newest_failed_at))
            .collect();
        assert_eq!(shown[0], ("a", 2, 10, 20));
        assert_eq!(shown.len(), 4);
        assert_eq!(groups[0].error, "cannot reach 10.0.0.2");
        assert_eq!(found(Filter { group: Some(groups[0].group), ..Filter::default() }).await, ["1", "2"]);
        assert_eq!(bench.letters.groups(Filter::default(), 2).await.unwrap().groups.len(), 2);
        let long = with(&"x".repeat(inbox::MAX_FILTER_BYTES + 1));
        assert_eq!(bench.letters.list(long.clone(), None, 10).await.unwrap_err().code(), "WORK_INVALID");
        assert!(
            bench.letters.stats(long.clone()).await.is_err() && bench.letters.groups(long, 1).await.is_err()
        );
    });
}

#[test]
fn a_long_error_is_listed_in_part_and_kept_whole() {
    for_each_store(async |place| {
        let bench = Bench::open(&place).await;
        let engine = bench.start().await;
        bench.charge(["ä".repeat(2_000)]).await;
        engine.stop(PATIENCE).await.unwrap();
        let letter = bench.list(Filter::default()).await.remove(0);
        assert!(letter.error.len() <= 500 && letter.error.contains("order ää"));
        let detail = bench.letters.get(letter.number).await.unwrap();
        assert!(about(&detail, "work")["error"].as_str().unwrap().len() > 4_000);
    });
}

#[test]
fn a_search_in_errors_looks_at_so_many_letters_and_says_where_to_go_on() {
    for_each_store(async |place| {
        let bench = Bench::open(&place).await;
        let fill = async |tx: Tx| {
            inbox::put(&tx, &[entry("a", "first", "a rare thing", 1), entry("a", "", "a usual thing", 2)])
                .await?;
            for double in 0..15 {
                let sql = "INSERT INTO mainstay_dead_letters \
                    (kind, name, reference, status, error_group, failed_at, changed_at, retries, error) \
                    SELECT kind, name, reference || $1, status, error_group, failed_at, changed_at, retries, error \
                    FROM mainstay_dead_letters WHERE reference <> 'first'";
                tx.execute(sql, mainstay_store::params![format!("{double:x}")]).await?;
            }
            inbox::put(&tx, &[entry("a", "last", "another rare thing", 3)]).await
        };
        bench.store.transact(fill).await.unwrap();
        let rare = Filter { error: Some("rare".to_owned()), ..Filter::default() };
        let (mut found, mut before, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = bench.letters.list(rare.clone(), before, 10).await.unwrap();
            found.extend(page.letters.into_iter().map(|letter| letter.reference));
            (before, pages) = (page.next, pages + 1);
            assert_eq!(page.is_partial, before.is_some());
            if before.is_none() {
                break;
            }
        }
        assert_eq!((found, pages), (vec!["last".to_owned(), "first".to_owned()], 2));
        let stats = bench.letters.stats(rare.clone()).await.unwrap();
        let groups = bench.letters.groups(rare.clone(), 10).await.unwrap();
        assert_eq!((stats.total, stats.is_partial), (1, true), "of the newest");
        assert!(groups.groups.len() == 1 && groups.is_partial);
        assert!(!bench.letters.stats(Filter::default()).await.unwrap().is_partial);

        // An operation deals with all letters.
        let engine = bench.start().await;
        let operation = bench.letters.preview(Action::Ignore, rare, "tester").await.unwrap();
        assert_eq!(operation.total, 2);
        bench.letters.run(&operation.operation_id).await.unwrap();
        let status = async || bench.letters.operation(&operation.operation_id).await.unwrap();
        until("it is done", async || status().await.status == OperationStatus::Done).await;
        // Their items are unknown here, so that nothing could be done; but both were found.
        let ended = status().await;
        assert_eq!(ended.done + ended.skipped + ended.failed + ended.left, 2);
        engine.stop(PATIENCE).await.unwrap();
    });
}
