//! `mainstay bench work`: items that do nothing, enqueued in batches, worked until none is left, and one at a time.

use hdrhistogram::Histogram;
use mainstay::store::Store;
use mainstay::work::{Call, Functions, NewWork, Pool, Result, Work};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The pool that is measured.
pub const POOL: &str = "bench";
/// Items of one enqueueing transaction.
pub const BATCH: usize = 1_000;
/// Items that run at once: two claims' worth, so that one is taken while the other ends.
pub const AT_ONCE: u32 = 1_000;

const BATCHED: &str = "bench.noop";
const ALONE: &str = "bench.start";
/// What an item carries.
const ARGS: &str = "one of many items that do nothing";

/// What was measured.
#[derive(Debug)]
pub struct Measured {
    /// Items that were enqueued and worked, counted by their function.
    pub items: u64,
    /// How long enqueueing them took.
    pub enqueueing: Duration,
    /// How long working them took.
    pub working: Duration,
    /// From the call that enqueues an item to the start of its function, in microseconds, one item at a time.
    pub start_us: Histogram<u64>,
}

impl Measured {
    /// Items enqueued per second.
    pub fn enqueued_per_second(&self) -> f64 {
        self.items as f64 / self.enqueueing.as_secs_f64()
    }

    /// Items worked per second.
    pub fn worked_per_second(&self) -> f64 {
        self.items as f64 / self.working.as_secs_f64()
    }

    /// The time within which a share of the items started, in milliseconds.
    pub fn start_ms(&self, quantile: f64) -> f64 {
        self.start_us.value_at_quantile(quantile) as f64 / 1e3
    }
}

/// Enqueues and works at least `items` items, then starts `starts` of them one after another.
pub async fn measure(store: &Store, items: usize, starts: usize) -> Result<Measured> {
    let (bench, mut started) = Bench::open(store).await?;
    let batches = items.div_ceil(BATCH);
    // Statements are prepared, and the file has its size.
    bench.enqueue(1).await?;
    bench.work_off().await?;
    let before = bench.ran.load(Ordering::Relaxed);
    let began = Instant::now();
    bench.enqueue(batches).await?;
    let enqueueing = began.elapsed();
    let working = bench.work_off().await?;
    let start_us = bench.start_each(starts, &mut started).await?;
    let items = bench.ran.load(Ordering::Relaxed) - before;
    Ok(Measured { items, enqueueing, working, start_us })
}

struct Bench {
    work: Work,
    ran: Arc<AtomicU64>,
}

impl Bench {
    async fn open(store: &Store) -> Result<(Self, UnboundedReceiver<Instant>)> {
        let ran = Arc::new(AtomicU64::new(0));
        let (starting, started) = unbounded_channel();
        let counting = ran.clone();
        let functions = Functions::new()
            .action(BATCHED, move |_: Call, args: String| {
                std::hint::black_box(args);
                counting.fetch_add(1, Ordering::Relaxed);
                async { Ok(()) }
            })
            .action(ALONE, move |_: Call, _: String| {
                // Nobody listens any more once everything was measured.
                let _ = starting.send(Instant::now());
                async { Ok(()) }
            });
        let work = Work::open(store, functions).await?;
        work.pool(Pool::new(POOL).max_parallelism(AT_ONCE)).await?;
        Ok((Self { work, ran }, started))
    }

    async fn enqueue(&self, batches: usize) -> Result<()> {
        let item = NewWork::new(POOL, BATCHED, ARGS)?;
        for _ in 0..batches {
            self.work.enqueue_all(vec![item.clone(); BATCH]).await?;
        }
        Ok(())
    }

    /// Works until nothing is left; how long that took, from the start of the engine on.
    async fn work_off(&self) -> Result<Duration> {
        let began = Instant::now();
        let engine = self.work.start().await?;
        loop {
            let depth = self.work.depth(POOL).await?;
            if depth.pending == 0 && depth.running == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let took = began.elapsed();
        engine.stop(Duration::from_secs(5)).await?;
        Ok(took)
    }

    async fn start_each(
        &self,
        starts: usize,
        started: &mut UnboundedReceiver<Instant>,
    ) -> Result<Histogram<u64>> {
        let mut start_us = Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are in range");
        let item = NewWork::new(POOL, ALONE, ARGS)?;
        let engine = self.work.start().await?;
        for number in 0..=starts {
            let began = Instant::now();
            self.work.enqueue(item.clone()).await?;
            let Some(start) = started.recv().await else { break };
            // The first finds a pool that nobody attends to yet.
            if number > 0 {
                start_us.saturating_record((start - began).as_micros() as u64);
            }
        }
        engine.stop(Duration::from_secs(5)).await?;
        Ok(start_us)
    }
}
