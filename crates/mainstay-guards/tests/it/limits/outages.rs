//! Budgets in a PostgreSQL that is killed under load, and commits that nobody hears of.
//!
//! What was acknowledged is charged, once. A call whose commit nobody heard of may be charged, once; every other call that
//! failed is not. No call fails because others wanted the same key.

use super::is_long;
use mainstay_guards::limits::store::{COMPONENT, Limits};
use mainstay_guards::limits::{Decision, Definition, Kind};
use mainstay_store::Options;
use mainstay_testkit::postgres::{Doorman, Postgres, Private};
use mainstay_testkit::proxy::Proxy;
use mainstay_testkit::stores::{Kind as StoreKind, for_each_kind, open_at_last};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

const CAPACITY: i64 = 1_000_000_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// Nothing comes back while the test lasts.
fn yearly() -> Definition {
    Definition::new(Kind::FixedWindow, CAPACITY as f64, 366 * 86_400_000).unwrap()
}

async fn open(options: Options) -> Limits {
    Limits::open(open_at_last(options.component(COMPONENT)).await).await.unwrap()
}

async fn charged(limits: &Limits, key: &str) -> i64 {
    CAPACITY - limits.value("limit", key).await.unwrap().value
}

/// What callers were told.
#[derive(Default)]
struct Told {
    allowed: AtomicI64,
    unknown: AtomicI64,
    failed: AtomicI64,
    is_over: AtomicBool,
}

async fn call_until_over(limits: Limits, told: Arc<Told>) {
    while !told.is_over.load(Ordering::SeqCst) {
        match limits.consume("limit", "hot", 1).await {
            Ok(decision) => {
                assert!(decision.allowed);
                told.allowed.fetch_add(1, Ordering::SeqCst);
            }
            Err(error) => {
                let count = match error.code() {
                    "STORE_COMMIT_UNKNOWN" => &told.unknown,
                    "STORE_UNAVAILABLE" | "STORE_BUSY" | "STORE_TIMEOUT" => &told.failed,
                    code => panic!("{code}: {error}"),
                };
                count.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
            }
        }
    }
}

async fn until_more_allowed(told: &Told, more: i64) {
    let (before, deadline) = (told.allowed.load(Ordering::SeqCst), Instant::now() + PATIENCE);
    while told.allowed.load(Ordering::SeqCst) < before + more {
        assert!(Instant::now() < deadline, "nobody is allowed anything any more");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Killing and starting block; the callers go on meanwhile.
async fn with_server(
    mut server: Private,
    change: impl FnOnce(&mut Private) -> anyhow::Result<()> + Send + 'static,
) -> Private {
    let changing = move || change(&mut server).map(|()| server);
    tokio::task::spawn_blocking(changing).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_under_load_charges_what_was_acknowledged_and_nothing_twice() {
    let mut server = tokio::task::spawn_blocking(Postgres::private).await.unwrap().unwrap();
    let options =
        |server: &Private| Options::new(server.url()).connections(4).busy_timeout(Duration::from_millis(500));
    let nodes = [open(options(&server)).await, open(options(&server)).await];
    nodes[0].define("limit", yearly()).await.unwrap();
    let told = Arc::new(Told::default());
    let callers =
        (0..16).map(|number| tokio::spawn(call_until_over(nodes[number % 2].clone(), told.clone())));
    let callers: Vec<_> = callers.collect();
    for _ in 0..if is_long() { 30 } else { 3 } {
        until_more_allowed(&told, 300).await;
        server = with_server(server, Private::kill9).await;
        server = with_server(server, Private::start).await;
    }
    until_more_allowed(&told, 300).await;
    told.is_over.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.unwrap();
    }
    let count = |count: &AtomicI64| count.load(Ordering::SeqCst);
    let (allowed, unknown, failed) = (count(&told.allowed), count(&told.unknown), count(&told.failed));
    let charged = charged(&nodes[0], "hot").await;
    println!("{allowed} allowed, {unknown} unknown, {failed} failed, {charged} charged");
    assert!((allowed..=allowed + unknown).contains(&charged), "{charged} of {allowed} and {unknown}");
    drop(nodes);
    with_server(server, Private::stop_fast).await;
}

const DOOR: i64 = 4;

#[test]
fn a_call_whose_commit_nobody_heard_of_says_so_and_is_charged_once_or_not_at_all() {
    for_each_kind(&[StoreKind::Postgres], async |place| {
        let straight = open(place.options()).await;
        straight.define("limit", yearly()).await.unwrap();
        let (proxy, url) = Proxy::before(&place).unwrap();
        let limits = open(Options::new(url).connections(4)).await;
        let doorman = Doorman::new(&place).await;
        doorman.guard_commits("mainstay_budgets", DOOR).await;
        for (key, is_carried_out) in [("carried out", true), ("given up", false)] {
            doorman.shut(DOOR).await;
            let asking = limits.clone();
            let asking = tokio::spawn(async move { asking.consume("limit", key, 7).await });
            doorman.until_at_door().await;
            match is_carried_out {
                true => proxy.cut_connections().await,
                false => doorman.turn_away().await,
            }
            let error = asking.await.unwrap().unwrap_err();
            assert_eq!(error.code(), "STORE_COMMIT_UNKNOWN");
            doorman.open(DOOR).await;
            // Whoever comes next waits for it, and finds what it left.
            let before = if is_carried_out { 7 } else { 0 };
            let next = limits.consume("limit", key, 1).await.unwrap();
            assert_eq!(next, Decision::allowed((CAPACITY - before - 1) as u64));
            assert_eq!(charged(&straight, key).await, before + 1);
        }
    });
}
