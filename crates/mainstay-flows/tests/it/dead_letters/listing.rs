//! Lists, filters, pages and groups.

use super::bench::{Bench, PATIENCE, orders};
use mainstay_flows::dead_letters::{Filter, Status};
use mainstay_store::Tx;
use mainstay_testkit::stores::for_each_store;
use mainstay_work::inbox::{self, Entry};

fn entry<'a>(name: &'a str, reference: &'a str, error: &'a str, failed_at: i64) -> Entry<'a> {
    let (kind, status) = ("imported", Status::Pending);
    Entry { kind, name, reference, status, failed_at, retries: 0, correlation: None, error }
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
            let page = bench.letters.list(Filter::default(), before, 10).await.unwrap();
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
        let groups = bench.letters.groups(Filter::default(), 10).await.unwrap();
        let shown: Vec<(&str, u64, i64, i64)> = groups
            .iter()
            .map(|group| (group.name.as_str(), group.count, group.oldest_failed_at, group.newest_failed_at))
            .collect();
        assert_eq!(shown[0], ("a", 2, 10, 20));
        assert_eq!(shown.len(), 4);
        assert_eq!(groups[0].error, "cannot reach 10.0.0.2");
        assert_eq!(found(Filter { group: Some(groups[0].group), ..Filter::default() }).await, ["1", "2"]);
        assert_eq!(bench.letters.groups(Filter::default(), 2).await.unwrap().len(), 2);
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
        assert!(detail.work.unwrap().error.len() > 4_000);
    });
}
