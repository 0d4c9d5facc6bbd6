//! How fast a hundred thousand letters are looked at and tried again, and what live work is like meanwhile: at a steady rate,
//! half of what can be done, and as much as can be done. Figures are printed, and mean something in a release build on a quiet
//! machine:
//! `cargo test --release -p mainstay-flows --test it -- dead_letters::speed --nocapture --test-threads 1`.

use super::bench::{Bench, PATIENCE, SHOP, components, orders, until};
use super::live::Figures;
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
        let group = letters.groups(Filter::default(), 1).await.unwrap().groups[0].group;
        let grouped = Filter { group: Some(group), ..pending() };
        let by_group = median(async || drop(letters.list(grouped.clone(), None, 50).await.unwrap())).await;
        let stats = median(async || drop(letters.stats(Filter::default()).await.unwrap())).await;
        let groups = median(async || drop(letters.groups(Filter::default(), 50).await.unwrap())).await;
        println!(
            "{}: {LETTERS} letters: list {list:?}, by name {by_name:?}, by group {by_group:?}, by error {by_error:?}, stats {stats:?}, groups {groups:?}",
            place.kind()
        );
        let (alone, beside, took) = retry_beside(&bench, LETTERS, true).await;
        let (full, full_beside, full_took) = retry_beside(&bench, LETTERS / 4, false).await;
        println!(
            "{}: bulk retry {:.0}/s beside live work at half of what could be done, which is {:.2} of what it was: {alone}, then {beside}",
            place.kind(),
            LETTERS as f64 / took.as_secs_f64(),
            beside.per_second / alone.per_second
        );
        println!(
            "{}: bulk retry {:.0}/s beside as much live work as can be done, which is {:.2} of what it was: {full}, then {full_beside}",
            place.kind(),
            (LETTERS / 4) as f64 / full_took.as_secs_f64(),
            full_beside.per_second / full.per_second
        );
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

/// For how long live work is looked at that has the machine for itself.
const ALONE: Duration =
    if cfg!(debug_assertions) { Duration::from_millis(100) } else { Duration::from_secs(4) };

/// Retries all of so many letters, with live work beside it: what that was like before, what it is like meanwhile, and how long
/// it takes until all are retried.
async fn retry_beside(bench: &Bench, count: usize, is_steady: bool) -> (Figures, Figures, Duration) {
    let resolved = bench.count(Status::Resolved).await;
    if bench.count(Status::Pending).await == 0 {
        bench.spoil();
        call(bench, orders(count)).await;
    }
    until("all have failed", async || bench.count(Status::Pending).await == count as u64).await;
    bench.mend();
    let (live, work, letters) = (&bench.live, &bench.work, &bench.letters);
    let most = live.as_fast_as_can_be(work, tokio::time::sleep(ALONE)).await;
    // Something, even where nothing was done in so short a time.
    let half = (most.per_second / 2.0).max(1.0);
    let alone = match is_steady {
        true => live.steadily(work, half, tokio::time::sleep(ALONE)).await,
        false => most,
    };
    bench.drained(SHOP).await;
    let operation = letters.preview(Action::Retry, Filter::default(), "bench").await.unwrap();
    let began = Instant::now();
    letters.run(&operation.operation_id).await.unwrap();
    let ending = async {
        // Looked at now and then: looking all the time would be the load.
        let mut ended = letters.operation(&operation.operation_id).await.unwrap();
        while ended.status == OperationStatus::Running {
            tokio::time::sleep(Duration::from_millis(25)).await;
            ended = letters.operation(&operation.operation_id).await.unwrap();
        }
        assert_eq!((ended.status, ended.done), (OperationStatus::Done, count as u64));
    };
    let beside = match is_steady {
        true => live.steadily(work, half, ending).await,
        false => live.as_fast_as_can_be(work, ending).await,
    };
    let took = began.elapsed();
    until("all are resolved", async || bench.count(Status::Resolved).await == resolved + count as u64).await;
    println!("{count} letters: live work at most {most}; all resolved after {:?}", began.elapsed());
    (alone, beside, took)
}
