//! The experiments on guards.

use super::facts::{Facts, Outage, Rush};
use crate::Result;
use mainstay::core::retry::RetryPolicy;
use mainstay::guards::circuits::{Circuits, Force, Settings, State};
use mainstay::guards::limits::store::Limits;
use mainstay::guards::limits::{Definition, Kind};
use mainstay::prelude::{Call, Failure, Functions, NewWork, Options, Pool, Work};
use mainstay::store::Store;
use mainstay::work::{Error, Status, WorkResult};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const CALLS: usize = 50;
const CAPACITY: u64 = 10;
const ITEMS: usize = 12;
const THRESHOLD: u32 = 3;
/// How long the circuit stays open by itself: longer than anybody watches.
const OPEN_MS: u64 = 3_600_000;
/// For how long it is watched that nobody calls.
const WATCHED: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs the experiments in a store of their own.
pub(crate) async fn play(options: Options) -> Result<Facts> {
    let store = options.open().await?;
    let played = on(&store).await;
    store.close().await;
    played
}

async fn on(store: &Store) -> Result<Facts> {
    Ok(Facts { rush: rush(store).await?, outage: outage(store).await? })
}

/// Many want of one budget at the same moment.
async fn rush(store: &Store) -> Result<Rush> {
    let limits = Limits::open(store.clone()).await?;
    limits.define("demo", Definition::new(Kind::TokenBucket, CAPACITY as f64, 60_000)?).await?;
    let commits = || store.figures().group_size.snapshot().count;
    let before = commits();
    let calls: Vec<_> = (0..CALLS)
        .map(|_| {
            let limits = limits.clone();
            tokio::spawn(async move { limits.consume("demo", "user:ada", 1).await })
        })
        .collect();
    let (mut allowed, mut waits) = (0, Vec::new());
    for call in calls {
        let decision = call.await.map_err(mainstay::store::Error::application)??;
        allowed += usize::from(decision.allowed);
        waits.extend(decision.retry_after_ms);
    }
    let retry_after_ms = waits.into_iter().min().unwrap_or(0);
    Ok(Rush { calls: CALLS, capacity: CAPACITY, allowed, retry_after_ms, commits: commits() - before })
}

/// A service that is down until somebody mends it.
#[derive(Default)]
struct Service {
    is_well: AtomicBool,
    calls: AtomicUsize,
    /// Calls that were made before one has shown that it is well again.
    probes: AtomicUsize,
    has_answered: AtomicBool,
}

impl Service {
    async fn call(&self) -> std::result::Result<(), Failure> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if !self.is_well.load(Ordering::SeqCst) {
            return Err(Failure::retryable("no answer"));
        }
        if !self.has_answered.load(Ordering::SeqCst) {
            self.probes.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.has_answered.store(true, Ordering::SeqCst);
        }
        Ok(())
    }
}

/// Work waits for a service behind its circuit.
async fn outage(store: &Store) -> Result<Outage> {
    let circuits = Circuits::open(store).await?;
    let settings =
        Settings::consecutive(THRESHOLD, OPEN_MS, 1).map_err(mainstay::store::Error::application)?;
    let circuit = circuits.circuit_with("demo", settings)?;
    let service = Arc::new(Service::default());
    let called = service.clone();
    let functions = Functions::new()
        .action("notify", move |_: Call, _: usize| {
            let service = called.clone();
            async move { service.call().await }
        })
        .behind("notify", Arc::new(circuit.clone()));
    let work = Work::open(store, functions).await?;
    let retry = RetryPolicy::new(5, 1, 1.0, 1)
        .map_err(|error| Error::Invalid { field: "retry".to_owned(), reason: error.to_string() })?;
    work.pool(Pool::new("demo").max_parallelism(1).retry(retry)).await?;
    let items = (0..ITEMS).map(|number| NewWork::new("demo", "notify", &number));
    let ids = work.enqueue_all(items.collect::<mainstay::work::Result<_>>()?).await?;
    let engine = work.start().await?;
    let began = Instant::now();
    while circuit.status().await?.state == State::Closed && began.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let calls_until_open = service.calls.load(Ordering::SeqCst);
    tokio::time::sleep(WATCHED).await;
    let calls_while_open = service.calls.load(Ordering::SeqCst) - calls_until_open;
    let mut waiting = 0;
    for id in &ids {
        let status = work.status(&id.work_id).await?;
        waiting += usize::from(status.is_some_and(|status| status.attempts == 0));
    }
    service.is_well.store(true, Ordering::SeqCst);
    // Whoever mends a service need not wait: a circuit that is released lets a probe through.
    let (actor, reason) = ("demo".to_owned(), "it is being mended".to_owned());
    circuits.force("demo", Force { is_open: true, actor, reason, for_ms: None }).await?;
    circuits.release("demo", "demo", "it is mended").await?;
    let mut succeeded = 0;
    for id in &ids {
        let ended: Status = work.wait_for(&id.work_id, PATIENCE).await?;
        succeeded += usize::from(matches!(ended.result, Some(WorkResult::Success { .. })));
    }
    engine.stop(PATIENCE).await?;
    let probes = service.probes.load(Ordering::SeqCst);
    Ok(Outage { items: ITEMS, calls_until_open, calls_while_open, waiting, probes, succeeded })
}
