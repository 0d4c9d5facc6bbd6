//! Several nodes on one PostgreSQL, of which one is slow, paused or gone.

use crate::following::Followers;
use crate::ledger::{Found, append_of, block_on, heard, is_long, open_log, told};
use crate::support::append;
use mainstay_events::{Log, Selection};
use mainstay_store::{Options, Tx};
use mainstay_testkit::crash::{self, Child};
use mainstay_testkit::stores::{Kind, Place, for_each_kind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Far above what anything here takes; whoever reaches it is stuck.
const PATIENCE: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_millis(500);
const TASKS: u64 = 8;
const URL: &str = "TEST_URL";
/// Operations of the node in another process begin here.
const THEIRS: u64 = 1_000_000;

fn options(url: &str) -> Options {
    Options::new(url).connections(4).transaction_timeout(LIMIT)
}

#[test]
fn whoever_follows_on_one_node_is_woken_by_the_other() {
    for_each_kind(&[Kind::SqliteFile, Kind::SqliteMemory, Kind::Postgres], async |place| {
        let here = open_log(place.options(), None).await.unwrap();
        let there = match place.kind() {
            Kind::Postgres => open_log(place.options(), None).await.unwrap(),
            _ => here.clone(),
        };
        let mut following = there.subscribe(Selection::all());
        let (rounds, began) = (30, Instant::now());
        for _ in 0..rounds {
            let position = here.append(append("Ping", &[])).await.unwrap().head;
            let seen = tokio::time::timeout(PATIENCE, following.next()).await.unwrap().unwrap();
            assert_eq!(seen.position(), position);
        }
        // Who is not woken looks by itself every two seconds, and misses nothing either: only slower.
        let took = began.elapsed();
        assert!(
            took < Duration::from_secs(rounds),
            "{rounds} events were seen after {took:?} on {}",
            place.kind()
        );
    });
}

// --- a node that keeps the others waiting -----------------------------------------------------------------------

/// Holds the lock of the log on a node of its own until told otherwise.
async fn hold_the_log(place: &Place) -> (Arc<Notify>, JoinSet<()>) {
    let (held, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let store = place.options().transaction_timeout(PATIENCE).open().await.unwrap();
    let mut holding = JoinSet::new();
    let context = (held.clone(), release.clone());
    holding.spawn(async move {
        let hold = async |tx: Tx, (held, release): (Arc<Notify>, Arc<Notify>)| {
            tx.query("SELECT position FROM mainstay_log_head FOR UPDATE", &[]).await?;
            held.notify_one();
            // A transaction may wait for nothing but its statements.
            let mut released = std::pin::pin!(release.notified());
            while std::future::poll_fn(|context| std::task::Poll::Ready(released.as_mut().poll(context)))
                .await
                .is_pending()
            {
                tx.query("SELECT pg_sleep(0.01)", &[]).await?;
            }
            Ok(())
        };
        store.transact_with(context, hold).await.unwrap();
    });
    held.notified().await;
    (release, holding)
}

#[test]
fn appends_that_wait_for_another_node_give_up_together() {
    const APPENDS: u64 = 64;
    for_each_kind(&[Kind::Postgres], async |place| {
        let log = open_log(options(place.url()), None).await.unwrap();
        let followers = Followers::of(std::slice::from_ref(&log), "shared:0");
        log.append(append_of(0)).await.unwrap();
        let (release, holding) = hold_the_log(&place).await;
        let began = Instant::now();
        let calls: JoinSet<_> = (1..=APPENDS)
            .map(|operation| {
                let log = log.clone();
                async move { (operation, log.append(append_of(operation)).await) }
            })
            .collect();
        let answers = tokio::time::timeout(PATIENCE, calls.join_all()).await.expect("appends are stuck");
        let waited = began.elapsed();
        let mut failed = Vec::new();
        for (operation, answer) in answers {
            let error = answer.unwrap_err();
            assert!(!error.is_outcome_unknown(), "{error}");
            failed.push(operation);
        }
        println!("{APPENDS} appends behind a node that holds the log end after {waited:?}");
        assert!(waited < 16 * LIMIT, "each waits in turn: {waited:?}");
        release.notify_one();
        holding.join_all().await;
        let found = Found::load(&log).await.unwrap();
        found.check_absent(&failed).unwrap();
        let settled = found.settle(&log, 0..=APPENDS).await.unwrap();
        settled.check_index(&log).await.unwrap();
        followers.check(&settled.recorded).await;
    });
}

// --- a node that is paused --------------------------------------------------------------------------------------

/// A node in a process of its own, which sees every append through.
#[test]
fn child_appends_on_another_node() {
    if !crash::is_child() {
        return;
    }
    block_on(async {
        let log = open_log(options(&std::env::var(URL).unwrap()), None).await.unwrap();
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let log = log.clone();
            tasks.spawn(async move {
                for operation in (THEIRS + task..).step_by(TASKS as usize) {
                    let (positions, _) = see_through(&log, operation).await;
                    crash::ack(positions);
                }
            });
        }
        tasks.join_next().await.unwrap().unwrap();
    });
}

/// Appends until it is in. Returns what there is to tell, and how often it was tried in vain.
async fn see_through(log: &Log, operation: u64) -> (String, usize) {
    let mut failures = 0;
    loop {
        match log.append(append_of(operation)).await {
            Ok(appended) => return (told(operation, &appended), failures),
            Err(error) => {
                let is_fit = error.is_retryable() || error.code() == "STORE_TIMEOUT";
                assert!(is_fit, "a pause of another node costs time only: {error}");
                failures += 1;
            }
        }
    }
}

#[test]
fn a_paused_node_delays_the_others_shortly_and_loses_nothing() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let log = open_log(options(place.url()), None).await.unwrap();
        let followers = Followers::of(std::slice::from_ref(&log), "shared:0");
        let mut child =
            Child::of("nodes::child_appends_on_another_node").env(URL, place.url()).spawn().unwrap();
        let (mut next, mut slowest, mut failures, mut ours) = (0, Duration::ZERO, 0, Vec::new());
        for pause in 0..if is_long() { 100 } else { 6 } {
            let acknowledged = child.acknowledged().len();
            child.wait_for_acks(acknowledged + 20 + pause, PATIENCE).unwrap();
            child.stop().unwrap();
            // It may hold the lock of the log; the server takes it away.
            for _ in 0..20 {
                let began = Instant::now();
                let (told, failed) = see_through(&log, next).await;
                slowest = slowest.max(began.elapsed());
                failures += failed;
                ours.push(heard(&told));
                next += 1;
            }
            child.cont().unwrap();
        }
        let acknowledged = child.acknowledged().len();
        child.wait_for_acks(acknowledged + 20, PATIENCE).unwrap();
        child.kill9().unwrap();
        println!("beside a paused node: {slowest:?} at most, {failures} failures, {next} appends");
        assert!(slowest < Duration::from_secs(10), "{slowest:?}");
        // It waits for what the server still has to do for the dead.
        ours.push(heard(&see_through(&log, next).await.0));
        ours.extend(child.acknowledged().iter().map(|told| heard(told)));
        let found = Found::load(&log).await.unwrap();
        found.check(&ours).unwrap_or_else(|wrong| panic!("{wrong}"));
        found.check_index_from(&log, 0).await.unwrap_or_else(|wrong| panic!("{wrong}"));
        followers.check(&found.recorded).await;
    });
}
