//! SQLite, embedded: one writer, many readers, commits shared by whoever waits.
//!
//! - `connection`: a database connection and what an author's statements may do on it
//! - `job`: a transaction on its way through a queue
//! - `claim`: who decides the fate of a job that waits
//! - `queue`: where jobs wait
//! - `writer`: runs jobs in groups, one commit for all of them
//! - `readers`: runs reads beside the writer
//! - `checkpointer`: keeps the write-ahead log short without making the writer wait
//! - `keep`: a copy of the database, SQLite's own check, an empty log
//! - `owner`: the lock that gives a file one owning process
//! - `failure`: what SQLite's error codes mean

mod checkpointer;
mod claim;
mod connection;
mod failure;
mod job;
mod keep;
mod open;
mod owner;
mod queue;
mod readers;
mod writer;

pub(crate) use connection::Handle;
pub(crate) use keep::{copy_into, run};

use crate::body::Body;
use crate::figures::Figures;
use crate::gate::Gate;
use crate::wakeups::Hub;
use crate::{Error, Options, Result};
use claim::{AbandonOnDrop, Claim};
use job::{Attempt, Job, Mode};
use queue::Queue;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use writer::Writer;

/// An inline transaction blocks a thread of the runtime for its commit, so it is done only where commits are this
/// fast; on a slower disk the hop to the writer's thread is a small part of the whole anyway.
const INLINE_BELOW: Duration = Duration::from_micros(700);

const INLINE_RUNS_PER_YIELD: u64 = 8;

/// A SQLite database, opened.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    inline_runs: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
    files: open::Files,
    durability: String,
}

/// What the driver and its threads have in common.
struct Shared {
    writer: Mutex<Writer>,
    writes: Queue,
    reads: Queue,
    write_gate: Gate,
    read_gate: Gate,
    figures: Arc<Figures>,
}

/// Closes the queues when a thread of the driver ends, however it ends, and stops the checkpointer with the writer.
struct StopOnExit<'a> {
    shared: &'a Shared,
    wal: Option<&'a checkpointer::WalWatch>,
}

impl Drop for StopOnExit<'_> {
    fn drop(&mut self) {
        self.shared.shut();
        if let Some(wal) = self.wal {
            wal.close();
        }
    }
}

impl Driver {
    pub(crate) async fn open(
        path: Option<&Path>,
        options: &Options,
        figures: &Arc<Figures>,
        hub: &Arc<Hub>,
    ) -> Result<Self> {
        let (path, options) = (path.map(Path::to_owned), options.clone());
        let (figures, hub) = (figures.clone(), hub.clone());
        let opening = move || open::open(path.as_deref(), &options, &figures, hub);
        tokio::task::spawn_blocking(opening).await.map_err(|lost| Error::Panicked(lost.to_string()))?
    }

    /// Runs `body` in a transaction. A lone caller runs it on the spot; others share the writer's next commit.
    pub(crate) async fn transact(&self, body: Body, limit: Option<Duration>, under_way: i64) -> Result<()> {
        let mut attempt = Attempt::new(body);
        if under_way == 1 && limit.is_none() && self.run_inline(&mut attempt) {
            // A caller in a loop must not keep the runtime's other tasks from running, but yielding every time would
            // cost a wake-up of another thread each.
            if self.inline_runs.fetch_add(1, Ordering::Relaxed).is_multiple_of(INLINE_RUNS_PER_YIELD) {
                tokio::task::yield_now().await;
            }
            return attempt.into_outcome();
        }
        self.enqueue(&self.shared.writes, &self.shared.write_gate, attempt, Mode::Write, limit).await
    }

    /// Runs `body` on a snapshot.
    pub(crate) async fn read(&self, body: Body, limit: Option<Duration>) -> Result<()> {
        // A database in memory has one connection; its reads take turns with the writes.
        let queue = if self.files.in_memory() { &self.shared.writes } else { &self.shared.reads };
        self.enqueue(queue, &self.shared.read_gate, Attempt::new(body), Mode::Read, limit).await
    }

    fn run_inline(&self, attempt: &mut Attempt) -> bool {
        use tokio::runtime::{Handle, RuntimeFlavor};
        // A runtime with one thread would stand still during the commit, and could never form a group.
        let has_other_threads = Handle::try_current()
            .is_ok_and(|runtime| runtime.runtime_flavor() != RuntimeFlavor::CurrentThread);
        if !has_other_threads || !self.shared.writes.is_empty() {
            return false;
        }
        let Ok(mut writer) = self.shared.writer.try_lock() else { return false };
        if writer.usual_time() > INLINE_BELOW || self.shared.writes.is_closed() {
            return false;
        }
        writer.run_inline(attempt)
    }

    async fn enqueue(
        &self,
        queue: &Queue,
        gate: &Gate,
        attempt: Attempt,
        mode: Mode,
        limit: Option<Duration>,
    ) -> Result<()> {
        let called = Instant::now();
        let (place, deadline) = gate.enter().await?;
        let (reply, mut answer) = oneshot::channel();
        let claim = Claim::default();
        let _abandon = AbandonOnDrop(claim.clone());
        queue.push(Job { attempt, mode, limit, reply, claim: claim.clone(), called, _place: place })?;
        match tokio::time::timeout_at(deadline, &mut answer).await {
            Ok(answered) => answered.unwrap_or(Err(Error::Closed)),
            Err(_elapsed) if claim.abandon() => Err(gate.busy("others were in front")),
            // It is running: whatever comes of it, the caller must know.
            Err(_elapsed) => answer.await.unwrap_or(Err(Error::Closed)),
        }
    }

    /// The store opened well; the files it made stay.
    pub(crate) fn opened(&self) {
        self.files.keep();
    }

    pub(crate) fn durability(&self) -> String {
        self.durability.clone()
    }

    /// Finishes what was accepted and lets the file go.
    pub(crate) async fn close(&self) {
        self.shared.shut();
        let threads: Vec<_> = self.lock_threads().drain(..).collect();
        let shared = self.shared.clone();
        // The threads end by themselves; waiting for them must not block the runtime.
        let ending = move || {
            threads.into_iter().for_each(|thread| drop(thread.join()));
            shared.lock_writer().close();
        };
        if tokio::task::spawn_blocking(ending).await.is_ok() {
            self.files.release();
        }
    }

    fn lock_threads(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Shared {
    fn shut(&self) {
        self.write_gate.close();
        self.read_gate.close();
        self.writes.close();
        self.reads.close();
    }

    fn lock_writer(&self) -> std::sync::MutexGuard<'_, Writer> {
        // A panic while the writer was held has been rolled back by `recover`, or poisoned nothing it relies on.
        self.writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.shut();
        let me = std::thread::current().id();
        for thread in self.lock_threads().drain(..) {
            // The last handle may be dropped by an author's closure on one of our own threads.
            if thread.thread().id() != me {
                let _ = thread.join();
            }
        }
    }
}
