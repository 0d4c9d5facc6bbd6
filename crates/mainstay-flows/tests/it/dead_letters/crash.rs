//! Processes that die at every step of a bulk retry. Afterwards one that lives does what is left: every letter was tried again
//! once, and is resolved.

use super::bench::{Bench, PATIENCE, components, of_kind, orders, until};
use mainstay_flows::dead_letters::{Action, CHUNK, Filter, OperationStatus, Status, Upkeep};
use mainstay_flows::delivery::publications;
use mainstay_store::Options;
use mainstay_testkit::crash::{self, Child};
use mainstay_testkit::stores::{Kind, Place};
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

async fn check(place: &Place, operation_id: &str, total: u64) {
    let bench = open(place.options()).await;
    bench.mend();
    let engine = bench.start().await;
    let ended = bench.ended(operation_id).await;
    assert_eq!((ended.status, ended.done, ended.skipped, ended.failed), (OperationStatus::Done, total, 0, 0));
    until("all are resolved", async || bench.count(Status::Resolved).await == total).await;
    engine.stop(PATIENCE).await.unwrap();
    let all = bench.letters.stats(Filter::default()).await.unwrap();
    assert_eq!(all.total, total, "no letter is lost or doubled: {all:?}");
    for kind in ["work", "projection", "publication"] {
        let letters = bench.list(of_kind(kind)).await;
        assert!(letters.iter().all(|letter| letter.retry_count == 1), "each was tried again once: {kind}");
    }
    let effects = bench.effects().await;
    assert_eq!(effects.len(), CHARGES + EVENTS);
    assert!(effects.values().all(|count| *count == 1), "each effect was had once");
    let noted = crate::projections::support::noted(&bench.store, "orders").await;
    assert_eq!(noted, (1..=EVENTS as u64).collect::<Vec<_>>(), "each event was applied once");
    bench.store.close().await;
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
    block_on(check(&place, &operation_id, total));
}

#[test]
fn b_278_a_death_at_any_step_of_a_bulk_retry_loses_and_doubles_no_letter_on_sqlite() {
    survive(Kind::SqliteFile);
}

#[test]
fn b_278_a_death_at_any_step_of_a_bulk_retry_loses_and_doubles_no_letter_on_postgres() {
    survive(Kind::Postgres);
}
