//! Concurrent appends of one process share transactions.
//!
//! A lone append runs on its caller's task; appends that come meanwhile share the next transaction ([`Batch`]).
//!
//! - On PostgreSQL one transaction runs at a time (`run_one_by_one`): a second one would only wait for the log's lock.
//! - On SQLite a transaction takes its appends when it gets the writer (`run_at_writer`). The next one queues for the writer
//!   meanwhile, so that the writer never waits.

use super::Appended;
use super::commit::{Ground, commit};
use super::prepare::Prepared;
use crate::error::{Error, Result};
use crate::figures::Figures;
use crate::index::merge_if_due;
use mainstay_store::Store;
use mainstay_store::batch::{Admit, Batch, Lane, Queue, Waiting};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
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
    queue: Queue<Request, Result<Appended>>,
    room: Arc<Semaphore>,
    /// Appends under way, where one writer commits them.
    callers: AtomicUsize,
}

struct Request {
    prepared: Arc<Prepared>,
    _room: OwnedSemaphorePermit,
}

impl Batcher {
    pub(crate) fn new(store: Store, ground: Arc<Ground>, figures: Arc<Figures>) -> Self {
        Self(Arc::new(Shared {
            store,
            ground,
            figures,
            // `room` bounds the callers that wait.
            queue: Queue::new(1).max_waiting(usize::MAX),
            room: Arc::new(Semaphore::new(MAX_WAITING_KIB as usize)),
            callers: AtomicUsize::new(0),
        }))
    }

    /// Appends, alone or in a batch.
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
        match Lane::enter(&self.0) {
            Some(_lane) => self.0.run_alone(prepared).await,
            None => self.append_in_batch(prepared).await,
        }
    }

    async fn append_embedded(&self, prepared: Arc<Prepared>) -> Result<Appended> {
        let (_here, others) = Here::enter(&self.0.callers);
        if others < FEW {
            self.0.run_alone(prepared).await
        } else {
            Box::pin(self.append_in_batch(prepared)).await
        }
    }

    async fn append_in_batch(&self, prepared: Arc<Prepared>) -> Result<Appended> {
        let kib = u32::try_from(prepared.bytes / 1024 + 1).unwrap_or(MAX_WAITING_KIB).min(MAX_WAITING_KIB);
        let closed = || Error::from(mainstay_store::Error::Closed);
        let room = self.0.room.clone().acquire_many_owned(kib).await.map_err(|_| closed())?;
        let answer = Lane::wait(&self.0, Request { prepared, _room: room }).map_err(|_| closed())?;
        let abandoned = || mainstay_store::Error::CommitUnknown("the runtime went away".to_owned());
        answer.await.unwrap_or_else(|_| Err(abandoned().into()))
    }
}

impl Batch for Shared {
    type Request = Request;
    type Answer = Result<Appended>;

    fn queue(&self) -> &Queue<Request, Result<Appended>> {
        &self.queue
    }

    async fn run(self: Arc<Self>, lane: Lane<Self>) {
        match self.ground.recent {
            Some(_) => self.run_at_writer(lane).await,
            None => self.run_one_by_one(lane).await,
        }
    }
}

impl Shared {
    /// One transaction of the one writer. It takes the appends that wait when its turn comes.
    async fn run_at_writer(self: Arc<Self>, lane: Lane<Self>) {
        let pending = Arc::new(Pending { lane: Mutex::new(Some(lane)), taken: OnceLock::new() });
        let run = async |tx, (shared, pending): (Arc<Self>, Arc<Pending>)| {
            commit(&shared.ground, &tx, &pending.taken().appends).await
        };
        let done = self.store.transact_with((self.clone(), pending.clone()), run).await;
        // The callers get an answer also when the transaction was refused before its turn.
        let taken = pending.taken();
        self.figures.batch_size.record(taken.appends.len() as u64);
        let answers = self.settle(&taken.appends, done.map_err(Error::from)).await;
        taken.reply(answers);
    }

    /// Runs transactions until no append waits.
    async fn run_one_by_one(self: Arc<Self>, lane: Lane<Self>) {
        loop {
            let taken = Taken::from(take(&lane));
            if taken.appends.is_empty() {
                return;
            }
            let done = self.transact(taken.appends.clone()).await;
            let answers = self.settle(&taken.appends, done).await;
            taken.reply(answers);
            // A caller that got its answer often appends again at once, and joins the next transaction.
            tokio::task::yield_now().await;
        }
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
        self.figures.batch_size.record(appends.len() as u64);
        let ground = self.ground.clone();
        let run = async |tx, (ground, appends): (Arc<Ground>, Vec<Arc<Prepared>>)| {
            commit(&ground, &tx, &appends).await
        };
        Ok(self.store.transact_with((ground, appends), run).await?)
    }
}

/// The appends of a transaction that may run again. They are taken once, when it gets the writer.
struct Pending {
    lane: Mutex<Option<Lane<Shared>>>,
    taken: OnceLock<Taken>,
}

impl Pending {
    fn taken(&self) -> &Taken {
        self.taken.get_or_init(|| {
            let lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner).take();
            // The next run starts when the lane is dropped.
            lane.map(|lane| take(&lane)).unwrap_or_default().into()
        })
    }
}

/// Takes appends for a transaction.
fn take(lane: &Lane<Shared>) -> Vec<Waiting<Request, Result<Appended>>> {
    let (mut events, mut bytes) = (0, 0);
    lane.take(MAX_APPENDS, |request| {
        let is_first = events == 0;
        events += request.prepared.events.len();
        bytes += request.prepared.bytes;
        let is_full = events > MAX_EVENTS || bytes > MAX_BYTES;
        if is_full && !is_first { Admit::Stop } else { Admit::Take }
    })
}

type Reply = (oneshot::Sender<Result<Appended>>, OwnedSemaphorePermit);

/// Appends that share a transaction, and the callers that wait for them.
struct Taken {
    appends: Vec<Arc<Prepared>>,
    replies: Mutex<Vec<Reply>>,
}

impl From<Vec<Waiting<Request, Result<Appended>>>> for Taken {
    fn from(callers: Vec<Waiting<Request, Result<Appended>>>) -> Self {
        let (appends, replies): (_, Vec<_>) = callers
            .into_iter()
            .map(|Waiting { request, reply }| (request.prepared, (reply, request._room)))
            .unzip();
        Self { appends, replies: Mutex::new(replies) }
    }
}

impl Taken {
    fn reply(&self, answers: Vec<Result<Appended>>) {
        let replies = std::mem::take(&mut *self.replies.lock().unwrap_or_else(PoisonError::into_inner));
        for ((reply, _room), answer) in replies.into_iter().zip(answers) {
            // A caller that has gone away needs no answer.
            let _ = reply.send(answer);
        }
    }
}

/// Counts a caller.
struct Here<'a>(&'a AtomicUsize);

impl<'a> Here<'a> {
    /// Counts one more, and returns the number of the others.
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
