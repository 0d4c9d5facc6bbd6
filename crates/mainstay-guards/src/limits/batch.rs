//! Callers that ask at the same time are answered together.
//!
//! A lone caller runs on its own task. While as many runs are under way as there are lanes, others queue, and each run
//! that ends takes up all that wait, as one run. So batches form by themselves, exactly as large as the load asks for,
//! and nobody waits for a timer.

use crate::{Error, Result};
use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Most asks of one run: beyond this its cost is spread thin already, and all wait for the last.
const MAX_BATCH: usize = 256;
/// Most callers that may wait; those beyond are refused, because the answer would come too late to be of use.
const MAX_WAITING: usize = 65_536;

/// What answers.
pub(super) trait Runs: Send + Sync + 'static {
    /// What is asked.
    type Ask: Send + 'static;
    /// What is answered.
    type Answer: Send + 'static;

    /// Answers all of them, in their order.
    fn run(&self, asks: Vec<Self::Ask>) -> impl Future<Output = Vec<Result<Self::Answer>>> + Send;

    /// Answers a lone caller, whose own task this runs on.
    fn run_alone(&self, ask: Self::Ask) -> impl Future<Output = Result<Self::Answer>> + Send {
        async { self.run(vec![ask]).await.pop().unwrap_or_else(|| Err(self.lost())) }
    }

    /// Why a caller gets no answer.
    fn lost(&self) -> Error;
}

/// Makes runs of asks.
pub(super) struct Batcher<R: Runs>(Arc<Shared<R>>);

impl<R: Runs> Clone for Batcher<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

struct Shared<R: Runs> {
    runs: R,
    lanes: usize,
    queue: Mutex<Queue<R>>,
}

struct Queue<R: Runs> {
    waiting: VecDeque<Waiting<R>>,
    under_way: usize,
}

struct Waiting<R: Runs> {
    ask: R::Ask,
    reply: oneshot::Sender<Result<R::Answer>>,
}

impl<R: Runs> Batcher<R> {
    pub(super) fn new(runs: R, lanes: usize) -> Self {
        let queue = Mutex::new(Queue { waiting: VecDeque::new(), under_way: 0 });
        Self(Arc::new(Shared { runs, lanes, queue }))
    }

    pub(super) fn runs(&self) -> &R {
        &self.0.runs
    }

    /// Asks, alone or in company.
    pub(super) async fn ask(&self, ask: R::Ask) -> Result<R::Answer> {
        let answer = match self.enter(ask) {
            Entered::Runs(ask, _lane) => return self.0.runs.run_alone(ask).await,
            Entered::Waits(answer) => answer.await.ok(),
            Entered::Refused => None,
        };
        answer.unwrap_or_else(|| Err(self.0.runs.lost()))
    }

    /// Asks alone, on the caller's own task whoever else asks: for what is to be a part of what that task does.
    pub(super) async fn ask_alone(&self, ask: R::Ask) -> Result<R::Answer> {
        self.0.runs.run_alone(ask).await
    }

    fn enter(&self, ask: R::Ask) -> Entered<R> {
        let mut queue = self.0.queue();
        if queue.under_way < self.0.lanes && queue.waiting.is_empty() {
            queue.under_way += 1;
            return Entered::Runs(ask, Lane(self.0.clone()));
        }
        if queue.waiting.len() >= MAX_WAITING {
            return Entered::Refused;
        }
        let (reply, answer) = oneshot::channel();
        queue.waiting.push_back(Waiting { ask, reply });
        Entered::Waits(answer)
    }
}

/// What becomes of somebody who asks.
enum Entered<R: Runs> {
    Runs(R::Ask, Lane<R>),
    Waits(oneshot::Receiver<Result<R::Answer>>),
    Refused,
}

impl<R: Runs> Shared<R> {
    fn queue(&self) -> MutexGuard<'_, Queue<R>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Vec<Waiting<R>> {
        let mut queue = self.queue();
        let mut batch = Vec::new();
        while batch.len() < MAX_BATCH {
            let Some(next) = queue.waiting.pop_front() else { break };
            // A caller that has gone away wants nothing any more.
            if !next.reply.is_closed() {
                batch.push(next);
            }
        }
        batch
    }

    async fn attend(self: Arc<Self>) {
        let _lane = Lane(self.clone());
        loop {
            // Who was answered often comes again at once, and should be in the next run.
            tokio::task::yield_now().await;
            let batch = self.take();
            if batch.is_empty() {
                return;
            }
            let (asks, replies): (Vec<_>, Vec<_>) =
                batch.into_iter().map(|waiting| (waiting.ask, waiting.reply)).unzip();
            let answers = self.runs.run(asks).await;
            for (reply, answer) in replies.into_iter().zip(answers) {
                // Who went away meanwhile has no use for it.
                let _ = reply.send(answer);
            }
        }
    }
}

/// A run that is under way. When it is over, however it ended, somebody looks after those who wait.
struct Lane<R: Runs>(Arc<Shared<R>>);

impl<R: Runs> Drop for Lane<R> {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        if queue.waiting.is_empty() {
            queue.under_way -= 1;
            return;
        }
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(self.0.clone().attend())),
            // The runtime has gone, and whoever waits on it with it.
            Err(_) => {
                queue.waiting.clear();
                queue.under_way -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::{Notify, Semaphore};

    /// Answers with the double, when it is let.
    struct Doubles {
        gate: Semaphore,
        began: Notify,
        runs: Mutex<Vec<usize>>,
        most_under_way: AtomicUsize,
        under_way: AtomicUsize,
    }

    impl Doubles {
        fn batcher(lanes: usize) -> Batcher<Self> {
            let doubles = Self {
                gate: Semaphore::new(0),
                began: Notify::new(),
                runs: Mutex::default(),
                most_under_way: AtomicUsize::new(0),
                under_way: AtomicUsize::new(0),
            };
            Batcher::new(doubles, lanes)
        }
    }

    impl Runs for Doubles {
        type Ask = u64;
        type Answer = u64;

        async fn run(&self, asks: Vec<u64>) -> Vec<Result<u64>> {
            let under_way = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_under_way.fetch_max(under_way, Ordering::SeqCst);
            self.runs.lock().unwrap().push(asks.len());
            self.began.notify_one();
            self.gate.acquire().await.unwrap().forget();
            self.under_way.fetch_sub(1, Ordering::SeqCst);
            asks.into_iter().map(|ask| Ok(ask * 2)).collect()
        }

        fn lost(&self) -> Error {
            Error::invalid("ask", "is lost")
        }
    }

    #[tokio::test]
    async fn those_who_wait_are_answered_together_and_each_with_its_own() {
        let batcher = Doubles::batcher(1);
        let ask = |number: u64| {
            let batcher = batcher.clone();
            tokio::spawn(async move { batcher.ask(number).await.unwrap() })
        };
        let mut asks = vec![ask(0)];
        batcher.runs().began.notified().await;
        asks.extend((1..=300).map(ask));
        while batcher.0.queue().waiting.len() < 300 {
            tokio::task::yield_now().await;
        }
        batcher.runs().gate.add_permits(3);
        for (number, ask) in asks.into_iter().enumerate() {
            assert_eq!(ask.await.unwrap(), number as u64 * 2);
        }
        assert_eq!(*batcher.runs().runs.lock().unwrap(), [1, 256, 44]);
        assert_eq!(batcher.runs().most_under_way.load(Ordering::SeqCst), 1);
        while batcher.0.queue().under_way > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_caller_that_goes_away_holds_up_nobody() {
        let batcher = Doubles::batcher(1);
        let spawned = batcher.clone();
        let gone = tokio::spawn(async move { spawned.ask(1).await });
        batcher.runs().began.notified().await;
        let spawned = batcher.clone();
        let waits = tokio::spawn(async move { spawned.ask(2).await });
        while batcher.0.queue().waiting.is_empty() {
            tokio::task::yield_now().await;
        }
        gone.abort();
        batcher.runs().gate.add_permits(1);
        assert_eq!(waits.await.unwrap().unwrap(), 4);
    }
}
