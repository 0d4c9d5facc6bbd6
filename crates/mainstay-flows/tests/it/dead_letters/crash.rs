//! Processes that die at every step of a bulk retry. Afterwards one that lives does what is left: every letter was tried again
//! once, and is resolved.

use super::bench::{Bench, PATIENCE, SHOP, components, of_kind, orders, until};
use mainstay_flows::dead_letters::{Action, CHUNK, Filter, OperationStatus, Status, Upkeep};
use mainstay_flows::delivery::publications;
use mainstay_store::{Options, Tx};
use mainstay_testkit::crash::{self, Child};
use mainstay_testkit::stores::{Kind, Place};
use mainstay_work::NewWork;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

const SIGABRT: i32 = 6;
const URL: &str = "TEST_URL";
const FAILPOINTS: &str = "MAINSTAY_FAILPOINTS";
/// On PostgreSQL nobody takes up what a dead node had before this is over.
const LEASE: Duration = Duration::from_millis(400);
const CHARGES: usize = CHUNK * 6 + 5;
const EVENTS: usize = 40;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(work)
}

async fn open(options: Options) -> Bench {
    let store = components(options).open().await.unwrap();
    Bench::on(store, LEASE, Upkeep::none()).await
}

#[test]
fn child_goes_on_with_what_is_begun() {
    if !crash::is_child() {
        return;
    }
    block_on(async {
        let bench = open(Options::new(std::env::var(URL).unwrap()).connections(4)).await;
        bench.mend();
        let _engine = bench.start().await;
        crash::say("goes on");
        std::future::pending::<()>().await;
    });
}

/// Letters of charges, of a read model and of publications, and an operation that is to try all of them again.
async fn begin(place: &Place) -> (String, u64) {
    let bench = open(place.options()).await;
    let engine = bench.start().await;
    bench.charge(orders(CHARGES)).await;
    let mut events = Vec::new();
    for _ in 0..EVENTS {
        events.push(bench.spoiled_event("corr").await);
    }
    let projecting = bench.projections.start();
    let head = bench.log.head().await.unwrap();
    bench.projections.wait_for("orders", head, PATIENCE).await.unwrap();
    projecting.stop(PATIENCE).await;
    for event_id in &events {
        bench.publish(event_id).await;
    }
    bench.drained(publications::POOL).await;
    let total = (CHARGES + 2 * EVENTS) as u64;
    until("everything has failed", async || bench.count(Status::Pending).await == total).await;
    engine.stop(PATIENCE).await.unwrap();
    let operation = bench.letters.preview(Action::Retry, Filter::default(), "ann").await.unwrap();
    assert_eq!(operation.total, total);
    bench.letters.run(&operation.operation_id).await.unwrap();
    bench.store.close().await;
    (operation.operation_id, total)
}

/// Lets a process that lives do what is left; everything that is wrong then.
async fn wrong(place: &Place, operation_id: &str, total: u64) -> Vec<String> {
    let bench = open(place.options()).await;
    bench.mend();
    let engine = bench.start().await;
    let ended = bench.ended(operation_id).await;
    for pool in [SHOP, "projectionPool", publications::POOL] {
        bench.drained(pool).await;
    }
    engine.stop(PATIENCE).await.unwrap();
    let mut wrong = Vec::new();
    let mut expect = |what: &str, holds: bool| {
        if !holds {
            wrong.push(what.to_owned());
        }
    };
    let came = (ended.status, ended.done, ended.skipped, ended.failed);
    expect(&format!("the operation: {came:?}"), came == (OperationStatus::Done, total, 0, 0));
    let stats = bench.letters.stats(Filter::default()).await.unwrap();
    expect(&format!("a letter is lost or doubled: {stats:?}"), stats.total == total);
    expect("a letter is not resolved", bench.count(Status::Resolved).await == stats.total);
    for kind in ["work", "projection", "publication"] {
        let letters = bench.list(of_kind(kind)).await;
        expect("a letter was not tried again once", letters.iter().all(|letter| letter.retry_count == 1));
    }
    let effects = bench.effects().await;
    expect("an effect is lost", effects.len() == CHARGES + EVENTS);
    expect("an effect was had twice", effects.values().all(|count| *count == 1));
    let noted = crate::projections::support::noted(&bench.store, "orders").await;
    expect("an event is not in the read model once", noted == (1..=EVENTS as u64).collect::<Vec<_>>());
    bench.store.close().await;
    wrong
}

fn survive(kind: Kind) {
    let place = Place::new(kind);
    let (operation_id, total) = block_on(begin(&place));
    let mut died = 0;
    for failpoint in [
        "letters.acted=abort@1",
        "letters.advanced=abort@1",
        "publications.retried=abort@1",
        "letters.acted=abort@2",
        "store.commit=abort@9",
        "letters.advanced=abort@2",
        "store.committed=abort@12",
    ] {
        let child = Child::of("dead_letters::crash::child_goes_on_with_what_is_begun");
        let mut child = child.env(URL, place.url()).env(FAILPOINTS, failpoint).spawn().unwrap();
        // One that comes too late for its step has nothing to die of.
        let patience = Duration::from_secs(if died > 3 { 4 } else { 30 });
        match child.wait(patience) {
            Ok(status) => {
                assert_eq!(status.signal(), Some(SIGABRT), "{failpoint}: {:?}", child.said());
                died += 1;
            }
            Err(_) => drop(child.kill9().unwrap()),
        }
    }
    assert!(died >= 4, "only {died} died");
    assert_eq!(block_on(wrong(&place, &operation_id, total)), [""; 0]);
}

#[test]
fn b_278_a_death_at_any_step_of_a_bulk_retry_loses_and_doubles_no_letter_on_sqlite() {
    survive(Kind::SqliteFile);
}

#[test]
fn b_278_a_death_at_any_step_of_a_bulk_retry_loses_and_doubles_no_letter_on_postgres() {
    survive(Kind::Postgres);
}

/// A letter that is removed while it is tried again, and a charge that is made once more: that must be seen.
#[test]
fn the_check_finds_a_letter_that_is_lost_and_an_effect_that_is_doubled() {
    let place = Place::new(Kind::SqliteFile);
    let (operation_id, total) = block_on(begin(&place));
    let wrong = block_on(async {
        let bench = open(place.options()).await;
        let lose = "DELETE FROM mainstay_dead_letters WHERE number = 1";
        bench.store.transact(async move |tx: Tx| tx.execute(lose, &[]).await).await.unwrap();
        bench.work.enqueue(NewWork::new(SHOP, "charge", "o5").unwrap()).await.unwrap();
        bench.store.close().await;
        wrong(&place, &operation_id, total).await
    });
    for what in ["a letter is lost", "an effect is lost", "an effect was had twice"] {
        assert!(wrong.iter().any(|one| one.starts_with(what)), "{what}: {wrong:?}");
    }
}
