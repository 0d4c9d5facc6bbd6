//! An author's closure on its way through a queue.

use super::claim::Claim;
use super::connection::Session;
use crate::epilogue::AfterCommit;
use crate::figures::Figures;
use crate::guarded::guarded;
use crate::tx::Link;
use crate::{Error, Result, Topic, Tx};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// What a job may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Read,
    Write,
}

/// What a run did, whatever came of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ran {
    /// Its time was enough.
    pub(super) is_in_time: bool,
    /// There may be something to take back.
    pub(super) has_written: bool,
}

/// Something that runs in a transaction, perhaps more than once, and remembers how its last run ended.
pub(super) trait Member: Send {
    /// Runs it on a connection with an open transaction, for at most `limit` or the usual time.
    fn attempt(&mut self, session: &Session, mode: Mode, limit: Option<Duration>) -> Ran;
    /// Whether the last run ended well.
    fn is_ok(&self) -> bool;
    /// Replaces the outcome of the last run.
    fn fail(&mut self, error: Error);
    /// What is to be woken if the last run is committed.
    fn wakes(&mut self) -> Vec<Topic>;
    /// What is to be called, before anybody hears of it, if the last run is committed.
    fn after_commit(&mut self) -> Vec<AfterCommit>;
}

/// A closure and the outcome of its last run.
pub(super) struct Attempt<T, F> {
    work: F,
    outcome: Option<Result<T>>,
    wakes: Vec<Topic>,
    after_commit: Vec<AfterCommit>,
}

impl<T, F> Attempt<T, F> {
    pub(super) fn new(work: F) -> Self {
        Self { work, outcome: None, wakes: Vec::new(), after_commit: Vec::new() }
    }

    pub(super) fn into_outcome(self) -> Result<T> {
        self.outcome.unwrap_or(Err(Error::Closed))
    }
}

impl<T, F, Fut> Member for Attempt<T, F>
where
    T: Send,
    F: Fn(Tx) -> Fut + Send,
    Fut: Future<Output = Result<T>> + Send,
{
    fn attempt(&mut self, session: &Session, mode: Mode, limit: Option<Duration>) -> Ran {
        // The previous run's value belongs to a transaction that never was.
        self.outcome = None;
        let tx = Tx::new(Link::Sqlite(session.open(mode, limit)));
        let run = pin!(guarded(|| (self.work)(tx), || false));
        // Every operation of a SQLite Tx is ready when polled, and everything else is refused: one poll ends it.
        let result = match run.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(Error::ForeignAwait),
        };
        let end = session.end();
        (self.wakes, self.after_commit) = (end.wakes, end.after_commit);
        self.outcome = Some(match (result, end.failure) {
            (Ok(_), Some(failure)) => Err(Error::TransactionFailed(failure)),
            (result, _) => result,
        });
        Ran { is_in_time: !end.is_late, has_written: end.has_written }
    }

    fn is_ok(&self) -> bool {
        matches!(self.outcome, Some(Ok(_)))
    }

    fn fail(&mut self, error: Error) {
        self.outcome = Some(Err(error));
    }

    fn wakes(&mut self) -> Vec<Topic> {
        std::mem::take(&mut self.wakes)
    }

    fn after_commit(&mut self) -> Vec<AfterCommit> {
        std::mem::take(&mut self.after_commit)
    }
}

/// A member that somebody waits for.
pub(super) trait Job: Member {
    /// Takes it for running, unless its caller is gone.
    fn claim(&self, figures: &Figures) -> bool;
    /// What it may do.
    fn mode(&self) -> Mode;
    /// How long it may run, when that is not the usual time.
    fn limit(&self) -> Option<Duration>;
    /// The caller's side of it.
    fn caller(&self) -> Claim;
    /// Tells the caller the outcome.
    fn reply(self: Box<Self>);
}

/// An attempt in a queue.
pub(super) struct Queued<T, F> {
    pub(super) attempt: Attempt<T, F>,
    pub(super) mode: Mode,
    pub(super) limit: Option<Duration>,
    pub(super) reply: oneshot::Sender<Result<T>>,
    pub(super) claim: Claim,
    pub(super) called: Instant,
    /// Given back when the job is done, which is what bounds the queue.
    pub(super) _place: OwnedSemaphorePermit,
}

impl<T, F> Member for Queued<T, F>
where
    T: Send,
    F: Send,
    Attempt<T, F>: Member,
{
    fn attempt(&mut self, session: &Session, mode: Mode, limit: Option<Duration>) -> Ran {
        self.attempt.attempt(session, mode, limit)
    }

    fn is_ok(&self) -> bool {
        self.attempt.is_ok()
    }

    fn fail(&mut self, error: Error) {
        self.attempt.fail(error);
    }

    fn wakes(&mut self) -> Vec<Topic> {
        self.attempt.wakes()
    }

    fn after_commit(&mut self) -> Vec<AfterCommit> {
        self.attempt.after_commit()
    }
}

impl<T, F> Job for Queued<T, F>
where
    T: Send,
    F: Send,
    Attempt<T, F>: Member,
{
    fn claim(&self, figures: &Figures) -> bool {
        let is_ours = self.claim.claim();
        if is_ours {
            figures.wait_time.record_duration(self.called.elapsed());
        }
        is_ours
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn limit(&self) -> Option<Duration> {
        self.limit
    }

    fn caller(&self) -> Claim {
        self.claim.clone()
    }

    fn reply(self: Box<Self>) {
        // A caller that has gone away has no use for the answer.
        let _ = self.reply.send(self.attempt.into_outcome());
    }
}
