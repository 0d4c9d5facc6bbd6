//! Concurrent appends of one process share transactions.
//!
//! On SQLite the store does that itself: appends are transactions of the one writer, which commits as many as wait. On
//! PostgreSQL it is done here. A lone append runs on its caller's task. While one transaction is under way, others queue, and whoever queues first
//! starts a task that takes all that wait into the next one. So batches form by themselves, exactly as large as the
//! load asks for, and no append waits for a timer.

use super::Appended;
use super::commit::{Ground, commit};
use super::prepare::Prepared;
use crate::error::{Error, Result};
use crate::figures::Figures;
use crate::index::merge_if_due;
use mainstay_store::Store;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Most appends of a transaction: beyond this its cost is spread thin already, and all wait for the last.
const MAX_APPENDS: usize = 256;
/// Most events of a transaction.
const MAX_EVENTS: usize = 1_000;
/// Most bytes of a transaction.
const MAX_BYTES: usize = 4 << 20;
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
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// Whether a task is there to take them.
    is_attended: bool,
}

struct Waiting {
    prepared: Prepared,
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
        }))
    }

    /// Appends, alone or in company.
    pub(crate) async fn append(&self, prepared: Prepared) -> Result<Appended> {
        let began = Instant::now();
        let answer = self.append_somehow(prepared).await;
        self.0.figures.record(&answer, began);
        answer
    }

    async fn append_somehow(&self, prepared: Prepared) -> Result<Appended> {
        if let Some(recent) = &self.0.ground.recent {
            // The one writer makes groups by itself, and without a wait between them.
            let answer = self.run_alone(prepared).await;
            merge_if_due(&self.0.store, recent);
            return answer;
        }
        if let Ok(_turn) = self.0.turn.try_lock()
            && self.queue().waiting.is_empty()
        {
            return self.run_alone(prepared).await;
        }
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
            tokio::spawn(self.clone().attend());
        }
        let abandoned = || mainstay_store::Error::CommitUnknown("the runtime went away".to_owned());
        answer.await.unwrap_or_else(|_| Err(abandoned().into()))
    }

    /// Runs what waits until nothing does.
    async fn attend(self) {
        let mut watch = Watch { shared: &self.0, is_over: false };
        loop {
            let _turn = self.0.turn.lock().await;
            let Some(batch) = self.take() else { break };
            self.run(batch).await;
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
        let (replies, prepared): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|waiting| ((waiting.reply, waiting._room), waiting.prepared)).unzip();
        let prepared = Arc::new(prepared);
        let answers = match self.transact(prepared.clone()).await {
            Ok(answers) => answers,
            Err(error) if prepared.len() == 1 || is_for_all(&error) => {
                prepared.iter().map(|_| Err(error.clone())).collect()
            }
            // One of them may be to blame; alone, only that one fails.
            Err(_) => {
                let Ok(prepared) = Arc::try_unwrap(prepared) else { return };
                self.run_each(prepared).await
            }
        };
        for ((reply, _room), answer) in replies.into_iter().zip(answers) {
            // Who went away meanwhile has no use for it.
            let _ = reply.send(answer);
        }
    }

    /// Runs appends one after another, for as long as there is hope: what keeps all of them waiting, such as a node that
    /// holds the log, would keep each of them waiting in turn, and everyone behind them.
    async fn run_each(&self, appends: Vec<Prepared>) -> Vec<Result<Appended>> {
        let mut answers = Vec::with_capacity(appends.len());
        let (mut timeouts, mut hopeless) = (0, None);
        for append in appends {
            let answer = match &hopeless {
                Some(error) => Err(Error::clone(error)),
                None => self.run_alone(append).await,
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

    async fn run_alone(&self, prepared: Prepared) -> Result<Appended> {
        let mut answers = self.transact(Arc::new(vec![prepared])).await?;
        answers.pop().unwrap_or_else(|| Err(mainstay_store::Error::Closed.into()))
    }

    async fn transact(&self, prepared: Arc<Vec<Prepared>>) -> Result<Vec<Result<Appended>>> {
        self.0.figures.batch_size.record(prepared.len() as u64);
        let ground = self.0.ground.clone();
        let run = async |tx, (ground, prepared): (Arc<Ground>, Arc<Vec<Prepared>>)| {
            commit(&ground, &tx, &prepared).await
        };
        Ok(self.0.store.transact_with((ground, prepared), run).await?)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
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
