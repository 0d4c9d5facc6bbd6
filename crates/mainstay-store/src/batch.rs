//! Batches of callers: callers that arrive while a run is under way share the next run.
//!
//! Batches form by themselves, as large as the load asks for. No caller waits for a timer.
//!
//! - [`Batcher`] is enough where a run takes what waits once, when it starts.
//! - [`Batch`] and [`Lane`] are for services whose runs take callers later, such as when their transaction gets the writer.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Default of the most callers that may wait. The answer to another one would come too late to be of use.
const MAX_WAITING: usize = 65_536;

/// A service that answers callers in batches.
pub trait Batch: Send + Sync + Sized + 'static {
    /// Request of a caller.
    type Request: Send + 'static;
    /// Answer to a caller.
    type Answer: Send + 'static;

    /// The callers that wait.
    fn queue(&self) -> &Queue<Self::Request, Self::Answer>;

    /// Takes callers that wait, and answers them. When `lane` is dropped while callers wait, the next run starts.
    fn run(self: Arc<Self>, lane: Lane<Self>) -> impl Future<Output = ()> + Send;
}

/// Callers that wait, and the number of runs that are under way.
pub struct Queue<T, A> {
    lanes: usize,
    max_waiting: usize,
    state: Mutex<State<T, A>>,
}

struct State<T, A> {
    waiting: VecDeque<Waiting<T, A>>,
    under_way: usize,
}

/// A caller that waits.
pub struct Waiting<T, A> {
    /// Its request.
    pub request: T,
    /// Takes its answer.
    pub reply: oneshot::Sender<A>,
}

/// Whether a run takes a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admit {
    /// The run takes it.
    Take,
    /// It waits for a later run, before all callers behind it.
    Leave,
    /// It waits, and so do all behind it.
    Stop,
}

impl<T, A> Queue<T, A> {
    /// An empty queue with at most `lanes` runs at a time.
    pub fn new(lanes: usize) -> Self {
        let state = Mutex::new(State { waiting: VecDeque::new(), under_way: 0 });
        Self { lanes, max_waiting: MAX_WAITING, state }
    }

    /// The same with another bound of the callers that may wait.
    pub fn max_waiting(self, max_waiting: usize) -> Self {
        Self { max_waiting, ..self }
    }

    fn state(&self) -> MutexGuard<'_, State<T, A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to a run. Dropping it ends the run, and starts the next one if callers wait.
pub struct Lane<S: Batch>(Arc<S>);

impl<S: Batch> Lane<S> {
    /// A lane for a caller that runs alone, when one is free and no caller waits.
    pub fn enter(service: &Arc<S>) -> Option<Self> {
        let queue = service.queue();
        let mut state = queue.state();
        let is_free = state.under_way < queue.lanes && state.waiting.is_empty();
        is_free.then(|| {
            state.under_way += 1;
            Self(service.clone())
        })
    }

    /// Adds a caller, and starts a run when a lane is free; gives the request back when too many callers wait.
    pub fn wait(service: &Arc<S>, request: S::Request) -> Result<oneshot::Receiver<S::Answer>, S::Request> {
        let queue = service.queue();
        let mut state = queue.state();
        if state.waiting.len() >= queue.max_waiting {
            return Err(request);
        }
        let (reply, answer) = oneshot::channel();
        state.waiting.push_back(Waiting { request, reply });
        Self::start(service, state);
        Ok(answer)
    }

    /// Lets callers that a run has taken wait again, before all others.
    pub fn put_back(service: &Arc<S>, callers: Vec<Waiting<S::Request, S::Answer>>) {
        let mut state = service.queue().state();
        callers.into_iter().rev().for_each(|caller| state.waiting.push_front(caller));
        if !state.waiting.is_empty() {
            Self::start(service, state);
        }
    }

    fn start(service: &Arc<S>, mut state: MutexGuard<'_, State<S::Request, S::Answer>>) {
        if state.under_way < service.queue().lanes {
            state.under_way += 1;
            drop(state);
            tokio::spawn(service.clone().run(Self(service.clone())));
        }
    }

    /// Takes callers in their order, at most so many. Callers that have gone away are dropped.
    pub fn take(
        &self,
        most: usize,
        mut admit: impl FnMut(&S::Request) -> Admit,
    ) -> Vec<Waiting<S::Request, S::Answer>> {
        let mut state = self.0.queue().state();
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        while taken.len() < most
            && let Some(caller) = state.waiting.pop_front()
        {
            if caller.reply.is_closed() {
                continue;
            }
            match admit(&caller.request) {
                Admit::Take => taken.push(caller),
                Admit::Leave => left.push(caller),
                Admit::Stop => {
                    left.push(caller);
                    break;
                }
            }
        }
        left.into_iter().rev().for_each(|caller| state.waiting.push_front(caller));
        taken
    }
}

impl<S: Batch> Drop for Lane<S> {
    fn drop(&mut self) {
        let mut state = self.0.queue().state();
        // A run that panics may do so again before it takes anything.
        if std::thread::panicking() {
            state.waiting.clear();
        }
        if !state.waiting.is_empty()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            drop(state);
            runtime.spawn(self.0.clone().run(Self(self.0.clone())));
            return;
        }
        // Without a runtime the callers have gone as well.
        state.waiting.clear();
        state.under_way -= 1;
    }
}

/// Answers a batch of requests.
pub trait Runs: Send + Sync + 'static {
    /// Request of a caller.
    type Ask: Send + 'static;
    /// Answer to a caller.
    type Answer: Send + 'static;
    /// Most requests of a run: beyond this its cost is spread thin already, and all wait for the last.
    const MAX_BATCH: usize = 256;

    /// Answers all of them, in their order.
    fn run(&self, asks: Vec<Self::Ask>) -> impl Future<Output = Vec<Self::Answer>> + Send;

    /// Answers a lone caller, on the caller's task.
    fn run_alone(&self, ask: Self::Ask) -> impl Future<Output = Self::Answer> + Send {
        async { self.run(vec![ask]).await.pop().unwrap_or_else(|| self.lost()) }
    }

    /// The answer when a run ends without one, or too many callers wait.
    fn lost(&self) -> Self::Answer;
}

/// Answers callers in batches: a lone caller on its own task, the others together.
pub struct Batcher<R: Runs>(Arc<Shared<R>>);

struct Shared<R: Runs> {
    runs: R,
    queue: Queue<R::Ask, R::Answer>,
}

impl<R: Runs> Clone for Batcher<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R: Runs> Batcher<R> {
    /// A batcher with at most `lanes` runs at a time.
    pub fn new(runs: R, lanes: usize) -> Self {
        Self(Arc::new(Shared { runs, queue: Queue::new(lanes) }))
    }

    /// The service that answers.
    pub fn runs(&self) -> &R {
        &self.0.runs
    }

    /// Asks, alone or in a batch.
    pub async fn ask(&self, ask: R::Ask) -> R::Answer {
        if let Some(_lane) = Lane::enter(&self.0) {
            return self.0.runs.run_alone(ask).await;
        }
        let answer = match Lane::wait(&self.0, ask) {
            Ok(answer) => answer.await.ok(),
            Err(_) => None,
        };
        answer.unwrap_or_else(|| self.0.runs.lost())
    }
}

impl<R: Runs> Batch for Shared<R> {
    type Request = R::Ask;
    type Answer = R::Answer;

    fn queue(&self) -> &Queue<R::Ask, R::Answer> {
        &self.queue
    }

    async fn run(self: Arc<Self>, lane: Lane<Self>) {
        loop {
            // A caller that got its answer often asks again at once, and joins the next batch.
            tokio::task::yield_now().await;
            let batch = lane.take(R::MAX_BATCH, |_| Admit::Take);
            if batch.is_empty() {
                return;
            }
            let (asks, replies): (Vec<_>, Vec<_>) =
                batch.into_iter().map(|caller| (caller.request, caller.reply)).unzip();
            let answers = self.runs.run(asks).await;
            for (reply, answer) in replies.into_iter().zip(answers) {
                // A caller that has gone away needs no answer.
                let _ = reply.send(answer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::{Notify, Semaphore};

    /// Answers with the double, one run for each permit.
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
        type Answer = Option<u64>;

        async fn run(&self, asks: Vec<u64>) -> Vec<Option<u64>> {
            let under_way = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_under_way.fetch_max(under_way, Ordering::SeqCst);
            self.runs.lock().unwrap().push(asks.len());
            self.began.notify_one();
            self.gate.acquire().await.unwrap().forget();
            self.under_way.fetch_sub(1, Ordering::SeqCst);
            assert!(!asks.contains(&u64::MAX), "a run that panics");
            asks.into_iter().map(|ask| Some(ask * 2)).collect()
        }

        fn lost(&self) -> Option<u64> {
            None
        }
    }

    fn waiting(batcher: &Batcher<Doubles>) -> usize {
        batcher.0.queue.state().waiting.len()
    }

    #[tokio::test]
    async fn waiting_callers_are_answered_together_and_each_with_its_own() {
        let batcher = Doubles::batcher(1);
        let ask = |number: u64| {
            let batcher = batcher.clone();
            tokio::spawn(async move { batcher.ask(number).await.unwrap() })
        };
        let mut asks = vec![ask(0)];
        batcher.runs().began.notified().await;
        asks.extend((1..=300).map(ask));
        while waiting(&batcher) < 300 {
            tokio::task::yield_now().await;
        }
        batcher.runs().gate.add_permits(3);
        for (number, ask) in asks.into_iter().enumerate() {
            assert_eq!(ask.await.unwrap(), number as u64 * 2);
        }
        assert_eq!(*batcher.runs().runs.lock().unwrap(), [1, 256, 44]);
        assert_eq!(batcher.runs().most_under_way.load(Ordering::SeqCst), 1);
        while batcher.0.queue.state().under_way > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_caller_that_goes_away_delays_no_other() {
        let batcher = Doubles::batcher(1);
        let spawned = batcher.clone();
        let gone = tokio::spawn(async move { spawned.ask(1).await });
        batcher.runs().began.notified().await;
        let spawned = batcher.clone();
        let waits = tokio::spawn(async move { spawned.ask(2).await });
        while waiting(&batcher) == 0 {
            tokio::task::yield_now().await;
        }
        gone.abort();
        batcher.runs().gate.add_permits(1);
        assert_eq!(waits.await.unwrap().unwrap(), 4);
    }

    #[tokio::test]
    async fn callers_of_a_run_that_panics_get_an_answer_and_later_ones_are_served() {
        let batcher = Doubles::batcher(1);
        let ask = |number: u64| {
            let batcher = batcher.clone();
            tokio::spawn(async move { batcher.ask(number).await })
        };
        let first = ask(1);
        batcher.runs().began.notified().await;
        let (bad, beside) = (ask(u64::MAX), ask(2));
        while waiting(&batcher) < 2 {
            tokio::task::yield_now().await;
        }
        batcher.runs().gate.add_permits(3);
        assert_eq!(first.await.unwrap(), Some(2));
        assert_eq!((bad.await.unwrap(), beside.await.unwrap()), (None, None));
        assert_eq!(ask(3).await.unwrap(), Some(6));
    }
}
