//! Concurrent appends of one process share transactions.
//!
//! A lone append runs on its caller's task. Others queue, and are taken into one transaction, as many as wait when its
//! turn comes. So batches form by themselves, exactly as large as the load asks for, and no append waits for a timer.
//!
//! - On PostgreSQL one task at a time runs them (`attend`), since a second transaction would only wait for the log's lock.
//! - On SQLite a transaction queues for the one writer and takes up what waits when it gets it (`ride`); the next one
//!   queues meanwhile, so that the writer never waits for us.

use super::Appended;
use super::commit::{Ground, commit};
use super::prepare::Prepared;
use crate::error::{Error, Result};
use crate::figures::Figures;
use crate::index::merge_if_due;
use mainstay_store::Store;
use std::collections::VecDeque;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Most appends of a transaction: beyond this its cost is spread thin already, and all wait for the last.
const MAX_APPENDS: usize = 256;
/// Most events of a transaction.
const MAX_EVENTS: usize = 1_000;
/// Most bytes of a transaction.
const MAX_BYTES: usize = 4 << 20;
/// So few appends on SQLite are transactions of their own, which the writer commits together: that saves the way over
/// a task, and the statements that many share save more. Of 8 and 64 callers, each was measured to be faster its way; where
/// between them it turns was not.
const FEW: usize = 16;
/// Most bytes that may wait at once, in kibibytes; callers beyond that wait outside.
const MAX_WAITING_KIB: u32 = 64 << 10;

/// Makes transactions of appends.
#[derive(Clone)]
pub(crate) struct Batcher(Arc<Shared>);

struct Shared {
    store: Store,
    ground: Arc<Ground>,
    figures: Arc<Figures>,
    /// Who holds it may run a transaction.
    turn: Arc<tokio::sync::Mutex<()>>,
    queue: Mutex<Queue>,
    room: Arc<Semaphore>,
    /// Appends under way, where one writer commits them.
    callers: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// Whether a task is there to take them.
    is_attended: bool,
}

struct Waiting {
    prepared: Arc<Prepared>,
    reply: oneshot::Sender<Result<Appended>>,
    _room: OwnedSemaphorePermit,
}

impl Batcher {
    pub(crate) fn new(store: Store, ground: Arc<Ground>, figures: Arc<Figures>) -> Self {
        Self(Arc::new(Shared {
            store,
            ground,
            figures,
            turn: Arc::default(),
            queue: Mutex::default(),
            room: Arc::new(Semaphore::new(MAX_WAITING_KIB as usize)),
            callers: AtomicUsize::new(0),
        }))
    }

    /// Appends, alone or in company.
    pub(crate) async fn append(&self, prepared: Arc<Prepared>) -> Result<Appended> {
        let began = Instant::now();
        let answer = self.append_somehow(prepared.clone()).await;
        self.0.figures.record(&prepared, &answer, began);
        answer
    }

    async fn append_somehow(&self, prepared: Arc<Prepared>) -> Result<Appended> {
        if let Some(recent) = &self.0.ground.recent {
            let answer = self.append_embedded(prepared).await;
            merge_if_due(&self.0.store, recent);
            return answer;
        }
        // Boxed like the other way that waits: what an append of SQLite never needs shall not make it larger.
        Box::pin(self.append_shared(prepared)).await
    }

    async fn append_shared(&self, prepared: Arc<Prepared>) -> Result<Appended> {
        if let Ok(_turn) = self.0.turn.try_lock()
            && self.queue().waiting.is_empty()
        {
            return self.run_alone(prepared).await;
        }
        self.append_in_company(prepared, Self::attend).await
    }

    async fn append_embedded(&self, prepared: Arc<Prepared>) -> Result<Appended> {
        let (_here, others) = Here::enter(&self.0.callers);
        if others < FEW {
            self.run_alone(prepared).await
        } else {
            Box::pin(self.append_in_company(prepared, Self::ride)).await
        }
    }

    /// Waits in the queue, which `attend` empties.
    async fn append_in_company<Fut>(
        &self,
        prepared: Arc<Prepared>,
        attend: fn(Self) -> Fut,
    ) -> Result<Appended>
    where
        Fut: Future<Output = ()> + Send + 'static,
    {
        let kib = u32::try_from(prepared.bytes / 1024 + 1).unwrap_or(MAX_WAITING_KIB).min(MAX_WAITING_KIB);
        let room = self.0.room.clone().acquire_many_owned(kib).await;
        let room = room.map_err(|_| Error::from(mainstay_store::Error::Closed))?;
        let (reply, answer) = oneshot::channel();
        let is_first = {
            let mut queue = self.queue();
            queue.waiting.push_back(Waiting { prepared, reply, _room: room });
            !std::mem::replace(&mut queue.is_attended, true)
        };
        if is_first {
            tokio::spawn(attend(self.clone()));
        }
        let abandoned = || mainstay_store::Error::CommitUnknown("the runtime went away".to_owned());
        answer.await.unwrap_or_else(|_| Err(abandoned().into()))
    }

    /// One transaction of the one writer. It takes up what waits when its turn comes, and from then on the next one may
    /// queue for the writer, so that there is no pause between them.
    async fn ride(self) {
        let mut watch = Watch { shared: &self.0, is_over: false };
        let ride = Arc::new(OnceLock::new());
        let run = async |tx, (batcher, ride): (Self, Arc<OnceLock<Ride>>)| {
            let ride = ride.get_or_init(|| batcher.board());
            commit(&batcher.0.ground, &tx, &ride.appends).await
        };
        let done = self.0.store.transact_with((self.clone(), ride.clone()), run).await;
        // A transaction that was refused before its turn takes its passengers along all the same.
        let ride = ride.get_or_init(|| self.board());
        self.0.figures.batch_size.record(ride.appends.len() as u64);
        let answers = self.settle(&ride.appends, done.map_err(Error::from)).await;
        ride.reply(answers);
        watch.is_over = true;
    }

    fn board(&self) -> Ride {
        let batch = self.take().unwrap_or_default();
        let is_left = {
            let mut queue = self.queue();
            queue.is_attended = !queue.waiting.is_empty();
            queue.is_attended
        };
        if is_left {
            tokio::spawn(self.clone().ride());
        }
        let (replies, appends) =
            batch.into_iter().map(|waiting| ((waiting.reply, waiting._room), waiting.prepared)).unzip();
        Ride { appends, replies: Mutex::new(replies) }
    }

    /// Runs what waits until nothing does.
    async fn attend(self) {
        let mut watch = Watch { shared: &self.0, is_over: false };
        loop {
            let _turn = self.0.turn.lock().await;
            let Some(batch) = self.take() else { break };
            self.run(batch).await;
            // Who was answered often comes again at once, and should be in the next one.
            tokio::task::yield_now().await;
        }
        watch.is_over = true;
    }

    fn take(&self) -> Option<Vec<Waiting>> {
        let mut queue = self.queue();
        let (mut batch, mut events, mut bytes) = (Vec::new(), 0, 0);
        while let Some(next) = queue.waiting.front() {
            events += next.prepared.events.len();
            bytes += next.prepared.bytes;
            let is_full = batch.len() >= MAX_APPENDS || events > MAX_EVENTS || bytes > MAX_BYTES;
            if is_full && !batch.is_empty() {
                break;
            }
            let Some(next) = queue.waiting.pop_front() else { break };
            // A caller that has gone away wants nothing any more.
            if !next.reply.is_closed() {
                batch.push(next);
            }
        }
        if batch.is_empty() && queue.waiting.is_empty() {
            queue.is_attended = false;
            return None;
        }
        Some(batch)
    }

    async fn run(&self, batch: Vec<Waiting>) {
        let (replies, appends): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|waiting| ((waiting.reply, waiting._room), waiting.prepared)).unzip();
        let done = self.transact(appends.clone()).await;
        let answers = self.settle(&appends, done).await;
        Ride { appends, replies: Mutex::new(replies) }.reply(answers);
    }

    /// The answers of a batch, whatever came of its transaction.
    async fn settle(
        &self,
        appends: &[Arc<Prepared>],
        done: Result<Vec<Result<Appended>>>,
    ) -> Vec<Result<Appended>> {
        match done {
            Ok(answers) => answers,
            Err(error) if appends.len() == 1 || is_for_all(&error) => {
                appends.iter().map(|_| Err(error.clone())).collect()
            }
            // One of them may be to blame; alone, only that one fails.
            Err(_) => self.run_each(appends).await,
        }
    }

    /// Runs appends one after another, for as long as there is hope: what keeps all of them waiting, such as a node that
    /// holds the log, would keep each of them waiting in turn, and everyone behind them.
    async fn run_each(&self, appends: &[Arc<Prepared>]) -> Vec<Result<Appended>> {
        let mut answers = Vec::with_capacity(appends.len());
        let (mut timeouts, mut hopeless) = (0, None);
        for append in appends {
            let answer = match &hopeless {
                Some(error) => Err(Error::clone(error)),
                None => self.run_alone(append.clone()).await,
            };
            if let Err(Error::Store(error)) = &answer {
                use mainstay_store::Error as Store;
                timeouts += u32::from(matches!(**error, Store::Timeout { .. }));
                // A single one that takes too long may be to blame for it; a second one is not.
                if timeouts > 1
                    || matches!(**error, Store::Busy { .. } | Store::Unavailable(_) | Store::Closed)
                {
                    hopeless = answer.as_ref().err().cloned();
                }
            }
            answers.push(answer);
        }
        answers
    }

    async fn run_alone(&self, prepared: Arc<Prepared>) -> Result<Appended> {
        let mut answers = self.transact(vec![prepared]).await?;
        answers.pop().unwrap_or_else(|| Err(mainstay_store::Error::Closed.into()))
    }

    async fn transact(&self, appends: Vec<Arc<Prepared>>) -> Result<Vec<Result<Appended>>> {
        self.0.figures.batch_size.record(appends.len() as u64);
        let ground = self.0.ground.clone();
        let run = async |tx, (ground, appends): (Arc<Ground>, Vec<Arc<Prepared>>)| {
            commit(&ground, &tx, &appends).await
        };
        Ok(self.0.store.transact_with((ground, appends), run).await?)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Reply = (oneshot::Sender<Result<Appended>>, OwnedSemaphorePermit);

/// Appends that share a transaction, and who waits for them.
struct Ride {
    appends: Vec<Arc<Prepared>>,
    replies: Mutex<Vec<Reply>>,
}

impl Ride {
    fn reply(&self, answers: Vec<Result<Appended>>) {
        let replies = std::mem::take(&mut *self.replies.lock().unwrap_or_else(PoisonError::into_inner));
        for ((reply, _room), answer) in replies.into_iter().zip(answers) {
            // Who went away meanwhile has no use for it.
            let _ = reply.send(answer);
        }
    }
}

/// Counts who is there.
struct Here<'a>(&'a AtomicUsize);

impl<'a> Here<'a> {
    /// Counts one more, and tells how many others there are.
    fn enter(count: &'a AtomicUsize) -> (Self, usize) {
        let others = count.fetch_add(1, Ordering::Relaxed);
        (Self(count), others)
    }
}

impl Drop for Here<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// When the task that attends the queue is ended from outside, nobody may wait for it in vain, and the next append
/// starts another.
struct Watch<'a> {
    shared: &'a Shared,
    is_over: bool,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let mut queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.waiting.clear();
            queue.is_attended = false;
        }
    }
}

/// Whether a failure says nothing about any single append.
fn is_for_all(error: &Error) -> bool {
    use mainstay_store::Error as Store;
    let Error::Store(error) = error else { return false };
    matches!(
        **error,
        Store::Busy { .. }
            | Store::Unavailable(_)
            | Store::CommitUnknown(_)
            | Store::Closed
            | Store::DiskFull(_)
    )
}
