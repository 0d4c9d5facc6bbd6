//! A closed-loop load generator: so many callers, each doing one thing after another.

use hdrhistogram::Histogram;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Latencies are kept from a microsecond to a minute, with this many significant digits.
const DIGITS: u8 = 3;
const LONGEST_US: u64 = 60_000_000;

/// How much load, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Callers at once.
    pub callers: usize,
    /// Time before anything is counted.
    pub warm_up: Duration,
    /// Time that is counted.
    pub measured: Duration,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// Callers at once.
    pub callers: usize,
    /// Operations that ended well in the measured time.
    pub done: u64,
    /// Operations that failed.
    pub failed: u64,
    /// The measured time.
    pub elapsed: Duration,
    latency_us: Histogram<u64>,
}

impl Outcome {
    /// Operations per second.
    pub fn per_second(&self) -> f64 {
        self.done as f64 / self.elapsed.as_secs_f64()
    }

    /// The latency at a quantile, in milliseconds.
    pub fn latency_ms(&self, quantile: f64) -> f64 {
        self.latency_us.value_at_quantile(quantile) as f64 / 1_000.0
    }
}

impl Load {
    /// Runs `operation(caller, number)` from every caller until the time is over. Call it inside a runtime.
    pub async fn run<F, Fut>(self, operation: F) -> Outcome
    where
        F: Fn(usize, u64) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = anyhow::Result<()>> + Send,
    {
        self.run_callers(operation, tokio::spawn).await
    }

    /// The same with a thread for every caller: for operations that block instead of waiting.
    pub async fn run_on_threads<F, Fut>(self, operation: F) -> Outcome
    where
        F: Fn(usize, u64) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = anyhow::Result<()>> + Send,
    {
        let runtime = Handle::current();
        self.run_callers(operation, |caller| {
            let runtime = runtime.clone();
            tokio::task::spawn_blocking(move || runtime.block_on(caller))
        })
        .await
    }

    async fn run_callers<F, Fut>(self, operation: F, spawn: impl Fn(Caller) -> JoinHandle<Share>) -> Outcome
    where
        F: Fn(usize, u64) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = anyhow::Result<()>> + Send,
    {
        let operation = Arc::new(operation);
        let counting_from = Instant::now() + self.warm_up;
        let until = counting_from + self.measured;
        let callers = (0..self.callers).map(|caller| {
            let operation = operation.clone();
            spawn(Box::pin(async move { call(caller, &*operation, counting_from, until).await }))
        });
        let callers: Vec<_> = callers.collect();
        let mut total = Outcome {
            callers: self.callers,
            done: 0,
            failed: 0,
            elapsed: self.measured,
            latency_us: empty(),
        };
        for caller in callers {
            match caller.await {
                Ok(share) => {
                    total.done += share.done;
                    total.failed += share.failed;
                    // Adding histograms of the same precision cannot fail.
                    total.latency_us.add(&share.latency_us).unwrap_or_default();
                }
                Err(_panicked) => total.failed += 1,
            }
        }
        total
    }
}

/// All that one caller does.
type Caller = Pin<Box<dyn Future<Output = Share> + Send>>;

struct Share {
    done: u64,
    failed: u64,
    latency_us: Histogram<u64>,
}

async fn call<F, Fut>(caller: usize, operation: &F, counting_from: Instant, until: Instant) -> Share
where
    F: Fn(usize, u64) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    let mut share = Share { done: 0, failed: 0, latency_us: empty() };
    for number in 0.. {
        let began = Instant::now();
        if began >= until {
            break;
        }
        let result = operation(caller, number).await;
        let ended = Instant::now();
        if began < counting_from || ended > until {
            continue;
        }
        match result {
            Ok(()) => {
                share.done += 1;
                share.latency_us.saturating_record((ended - began).as_micros() as u64);
            }
            Err(_) => share.failed += 1,
        }
    }
    share
}

fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_US, DIGITS)
        .expect("the bounds and the number of digits are in range")
}
