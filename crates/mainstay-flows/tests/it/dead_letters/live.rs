//! What goes on while letters are dealt with: items that nobody has retried, each with the time from the moment it was due until
//! its function was called.

use super::bench::SHOP;
use mainstay_work::{Call, Functions, NewWork, Work};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Callers that each wait for one item before they ask for the next.
const CALLERS: usize = 16;

#[derive(Default)]
pub(super) struct Live {
    numbers: AtomicU64,
    /// When items were due that were not called yet, and who waits for that.
    due: Mutex<HashMap<u64, (Instant, oneshot::Sender<()>)>>,
    took: Mutex<Vec<Duration>>,
}

/// What live work was like for a while.
#[derive(Clone, Copy)]
pub(super) struct Figures {
    pub(super) per_second: f64,
    p50: Duration,
    p99: Duration,
}

impl std::fmt::Display for Figures {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:.0}/s, p50 {:?}, p99 {:?}", self.per_second, self.p50, self.p99)
    }
}

impl Live {
    pub(super) fn functions(self: &Arc<Self>, functions: Functions) -> Functions {
        let live = self.clone();
        functions.action("live", move |_: Call, number: u64| {
            let due = live.due.lock().unwrap().remove(&number);
            if let Some((due, called)) = due {
                live.took.lock().unwrap().push(due.elapsed());
                let _ = called.send(());
            }
            async { Ok(()) }
        })
    }

    /// Enqueues an item, and waits until its function is called.
    async fn one(&self, work: &Work, due: Instant) {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (called, waiting) = oneshot::channel();
        self.due.lock().unwrap().insert(number, (due, called));
        work.enqueue(NewWork::new(SHOP, "live", &number).unwrap()).await.unwrap();
        waiting.await.unwrap();
    }

    /// As many items as a few callers get done who wait for each of theirs, until something is over.
    pub(super) async fn as_fast_as_can_be(&self, work: &Work, until: impl Future<Output = ()>) -> Figures {
        let callers = (0..CALLERS).map(async |_| {
            loop {
                self.one(work, Instant::now()).await;
            }
        });
        self.figures_of(futures_util::future::join_all(callers), until).await
    }

    /// So many items a second, whether earlier ones are done or not, until something is over. One that comes late because the
    /// machine is busy was due when it was due.
    pub(super) async fn steadily(
        self: &Arc<Self>,
        work: &Work,
        per_second: f64,
        until: impl Future<Output = ()>,
    ) -> Figures {
        let arrivals = async {
            let began = Instant::now();
            for number in 0_u64.. {
                let due = began + Duration::from_secs_f64(number as f64 / per_second);
                tokio::time::sleep_until(due.into()).await;
                let (live, work) = (self.clone(), work.clone());
                tokio::spawn(async move { live.one(&work, due).await });
            }
        };
        self.figures_of(arrivals, until).await
    }

    async fn figures_of<T>(&self, work: impl Future<Output = T>, until: impl Future<Output = ()>) -> Figures {
        self.took.lock().unwrap().clear();
        let began = Instant::now();
        tokio::select! {
            _ = work => unreachable!("it goes on for ever"),
            () = until => {}
        }
        let elapsed = began.elapsed();
        let mut took = std::mem::take(&mut *self.took.lock().unwrap());
        took.sort();
        let at = |share: f64| took.get((took.len() as f64 * share) as usize).copied().unwrap_or_default();
        Figures { per_second: took.len() as f64 / elapsed.as_secs_f64(), p50: at(0.5), p99: at(0.99) }
    }
}
