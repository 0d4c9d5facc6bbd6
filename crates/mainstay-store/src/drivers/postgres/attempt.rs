//! Runs a closure in a transaction of the pool, and ends it one way or the other.

use super::failure::Cause;
use super::pooled::Pooled;
use super::transaction::{Begin, Failed, Handle, Link, Rest};
use super::{Driver, failure};
use crate::body::Body;
use crate::guarded::guarded;
use crate::tx::Link as TxLink;
use crate::{Error, Isolation, Tx};
use deadpool_postgres::Object;
use mainstay_core::failpoints::Point;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a connection may take to answer a ROLLBACK before it is thrown away.
const ROLLBACK_PATIENCE: Duration = Duration::from_secs(5);
/// How long a statement may take to stop before it is asked again: a request that comes before the statement has
/// begun is not heard.
const STOP_PATIENCE: Duration = Duration::from_millis(500);

/// What a transaction may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write(Isolation),
}

impl Kind {
    fn begin(self, is_long: bool) -> &'static str {
        // The server's own limits are a little longer than the usual ones; beyond those, only ours counts.
        macro_rules! begin {
            ($how:literal) => {
                if is_long {
                    concat!(
                        "BEGIN ISOLATION LEVEL ",
                        $how,
                        "; SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0"
                    )
                } else {
                    concat!("BEGIN ISOLATION LEVEL ", $how)
                }
            };
        }
        match self {
            Self::Read => begin!("REPEATABLE READ READ ONLY"),
            Self::Write(Isolation::ReadCommitted) => begin!("READ COMMITTED"),
            Self::Write(Isolation::Serializable) => begin!("SERIALIZABLE"),
        }
    }
}

/// How an attempt ended.
pub(super) enum Ended {
    /// It committed.
    Done,
    /// It did not, because of other transactions.
    Conflict(String),
    /// It did not, or nobody knows.
    Failed(Error),
}

impl Driver {
    pub(super) async fn attempt(
        &self,
        connection: Object,
        body: &mut Body,
        kind: Kind,
        limit: Option<Duration>,
        usual: Duration,
    ) -> Ended {
        let link = Link::Pooled(Arc::new(Pooled::new(connection, self.server.clone())));
        let begin = Begin { sql: kind.begin(limit.is_some()), is_sent_along: kind == Kind::Read };
        let handle = Handle::new(link, Some(begin), self.statements.clone());
        let limit = limit.unwrap_or(usual);
        let cleanup = Cleanup(handle.clone());
        let tx = Tx::new(TxLink::Postgres(handle.clone()));
        let running = guarded(|| body.run(tx), || handle.is_busy());
        let Ok(result) = tokio::time::timeout(limit, running).await else {
            return Ended::Failed(Error::Timeout { limit_ms: limit.as_millis() as u64 });
        };
        if let Err(error) = result {
            return self.abandon(&handle, error).await;
        }
        let Some(rest) = handle.end() else { return Ended::Failed(Error::TransactionClosed) };
        // Asked only now, when nothing new can begin: an operation that another task began a moment ago must not find
        // itself behind the COMMIT.
        if rest.outstanding > 0 {
            roll_back_later(rest);
            return Ended::Failed(Error::TransactionEscaped);
        }
        // From here on a dropped future leaves the COMMIT to the server: it happens or it does not.
        let ended = match &rest.failure {
            Some(failed) => {
                let error = Error::TransactionFailed(failed.reason.clone());
                roll_back_later(rest);
                return Ended::Failed(error);
            }
            // Nothing was written, but there may be someone to wake all the same.
            None if kind == Kind::Read || !rest.has_begun => {
                rest.after_commit.iter().for_each(|hook| hook());
                self.notifier.wake(rest.wakes.clone());
                roll_back_now(rest).await;
                return Ended::Done;
            }
            None => self.commit(&rest.link, limit).await,
        };
        drop(cleanup);
        match ended {
            Ended::Done => {
                rest.after_commit.iter().for_each(|hook| hook());
                self.notifier.wake(rest.wakes);
                Ended::Done
            }
            Ended::Conflict(reason) => Ended::Conflict(reason),
            Ended::Failed(error) => {
                spoil(&rest.link);
                Ended::Failed(error)
            }
        }
    }

    /// Rolls back after the closure failed. What it met may have been told as any error.
    async fn abandon(&self, handle: &Handle, error: Error) -> Ended {
        let Some(rest) = handle.end() else { return Ended::Failed(error) };
        let failure = rest.failure.clone();
        roll_back_now(rest).await;
        match failure {
            Some(Failed { reason, cause: Cause::Conflict }) => Ended::Conflict(reason),
            Some(Failed { reason, cause: Cause::StalePlan }) => {
                // Every connection has prepared it; otherwise the next run would meet the same on another.
                self.pool.manager().statement_caches.clear();
                Ended::Conflict(reason)
            }
            Some(Failed { reason, cause: Cause::Outage }) => Ended::Failed(Error::Unavailable(reason)),
            Some(Failed { cause: Cause::Other, .. }) | None => Ended::Failed(error),
        }
    }

    async fn commit(&self, link: &Link, limit: Duration) -> Ended {
        let Link::Pooled(connection) = link else { return Ended::Failed(Error::TransactionClosed) };
        if let Err(hit) = self.failpoints.hit(Point::StoreCommit) {
            return Ended::Failed(hit.into());
        }
        let began = Instant::now();
        let unknown = |reason: String| Ended::Failed(Error::CommitUnknown(reason));
        match tokio::time::timeout(limit, connection.batch_execute("COMMIT")).await {
            Ok(Ok(())) => {
                self.figures.commit_time.record_duration(began.elapsed());
                self.figures.group_size.record(1);
                drop(self.failpoints.hit(Point::StoreCommitted));
                Ended::Done
            }
            Ok(Err(error)) if failure::is_conflict(&error) => Ended::Conflict(error.to_string()),
            Ok(Err(error)) => match failure::of(&error) {
                // The server went away with our COMMIT in its hands.
                Error::Unavailable(reason) => unknown(reason),
                other => Ended::Failed(other),
            },
            Err(_elapsed) => unknown("the server did not answer the COMMIT".to_owned()),
        }
    }
}

/// Ends the transaction when the caller's future is dropped, or the closure ran out of time.
struct Cleanup(Handle);

impl Drop for Cleanup {
    fn drop(&mut self) {
        if let Some(rest) = self.0.end() {
            roll_back_later(rest);
        }
    }
}

async fn roll_back_now(rest: Rest) {
    if !rest.has_begun {
        return;
    }
    if rest.outstanding > 0 || rest.is_left_running {
        return roll_back_later(rest);
    }
    let Link::Pooled(connection) = &rest.link else { return };
    match tokio::time::timeout(ROLLBACK_PATIENCE, connection.batch_execute("ROLLBACK")).await {
        Ok(Ok(())) => {}
        _ => connection.spoil(),
    }
}

/// Rolls back without anybody waiting for it.
fn roll_back_later(rest: Rest) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return spoil(&rest.link) };
    runtime.spawn(async move {
        if rest.outstanding > 0 || rest.is_left_running {
            stop(&rest.link).await;
        } else {
            roll_back_now(rest).await;
        }
    });
}

/// Rolls back while a statement still runs, which is asked to stop.
async fn stop(link: &Link) {
    // The request has a connection of its own and may come late: it must not meet the statement of another.
    spoil(link);
    let Link::Pooled(connection) = link else { return };
    let stopping = async {
        loop {
            connection.cancel().await;
            let rolled_back = tokio::time::timeout(STOP_PATIENCE, connection.batch_execute("ROLLBACK"));
            // An answer of whatever kind means that the statement has ended.
            if rolled_back.await.is_ok() {
                return;
            }
        }
    };
    // The server rolls back too when it finds the connection closed, but not before the statement has ended.
    drop(tokio::time::timeout(ROLLBACK_PATIENCE, stopping).await);
}

fn spoil(link: &Link) {
    if let Link::Pooled(connection) = link {
        connection.spoil();
    }
}
