//! Letters of every kind, in batches that are told apart by what they belong together with.

use super::super::bench::{Bench, PATIENCE, SHOP, until};
use super::super::kinds::KINDS;
use mainstay_core::random::{Random, SeededRandom};
use mainstay_events::{IdempotencyKey, NewEvent};
use mainstay_flows::dead_letters::{CHUNK, Filter, Listed, Status};
use mainstay_flows::delivery::appends::{APPEND_POOL, NewAppend};
use mainstay_flows::delivery::publications;
use mainstay_work::NewWork;
use std::collections::BTreeMap;

/// How many letters of each kind a batch has.
pub(in super::super) type Sizes = BTreeMap<&'static str, u64>;

/// More than a chunk of them, all kinds among them.
pub(in super::super) fn sizes(random: &SeededRandom) -> Sizes {
    let mut sizes: Sizes = KINDS.iter().map(|kind| (*kind, 4 + random.below(8))).collect();
    sizes.insert("work", CHUNK as u64 + random.below(24));
    // An event that cannot be taken is published, too.
    sizes.insert("publication", sizes["projection"]);
    sizes
}

pub(in super::super) fn of(batch: &str) -> Filter {
    Filter { correlation_id: Some(batch.to_owned()), ..Filter::default() }
}

/// Whether the stream of an append is as it must be by the time that it is tried again; the others fail once more.
fn is_mended(number: u64) -> bool {
    number.is_multiple_of(2)
}

/// Makes the letters of some batches, and lets nothing be left to do.
pub(in super::super) async fn make(bench: &Bench, batches: &[(&str, Sizes)]) {
    let engine = bench.start().await;
    let mut published = Vec::new();
    for (batch, sizes) in batches {
        let mut items = Vec::new();
        for number in 0..sizes["work"] {
            items.push(NewWork::new(SHOP, "charge", &format!("{batch}-{number}")).unwrap());
        }
        for number in 0..sizes["onComplete"] {
            let item = NewWork::new(SHOP, "nothing", "x").unwrap();
            items.push(item.on_complete("told", &format!("{batch}-{number}")).unwrap());
        }
        let items: Vec<NewWork> = items.into_iter().map(|item| item.correlated(*batch)).collect();
        bench.work.enqueue_all(items).await.unwrap();
        for number in 0..sizes["append"] {
            append(bench, batch, number).await;
        }
        for _ in 0..sizes["projection"] {
            published.push(bench.spoiled_event(batch).await);
        }
    }
    let projecting = bench.projections.start();
    let head = bench.log.head().await.unwrap();
    bench.projections.wait_for("orders", head, PATIENCE).await.unwrap();
    projecting.stop(PATIENCE).await;
    for event_id in &published {
        bench.publish(event_id).await;
    }
    for pool in [SHOP, APPEND_POOL, publications::POOL] {
        bench.drained(pool).await;
    }
    let total: u64 = batches.iter().flat_map(|(_, sizes)| sizes.values()).sum();
    until("everything has failed", async || bench.count(Status::Pending).await == total).await;
    engine.stop(PATIENCE).await.unwrap();
    for (batch, sizes) in batches {
        for number in (0..sizes["append"]).filter(|number| is_mended(*number)) {
            let event =
                NewEvent::new("Opened", &number).unwrap().stream("Order", format!("{batch}-{number}"));
            bench.log.append(event).await.unwrap();
        }
    }
}

/// An event that cannot be appended before its stream has another one.
async fn append(bench: &Bench, batch: &str, number: u64) {
    let order = format!("{batch}-{number}");
    let key = IdempotencyKey::action("payment", &order).unwrap();
    let event = NewEvent::new("Paid", &order).unwrap().stream("Order", &*order).expecting(1);
    let event = event.idempotent(&key).correlation(batch);
    bench.appends.append(NewAppend::new(event)).await.unwrap();
}

/// The letters of a batch by their number.
pub(in super::super) async fn letters(bench: &Bench, batch: &str) -> BTreeMap<i64, Listed> {
    bench.list(of(batch)).await.into_iter().map(|letter| (letter.number, letter)).collect()
}
