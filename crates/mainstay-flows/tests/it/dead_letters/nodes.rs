//! Two nodes on one PostgreSQL.

use super::bench::{Bench, PATIENCE, components, orders, until};
use mainstay_flows::dead_letters::{Action, CHUNK, Filter, OperationStatus, Status, Upkeep};
use mainstay_testkit::stores::{Kind, for_each_kind};
use std::time::Duration;

#[test]
fn two_nodes_at_once_try_every_letter_again_once() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let open = async || {
            let store = components(place.options()).open().await.unwrap();
            Bench::on(store, Duration::from_secs(15), Upkeep::none()).await
        };
        let (one, other) = (open().await, open().await);
        let total = (CHUNK * 5 + 3) as u64;
        let engine = one.start().await;
        one.charge(orders(total as usize)).await;
        one.mend();
        other.mend();
        let second = other.start().await;
        // Both are asked for the same at once, and each letter is one operation's.
        let mut ids = Vec::new();
        for bench in [&one, &other] {
            let operation = bench.letters.preview(Action::Retry, Filter::default(), "ann").await.unwrap();
            assert_eq!(operation.total, total);
            ids.push(operation.operation_id);
        }
        let (first, last) = tokio::join!(one.letters.run(&ids[0]), other.letters.run(&ids[1]));
        first.unwrap();
        last.unwrap();
        let (first, last) = (one.ended(&ids[0]).await, one.ended(&ids[1]).await);
        assert_eq!((first.status, last.status), (OperationStatus::Done, OperationStatus::Done));
        assert_eq!(first.done + last.done, total, "{first:?} {last:?}");
        until("all are resolved", async || one.count(Status::Resolved).await == total).await;
        let effects = one.effects().await;
        assert_eq!(effects.len() as u64, total);
        assert!(effects.values().all(|count| *count == 1));
        engine.stop(PATIENCE).await.unwrap();
        second.stop(PATIENCE).await.unwrap();
    });
}

/// Many hands on the same letters: one of them wins each.
#[test]
fn many_who_retry_a_letter_at_once_retry_it_once() {
    for_each_kind(&[Kind::SqliteFile, Kind::Postgres], async |place| {
        let bench = Bench::open(&place).await;
        let engine = bench.start().await;
        bench.charge(["o1".to_owned()]).await;
        bench.mend();
        let letter = bench.list(Filter::default()).await.remove(0).number;
        let tries = (0..8).map(|_| bench.letters.retry(letter, "ann"));
        let came = futures_util::future::join_all(tries).await;
        let won = came.iter().filter(|came| came.is_ok()).count();
        assert_eq!(won, 1, "{came:?}");
        assert!(came.iter().flatten().all(|operation| operation.done == 1));
        until("it is resolved", async || bench.count(Status::Resolved).await == 1).await;
        engine.stop(PATIENCE).await.unwrap();
        assert_eq!(bench.effects().await.values().sum::<u64>(), 1);
    });
}
