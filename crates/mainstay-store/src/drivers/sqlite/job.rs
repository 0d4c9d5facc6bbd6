//! A transaction on its way through a queue.

use super::claim::Claim;
use super::connection::Session;
use crate::body::Body;
use crate::epilogue::AfterCommit;
use crate::figures::Figures;
use crate::guarded::guarded;
use crate::tx::Link;
use crate::{Error, Result, Topic, Tx};
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

/// A closure that runs in a transaction, perhaps more than once, and the outcome of its last run.
pub(super) struct Attempt {
    body: Body,
    outcome: Option<Result<()>>,
    wakes: Vec<Topic>,
    after_commit: Vec<AfterCommit>,
}

impl Attempt {
    pub(super) fn new(body: Body) -> Self {
        Self { body, outcome: None, wakes: Vec::new(), after_commit: Vec::new() }
    }

    /// Runs it on a connection with an open transaction, for at most `limit` or the usual time.
    pub(super) fn run(&mut self, session: &Session, mode: Mode, limit: Option<Duration>) -> Ran {
        let tx = Tx::new(Link::Sqlite(session.open(mode, limit)));
        let run = pin!(guarded(|| self.body.run(tx), || false));
        // Every operation of a SQLite Tx is ready when polled, and everything else is refused: one poll ends it.
        let result = match run.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(Error::ForeignAwait),
        };
        let end = session.end();
        (self.wakes, self.after_commit) = (end.wakes, end.after_commit);
        self.outcome = Some(match (result, end.failure) {
            (Ok(()), Some(failure)) => Err(Error::TransactionFailed(failure)),
            (result, _) => result,
        });
        Ran { is_in_time: !end.is_late, has_written: end.has_written }
    }

    /// Whether the last run ended well.
    pub(super) fn is_ok(&self) -> bool {
        matches!(self.outcome, Some(Ok(())))
    }

    /// Replaces the outcome of the last run.
    pub(super) fn fail(&mut self, error: Error) {
        self.outcome = Some(Err(error));
    }

    /// Topics to wake if the last run is committed.
    pub(super) fn wakes(&mut self) -> Vec<Topic> {
        std::mem::take(&mut self.wakes)
    }

    /// Hooks to call, before the caller is answered, if the last run is committed.
    pub(super) fn after_commit(&mut self) -> Vec<AfterCommit> {
        std::mem::take(&mut self.after_commit)
    }

    pub(super) fn into_outcome(self) -> Result<()> {
        self.outcome.unwrap_or(Err(Error::Closed))
    }
}

/// An attempt in a queue, whose caller waits for the reply.
pub(super) struct Job {
    pub(super) attempt: Attempt,
    pub(super) mode: Mode,
    /// Longest run, when that is not the usual time.
    pub(super) limit: Option<Duration>,
    pub(super) reply: oneshot::Sender<Result<()>>,
    pub(super) claim: Claim,
    pub(super) called: Instant,
    /// Given back when the job is done, which is what bounds the queue.
    pub(super) _place: OwnedSemaphorePermit,
}

impl Job {
    /// Takes it for running, unless its caller is gone.
    pub(super) fn claim(&self, figures: &Figures) -> bool {
        let is_ours = self.claim.claim();
        if is_ours {
            figures.wait_time.record_duration(self.called.elapsed());
        }
        is_ours
    }

    /// Runs it in its own mode and time.
    pub(super) fn run(&mut self, session: &Session) -> Ran {
        self.attempt.run(session, self.mode, self.limit)
    }

    /// Tells the caller the outcome.
    pub(super) fn reply(self) {
        // A caller that has gone away has no use for the answer.
        let _ = self.reply.send(self.attempt.into_outcome());
    }
}
