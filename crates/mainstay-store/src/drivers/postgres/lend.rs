//! Runs a closure in a transaction that belongs to someone else.
//!
//! A `Tx` is owned and a lent transaction is borrowed, so the two meet through a channel: the author's operations
//! arrive here, where the borrow is, and run one after another.

use super::failure;
use super::transaction::{Done, Handle, Link, Problem, Yield, run_prepared};
use super::{Driver, notifier::Waker};
use crate::epilogue::AfterCommit;
use crate::guarded::guarded;
use crate::sql::Statement;
use crate::tx::Link as TxLink;
use crate::{Error, Result, Topic, Tx, Value};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker as TaskWaker};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::Transaction;

/// What a closure made of a lent transaction. It is real once the lender commits.
#[must_use = "call committed() after the commit, so that wake-ups go out"]
pub struct Lent<T> {
    value: T,
    wakes: BTreeSet<Topic>,
    after_commit: Vec<AfterCommit>,
    waker: Waker,
}

impl<T> Lent<T> {
    /// Sends the wake-ups and gives the value. To be called after the lender has committed.
    pub fn committed(self) -> T {
        self.after_commit.iter().for_each(|hook| hook());
        self.waker.wake(self.wakes);
        self.value
    }

    /// The value, before it is known whether the lender commits.
    pub fn value(&self) -> &T {
        &self.value
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Lent<T> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Lent").field("value", &self.value).finish_non_exhaustive()
    }
}

/// The way to a borrowed transaction.
#[derive(Clone)]
pub(super) struct Borrowed(mpsc::UnboundedSender<Request>);

struct Request {
    statement: Arc<Statement>,
    rows: Vec<Vec<Value>>,
    wanted: Yield,
    reply: oneshot::Sender<std::result::Result<Done, Problem>>,
}

impl Borrowed {
    pub(super) async fn run<P: AsRef<[Value]>>(
        &self,
        statement: Arc<Statement>,
        rows: &[P],
        wanted: Yield,
    ) -> std::result::Result<Done, Problem> {
        let (reply, answer) = oneshot::channel();
        let rows = rows.iter().map(|params| params.as_ref().to_vec()).collect();
        let closed = || Problem::from(Error::TransactionClosed);
        self.0.send(Request { statement, rows, wanted, reply }).map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

impl Driver {
    pub(crate) async fn lend<T, F, Fut>(&self, transaction: &Transaction<'_>, work: F) -> Result<Lent<T>>
    where
        F: FnOnce(Tx) -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        let control =
            async |sql: &str| transaction.batch_execute(sql).await.map_err(|error| failure::of(&error));
        control("SAVEPOINT mainstay_lent").await?;
        let mut undo = UndoOnDrop { transaction, is_over: false };
        // Unbounded in type only: an author has as many operations on their way as they await at once.
        let (sender, mut requests) = mpsc::unbounded_channel();
        let handle = Handle::new(Link::Borrowed(Borrowed(sender)), None, self.statements.clone());
        let tx = Tx::new(TxLink::Postgres(handle.clone()));
        let mut running = pin!(guarded(|| work(tx), || handle.is_busy()));
        let result = loop {
            tokio::select! {
                biased;
                result = &mut running => break result,
                Some(request) = requests.recv() => {
                    let done = serve(transaction, &request).await;
                    // Whoever asked may have gone away; then the transaction has failed already.
                    drop(request.reply.send(done));
                }
            }
        };
        let rest = handle.end().ok_or(Error::TransactionClosed)?;
        let result = match (result, rest.failure) {
            (Ok(_), _) if rest.outstanding > 0 => Err(Error::TransactionEscaped),
            (Ok(_), Some(failed)) => Err(Error::TransactionFailed(failed.reason)),
            (result, _) => result,
        };
        undo.is_over = true;
        match result {
            Ok(value) => {
                control("RELEASE SAVEPOINT mainstay_lent").await?;
                let (wakes, after_commit) = (rest.wakes, rest.after_commit);
                Ok(Lent { value, wakes, after_commit, waker: self.notifier.waker() })
            }
            Err(error) => {
                // The lender's transaction is as it was before, and theirs to go on with.
                control(UNDO).await?;
                Err(error)
            }
        }
    }
}

const UNDO: &str = "ROLLBACK TO SAVEPOINT mainstay_lent; RELEASE SAVEPOINT mainstay_lent";

/// Undoes the loan when its future is dropped half-way: the lender must not commit half of it.
struct UndoOnDrop<'a, 'b> {
    transaction: &'a Transaction<'b>,
    is_over: bool,
}

impl Drop for UndoOnDrop<'_, '_> {
    fn drop(&mut self) {
        if !self.is_over {
            // The first poll sends it, in front of whatever the lender sends next. tokio-postgres ends a transaction
            // that is dropped in the same way.
            let undoing = pin!(self.transaction.batch_execute(UNDO));
            let _ = undoing.poll(&mut Context::from_waker(TaskWaker::noop()));
        }
    }
}

async fn serve(transaction: &Transaction<'_>, request: &Request) -> std::result::Result<Done, Problem> {
    let prepared = transaction.prepare(&request.statement.text).await?;
    run_prepared(transaction.client(), &prepared, &request.statement, &request.rows, request.wanted).await
}
