//! Two nodes on one PostgreSQL, also with one of them paused.

use super::bench::{Bench, PATIENCE, SHOP, components, orders, until};
use super::crash::look::{Wrong, effects};
use super::crash::made::{letters, make, of, sizes};
use mainstay_core::random::SeededRandom;
use mainstay_flows::dead_letters::{Action, CHUNK, Filter, OperationStatus, POOL, Status, Upkeep};
use mainstay_flows::delivery::appends::APPEND_POOL;
use mainstay_flows::delivery::publications;
use mainstay_store::Options;
use mainstay_testkit::crash::{self, Child};
use mainstay_testkit::stores::{Kind, for_each_kind};
use mainstay_work::NewWork;
use std::time::Duration;

const URL: &str = "TEST_URL";
const LEASE: Duration = Duration::from_millis(800);
/// A paused node's locks are taken from it after this long.
const LIMIT: Duration = Duration::from_secs(2);

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

async fn node(options: Options) -> Bench {
    Bench::on(components(options).open().await.unwrap(), LEASE, Upkeep::none()).await
}

#[test]
fn child_goes_on_with_operations() {
    if !crash::is_child() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let options = Options::new(std::env::var(URL).unwrap()).connections(4);
        let bench = node(options.transaction_timeout(LIMIT)).await;
        bench.mend();
        let _engine = bench.start().await;
        crash::say("goes on");
        std::future::pending::<()>().await;
    });
}

/// A node is paused inside of a chunk for longer than its lease and its transaction last. The other one does that chunk, and
/// the rest.
#[test]
fn b_278_a_node_paused_inside_of_a_bulk_retry_loses_and_doubles_no_letter() {
    let is_long = std::env::var_os("MAINSTAY_LONG").is_some_and(|value| value == "1");
    for_each_kind(&[Kind::Postgres], async |place| {
        let (seed, rounds) = (7, if is_long { 20 } else { 2 });
        let (one, random) = (node(place.options()).await, SeededRandom::new(seed));
        let names: Vec<String> = (0..rounds).map(|round| format!("round-{round}")).collect();
        let batches: Vec<_> = names.iter().map(|name| (&**name, sizes(&random))).collect();
        make(&one, &batches).await;
        for name in &names {
            let event_id = one.spoiled_event(name).await;
            one.publisher.publish(&event_id, "orders", ["catalogue"]).await.unwrap();
        }
        one.mend();
        let child = Child::of("dead_letters::nodes::child_goes_on_with_operations").env(URL, place.url());
        let child = child.spawn().unwrap();
        child.wait_for("goes on", PATIENCE).unwrap();
        let mut wrong = Wrong(Vec::new());
        for name in &names {
            let before = letters(&one, name).await;
            let operation = one.letters.preview(Action::Retry, of(name), "ann").await.unwrap();
            let times = child.said().iter().filter(|said| said.starts_with("inside")).count();
            one.letters.run(&operation.operation_id).await.unwrap();
            child.wait_for(&format!("inside {times}."), PATIENCE).unwrap();
            child.stop().unwrap();
            let engine = one.start().await;
            let ended = one.ended(&operation.operation_id).await;
            for pool in [POOL, SHOP, "projectionPool", publications::POOL, APPEND_POOL] {
                one.drained(pool).await;
            }
            child.cont().unwrap();
            engine.stop(PATIENCE).await.unwrap();
            // What the node that was paused does now comes behind all that it had still to do.
            let last = one.work.enqueue(NewWork::new(SHOP, "nothing", "x").unwrap()).await.unwrap();
            one.work.wait_for(&last.work_id, PATIENCE).await.unwrap();
            let after = letters(&one, name).await;
            wrong.same(&before, &after);
            after.values().for_each(|letter| wrong.tried_again(letter));
            wrong.counted(&ended, after.len());
            let now = one.letters.operation(&operation.operation_id).await.unwrap();
            assert_eq!(
                (now.status, &now),
                (OperationStatus::Done, &ended),
                "the paused node changed something"
            );
        }
        effects(&one, &names.iter().map(|name| &**name).collect::<Vec<_>>(), &mut wrong).await;
        assert_eq!(wrong.0, [""; 0], "seed {seed}");
        println!("seed {seed}: {rounds} pauses, {batches:?}");
    });
}
