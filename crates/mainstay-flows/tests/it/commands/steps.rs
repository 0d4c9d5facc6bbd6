//! An operation of several steps that dies midway: item 278.
//!
//! A command, an action that calls somebody else, what came of that, and the next action. A process dies at one commit after
//! the other; another one goes on. Every event is in the log once, whatever died.

use mainstay_core::failpoints::{Action, Point};
use mainstay_events::{Append, Log, NewEvent, Selection};
use mainstay_flows::commands::{self, Command, Commands, Decision, Dispatcher, Handling};
use mainstay_store::{Options, Store, Tx};
use mainstay_testkit::crash::{self, Child};
use mainstay_testkit::stores::{Kind, Place};
use mainstay_work::{Call, Failure, Functions, NewWork, OnComplete, Pool, Work, WorkResult};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const SIGABRT: i32 = 6;
const PATIENCE: Duration = Duration::from_secs(90);
/// On PostgreSQL nobody takes up what a dead node had before this is over.
const LEASE: Duration = Duration::from_millis(400);
const URL: &str = "TEST_URL";
const FAILPOINTS: &str = "MAINSTAY_FAILPOINTS";
/// The action whose answer its process does not live to catch.
const FORGETS: &str = "TEST_FORGETS";

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(work)
}

/// `Order` → `OrderPlaced` → reserve → `StockReserved` → charge → `PaymentCompleted`.
async fn open(options: Options) -> (Store, Log, Work, Dispatcher) {
    let components = [mainstay_events::COMPONENT, mainstay_work::COMPONENT, commands::COMPONENT];
    let store = components.into_iter().fold(options, Options::component).open().await.unwrap();
    let log = Log::open(&store).await.unwrap();
    let orders = Commands::new().on("Order", async |handling: Handling, order: u32| {
        handling.start(NewWork::new("shop", "reserve", &order)?.on_complete("reserved", &order)?)?;
        Ok(Decision::success(order, [NewEvent::new("OrderPlaced", &order)?]))
    });
    // Somebody else, who answers and forgets: what was said must be caught.
    let ask = |action: &'static str| {
        let failpoints = store.failpoints().clone();
        move |_: Call, order: u32| {
            crash::say(format!("asked for {order}"));
            if std::env::var(FORGETS).is_ok_and(|forgotten| forgotten == action) {
                failpoints.arm(Point::StoreCommit, Action::Abort, 0, 1);
            }
            async move { Ok::<_, Failure>(format!("receipt {order}")) }
        }
    };
    let (reserved, charged) = (log.clone(), log.clone());
    let slot = Arc::new(OnceLock::<Work>::new());
    let next = slot.clone();
    let functions = Functions::new()
        .action("reserve", ask("reserve"))
        .action("charge", ask("charge"))
        .mutation("reserved", move |tx: Tx, _: Call, told: OnComplete<u32>| {
            let (log, work) = (reserved.clone(), next.get().unwrap().clone());
            async move {
                log.append_in(&tx, Append::new([caught("StockReserved", &told)?]))?;
                let order = told.context.unwrap_or_default();
                let charge = NewWork::new("shop", "charge", &order)?.on_complete("charged", &order)?;
                work.enqueue_in(&tx, [charge])?;
                Ok(())
            }
        })
        .mutation("charged", move |tx: Tx, _: Call, told: OnComplete<u32>| {
            let log = charged.clone();
            async move {
                log.append_in(&tx, Append::new([caught("PaymentCompleted", &told)?]))?;
                Ok(())
            }
        });
    let work = Work::open_with_lease(&store, functions, LEASE).await.unwrap();
    work.pool(Pool::new("shop")).await.unwrap();
    assert!(slot.set(work.clone()).is_ok());
    let dispatcher = Dispatcher::open(&log, &work, orders).await.unwrap();
    (store, log, work, dispatcher)
}

/// The event that keeps what somebody else said.
fn caught(event_type: &str, told: &OnComplete<u32>) -> mainstay_store::Result<NewEvent> {
    let WorkResult::Success { return_value } = &told.result else {
        return Err(mainstay_store::Error::application("it did not succeed"));
    };
    Ok(NewEvent::new(event_type, return_value)?)
}

/// How many events there are of each type and data.
async fn events(log: &Log) -> BTreeMap<(String, String), usize> {
    let mut found = BTreeMap::new();
    for event in log.read(&Selection::all(), 1_000).await.unwrap().events {
        let data = event.data().unwrap_or_default().to_owned();
        *found.entry((event.event_type().to_owned(), data)).or_default() += 1;
    }
    found
}

/// Every event of these orders, once.
fn all_of(orders: std::ops::Range<u32>) -> BTreeMap<(String, String), usize> {
    let of = |order: u32| {
        let receipt = format!("\"receipt {order}\"");
        [
            ("OrderPlaced", order.to_string()),
            ("StockReserved", receipt.clone()),
            ("PaymentCompleted", receipt),
        ]
    };
    orders.flat_map(of).map(|(name, data)| ((name.to_owned(), data), 1)).collect()
}

/// Places an order and goes on until all of it is done.
async fn carry_out(options: Options, order: u32) {
    let (store, log, work, dispatcher) = open(options).await;
    let engine = work.start().await.unwrap();
    let command = Command::new("Order", &order).unwrap().id(format!("order-{order}"));
    dispatcher.dispatch(command).await.unwrap();
    let ending = async {
        while events(&log).await != all_of(0..order + 1) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(PATIENCE, ending).await.is_err() {
        panic!("events are missing or doubled: {:?}", events(&log).await);
    }
    engine.stop(PATIENCE).await.unwrap();
    // Nothing is left that could come later.
    let depth = work.depth("shop").await.unwrap();
    assert_eq!((depth.pending, depth.running), (0, 0));
    assert_eq!(events(&log).await, all_of(0..order + 1));
    store.close().await;
}

#[test]
fn child_carries_out_steps() {
    if crash::is_child() {
        let order = std::env::var("TEST_ORDER").unwrap().parse().unwrap();
        block_on(carry_out(Options::new(std::env::var(URL).unwrap()).connections(4), order));
    }
}

/// Processes that die before and after commits, and between an answer and its being caught: whoever comes next finds the
/// operation where it was, and asks again for what was not caught.
fn survive_deaths(kind: Kind) {
    let place = Place::new(kind);
    block_on(async { open(place.options()).await.0.close().await });
    let (mut order, mut asked, mut died) = (0, 0, 0);
    for (how, what) in deaths() {
        let child = Child::of("commands::steps::child_carries_out_steps").env(URL, place.url());
        let child = child.env("TEST_ORDER", order.to_string());
        let mut dying = child.env(how, &what).spawn().unwrap();
        let status = dying.wait(PATIENCE).unwrap();
        assert!(status.success() || status.signal() == Some(SIGABRT), "{what}: {status}. {}", dying.story());
        died += u32::from(!status.success());
        asked += dying.said().iter().filter(|line| line.contains("asked for")).count();
        let next = Child::of("commands::steps::child_carries_out_steps").env(URL, place.url());
        let mut next = next.env("TEST_ORDER", order.to_string()).spawn().unwrap();
        next.wait_for_success(PATIENCE).unwrap();
        asked += next.said().iter().filter(|line| line.contains("asked for")).count();
        order += 1;
    }
    println!("{kind}: {died} died over {order} orders, which asked {asked} times");
    assert!(died >= 10, "nearly nobody died");
    assert!(asked > 2 * order as usize, "nobody died between an answer and its being caught");
}

/// Before and after each commit of an operation (opening takes a few of its own), and with an answer in hand.
fn deaths() -> impl Iterator<Item = (&'static str, String)> {
    let at_commits = ["store.commit=abort", "store.committed=abort"]
        .into_iter()
        .flat_map(|point| (4..=14).map(move |nth| (FAILPOINTS, format!("{point}@{nth}"))));
    at_commits.chain(["reserve", "charge"].map(|action| (FORGETS, action.to_owned())))
}

#[test]
fn b_278_no_event_is_lost_when_an_operation_dies_midway_on_sqlite() {
    survive_deaths(Kind::SqliteFile);
}

#[test]
fn b_278_no_event_is_lost_when_an_operation_dies_midway_on_postgres() {
    survive_deaths(Kind::Postgres);
}
