//! How fast a hundred thousand letters are looked at and tried again. Figures are printed, and mean something in a release
//! build on a quiet machine:
//! `cargo test --release -p mainstay-flows --test it -- dead_letters::speed --nocapture --test-threads 1`.

use super::bench::{Bench, PATIENCE, SHOP, components, orders, until};
use mainstay_flows::dead_letters::{Action, Filter, OperationStatus, Status, Upkeep};
use mainstay_testkit::stores::for_each_lasting_store;
use mainstay_work::NewWork;
use std::time::{Duration, Instant};

/// Enough to see that it works; a release build shows how fast.
const LETTERS: usize = if cfg!(debug_assertions) { 1_000 } else { 100_000 };

async fn median(what: impl AsyncFn()) -> Duration {
    let mut took = Vec::new();
    for _ in 0..9 {
        let began = Instant::now();
        what().await;
        took.push(began.elapsed());
    }
    took.sort();
    took[4]
}

#[test]
fn a_hundred_thousand_letters_are_looked_at_and_tried_again() {
    for_each_lasting_store(async |place| {
        let store = components(place.options()).open().await.unwrap();
        let bench = Bench::on(store, Duration::from_secs(15), Upkeep::none()).await;
        let engine = bench.start().await;
        call(&bench, orders(LETTERS)).await;
        until("all have failed", async || bench.count(Status::Pending).await == LETTERS as u64).await;
        let letters = &bench.letters;
        let middle = bench.list(Filter::default()).await[500].number;
        let pending = || Filter { status: Some(Status::Pending), ..Filter::default() };
        let list = median(async || drop(letters.list(pending(), Some(middle), 50).await.unwrap())).await;
        let rare = Filter { error: Some("about order o17".into()), ..pending() };
        let by_error = median(async || drop(letters.list(rare.clone(), None, 50).await.unwrap())).await;
        let named = Filter { kind: Some("work".into()), name: Some("call".into()), ..pending() };
        let by_name =
            median(async || drop(letters.list(named.clone(), Some(middle), 50).await.unwrap())).await;
        let group = letters.groups(Filter::default(), 1).await.unwrap()[0].group;
        let grouped = Filter { group: Some(group), ..pending() };
        let by_group = median(async || drop(letters.list(grouped.clone(), None, 50).await.unwrap())).await;
        let stats = median(async || drop(letters.stats(Filter::default()).await.unwrap())).await;
        let groups = median(async || drop(letters.groups(Filter::default(), 50).await.unwrap())).await;
        println!(
            "{}: {LETTERS} letters: list {list:?}, by name {by_name:?}, by group {by_group:?}, by error {by_error:?}, stats {stats:?}, groups {groups:?}",
            place.kind()
        );
        bench.mend();
        let alone = live(&bench).await;
        let operation = letters.preview(Action::Retry, Filter::default(), "bench").await.unwrap();
        let began = Instant::now();
        letters.run(&operation.operation_id).await.unwrap();
        let (beside, ended) = tokio::join!(live(&bench), async {
            let ended = bench.ended(&operation.operation_id).await;
            (ended, began.elapsed())
        });
        let (ended, took) = ended;
        assert_eq!((ended.status, ended.done), (OperationStatus::Done, LETTERS as u64));
        let per_second = LETTERS as f64 / took.as_secs_f64();
        println!(
            "{}: bulk retry {per_second:.0}/s in {took:?}; live work alone {alone:.0}/s, beside it {beside:.0}/s, {:.2} of it",
            place.kind(),
            beside / alone
        );
        until("all are resolved", async || bench.count(Status::Resolved).await == LETTERS as u64).await;
        println!("{}: all resolved after {:?}", place.kind(), began.elapsed());
        engine.stop(PATIENCE).await.unwrap();
        // Far more than it takes, so that only what grows with the number of letters is noticed on a busy machine.
        for took in [list, by_name, by_group, by_error, stats, groups] {
            assert!(took < Duration::from_millis(500), "{took:?}");
        }
    });
}

/// Calls somebody about orders, and waits until all of that has ended.
async fn call(bench: &Bench, orders: impl Iterator<Item = String>) {
    let items: Vec<NewWork> = orders.map(|order| NewWork::new(SHOP, "call", &order).unwrap()).collect();
    for items in items.chunks(5_000) {
        bench.work.enqueue_all(items.to_vec()).await.unwrap();
        bench.drained(SHOP).await;
    }
}

/// How many items a second somebody has done who waits for each of them, with 16 at once.
async fn live(bench: &Bench) -> f64 {
    let (began, count) = (Instant::now(), if cfg!(debug_assertions) { 160 } else { 16_000 });
    let callers = (0..16).map(async |caller| {
        for number in 0..count / 16 {
            let item = NewWork::new(SHOP, "call", &format!("live-{caller}-{number}")).unwrap();
            let id = bench.work.enqueue(item).await.unwrap().work_id;
            bench.work.wait_for(&id, PATIENCE).await.unwrap();
        }
    });
    futures_util::future::join_all(callers).await;
    count as f64 / began.elapsed().as_secs_f64()
}
