//! A transaction as the author's `Tx` sees it.

use super::failure::{self, Cause};
use super::lend::Borrowed;
use super::pooled::Pooled;
use super::value::{self, Parameter};
use crate::epilogue::AfterCommit;
use crate::sql::{Cache, Statement};
use crate::{Error, Result, Row, Topic, Value};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OnceCell;
use tokio_postgres::types::ToSql;

/// The statements that this store has read so far.
#[derive(Default)]
pub(super) struct Statements(Mutex<Cache>);

impl Statements {
    fn get(&self, sql: &str) -> Result<Arc<Statement>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(sql)
    }
}

/// An author's hold on a transaction.
#[derive(Clone)]
pub(crate) struct Handle(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    statements: Arc<Statements>,
    begin: Option<Begin>,
    is_begun: OnceCell<()>,
    /// Held while a statement is prepared, which takes a round trip the first time: whoever began later waits, so that
    /// operations are sent in the order they were begun.
    turn: tokio::sync::Mutex<()>,
}

/// How a transaction is opened, when its first operation asks for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begin {
    pub(super) sql: &'static str,
    /// Whether statements may be sent before the server has answered: one round trip less. Should BEGIN fail all the
    /// same (somebody cancels it, the server was paused beyond its own limits), they run outside of a transaction,
    /// which is harmless for those that only read and for no others.
    pub(super) is_sent_along: bool,
}

struct State {
    /// Where statements go; nothing once the transaction is over.
    link: Option<Link>,
    /// Whether BEGIN was sent, or there is none to send.
    has_begun: bool,
    outstanding: usize,
    /// How many statements that may have changed something were begun.
    writes: u64,
    is_left_running: bool,
    failure: Option<Failed>,
    wakes: BTreeSet<Topic>,
    after_commit: Vec<AfterCommit>,
}

impl State {
    fn intact(&self) -> Result<()> {
        match &self.failure {
            Some(failure) => Err(Error::TransactionFailed(failure.reason.clone())),
            None => Ok(()),
        }
    }
}

/// The connection a transaction runs on.
#[derive(Clone)]
pub(super) enum Link {
    Pooled(Arc<Pooled>),
    Borrowed(Borrowed),
}

/// Why a transaction can no longer commit.
#[derive(Debug, Clone)]
pub(super) struct Failed {
    pub(super) reason: String,
    pub(super) cause: Cause,
}

/// What is left when a transaction ends.
pub(super) struct Rest {
    pub(super) link: Link,
    /// Whether the transaction was opened on the server at all.
    pub(super) has_begun: bool,
    pub(super) failure: Option<Failed>,
    pub(super) wakes: BTreeSet<Topic>,
    pub(super) after_commit: Vec<AfterCommit>,
    /// Operations that others still wait for.
    pub(super) outstanding: usize,
    /// The server may be at work on a statement that nobody waits for any more.
    pub(super) is_left_running: bool,
}

impl Handle {
    pub(super) fn new(link: Link, begin: Option<Begin>, statements: Arc<Statements>) -> Self {
        let state = State {
            link: Some(link),
            has_begun: begin.is_none(),
            outstanding: 0,
            writes: 0,
            is_left_running: false,
            failure: None,
            wakes: BTreeSet::new(),
            after_commit: Vec::new(),
        };
        let state = Mutex::new(state);
        let (is_begun, turn) = (OnceCell::new(), tokio::sync::Mutex::default());
        Self(Arc::new(Shared { state, statements, begin, is_begun, turn }))
    }

    /// Whether an operation is on its way.
    pub(super) fn is_busy(&self) -> bool {
        self.state().outstanding > 0
    }

    /// Ends the author's hold; nothing when it has ended before.
    pub(super) fn end(&self) -> Option<Rest> {
        let mut state = self.state();
        Some(Rest {
            link: state.link.take()?,
            has_begun: state.has_begun,
            failure: state.failure.take(),
            wakes: std::mem::take(&mut state.wakes),
            after_commit: std::mem::take(&mut state.after_commit),
            outstanding: state.outstanding,
            is_left_running: state.is_left_running,
        })
    }

    pub(crate) async fn execute(&self, sql: &str, params: &[Value]) -> Result<u64> {
        self.operate(sql, &[params], Yield::Count).await.map(|done| done.changed)
    }

    pub(crate) async fn execute_many(&self, sql: &str, rows: &[Vec<Value>]) -> Result<u64> {
        self.operate(sql, rows, Yield::Count).await.map(|done| done.changed)
    }

    /// Runs a statement once, with rows that stand one behind another as one list for each column.
    pub(crate) async fn execute_by_column(&self, sql: &str, values: &[Value]) -> Result<u64> {
        self.operate(sql, &[values], Yield::CountByColumn).await.map(|done| done.changed)
    }

    /// As [`execute_by_column`](Self::execute_by_column), for a statement that gives rows.
    pub(crate) async fn query_by_column(&self, sql: &str, values: &[Value]) -> Result<Vec<Row>> {
        self.operate(sql, &[values], Yield::RowsByColumn).await.map(|done| done.rows)
    }

    pub(crate) async fn query(&self, sql: &str, params: &[Value]) -> Result<Vec<Row>> {
        self.operate(sql, &[params], Yield::Rows).await.map(|done| done.rows)
    }

    pub(crate) async fn lock(&self, name: &str) -> Result<()> {
        let sql = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";
        self.query(sql, &[Value::from(name)]).await.map(drop)
    }

    pub(crate) fn wake(&self, topic: &Topic) -> Result<()> {
        let mut state = self.state();
        if state.link.is_none() {
            return Err(Error::TransactionClosed);
        }
        state.wakes.insert(topic.clone());
        Ok(())
    }

    pub(crate) fn after_commit(&self, hook: AfterCommit) -> Result<()> {
        let mut state = self.state();
        if state.link.is_none() {
            return Err(Error::TransactionClosed);
        }
        state.after_commit.push(hook);
        Ok(())
    }

    pub(crate) fn intact(&self) -> Result<()> {
        self.state().intact()
    }

    pub(crate) fn writes(&self) -> u64 {
        self.state().writes
    }

    async fn operate<P: AsRef<[Value]>>(&self, sql: &str, rows: &[P], wanted: Yield) -> Result<Done> {
        let mut operation = self.start()?;
        let link = operation.link.clone();
        let result = async {
            let statement = self.0.statements.get(sql)?;
            self.state().writes += u64::from(statement.may_write);
            rows.iter().try_for_each(|params| match wanted {
                Yield::CountByColumn | Yield::RowsByColumn => statement.check_columns(params.as_ref()),
                Yield::Rows | Yield::Count => statement.check(params.as_ref()),
            })?;
            match &link {
                Link::Pooled(connection) => {
                    let opening = self.open(connection);
                    let running = self.run(connection, &statement, rows, wanted);
                    if self.0.begin.is_some_and(|begin| begin.is_sent_along) {
                        // Polled in this order, they are sent in this order.
                        let (opened, done) = tokio::join!(biased; opening, running);
                        opened?;
                        done
                    } else {
                        opening.await?;
                        running.await
                    }
                }
                Link::Borrowed(borrowed) => borrowed.run(statement, rows, wanted).await,
            }
        };
        let result = result.await;
        operation.finish(result.as_ref().err());
        result.map_err(|problem| match problem.error {
            Error::Sql(reason) => Error::Sql(format!("{reason}: {sql}")),
            other => other,
        })
    }

    /// Opens the transaction on the server, once, whoever asks first.
    async fn open(&self, connection: &Pooled) -> std::result::Result<(), Problem> {
        if let Some(begin) = self.0.begin {
            self.0.is_begun.get_or_try_init(|| connection.batch_execute(begin.sql)).await?;
        }
        Ok(())
    }

    /// Runs a statement on a pooled connection, where it stays prepared.
    async fn run<P: AsRef<[Value]>>(
        &self,
        connection: &Pooled,
        statement: &Statement,
        rows: &[P],
        wanted: Yield,
    ) -> std::result::Result<Done, Problem> {
        let turn = self.0.turn.lock().await;
        let prepared = connection.prepare_cached(&statement.text).await?;
        drop(turn);
        // Preparing took a while; in a task that outlived its transaction the statement would commit by itself.
        if self.state().link.is_none() {
            return Err(Error::TransactionClosed.into());
        }
        run_prepared(connection, &prepared, statement, rows, wanted).await
    }

    fn start(&self) -> Result<Operation> {
        let mut state = self.state();
        let link = state.link.clone().ok_or(Error::TransactionClosed)?;
        state.intact()?;
        state.outstanding += 1;
        state.has_begun = true;
        Ok(Operation { link, handle: self.clone(), is_finished: false })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Postgres").finish_non_exhaustive()
    }
}

/// An operation on its way. One that is dropped half-way leaves nobody to read the server's answer: if that was an
/// error, COMMIT would quietly roll back. So the transaction fails then.
struct Operation {
    link: Link,
    handle: Handle,
    is_finished: bool,
}

impl Operation {
    fn finish(&mut self, problem: Option<&Problem>) {
        self.is_finished = true;
        let failed = problem.map(|problem| {
            let reason = match &problem.error {
                Error::Unavailable(reason) => reason.clone(),
                other => other.to_string(),
            };
            Failed { reason, cause: problem.cause }
        });
        self.record(failed);
    }

    fn record(&self, failed: Option<Failed>) {
        let mut state = self.handle.state();
        state.outstanding -= 1;
        if state.failure.is_none() {
            state.failure = failed;
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if !self.is_finished {
            let reason = "an operation was dropped before it ended".to_owned();
            self.record(Some(Failed { reason, cause: Cause::Other }));
            self.handle.state().is_left_running = true;
        }
    }
}

/// What an operation is to yield.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Yield {
    Rows,
    Count,
    /// As `Count`; what is given are rows, one behind another, and every parameter is the list of a column.
    CountByColumn,
    /// As `Rows`, in the same way.
    RowsByColumn,
}

/// What an operation yielded.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) changed: u64,
    pub(super) rows: Vec<Row>,
}

/// Why an operation failed.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) error: Error,
    pub(super) cause: Cause,
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self { error, cause: Cause::Other }
    }
}

impl From<tokio_postgres::Error> for Problem {
    fn from(error: tokio_postgres::Error) -> Self {
        Self { error: failure::of(&error), cause: Cause::of(&error) }
    }
}

/// How many executions of one statement are on the wire at once.
const WINDOW: usize = 256;

/// Runs a prepared statement once for each row of parameters, without waiting for one before sending the next.
pub(super) async fn run_prepared<'a, P: AsRef<[Value]>>(
    client: &tokio_postgres::Client,
    prepared: &tokio_postgres::Statement,
    statement: &Statement,
    rows: &'a [P],
    wanted: Yield,
) -> std::result::Result<Done, Problem> {
    let parameters = |params: &'a P| -> Vec<Parameter<'a>> {
        let values = params.as_ref();
        match wanted {
            Yield::CountByColumn | Yield::RowsByColumn => {
                let width = prepared.params().len();
                (0..width).map(|first| Parameter::Column { values, first, width }).collect()
            }
            Yield::Rows | Yield::Count => values.iter().map(Parameter::One).collect(),
        }
    };
    if let (Yield::Rows | Yield::RowsByColumn, [params]) = (wanted, rows) {
        let parameters = parameters(params);
        let found = client.query(prepared, &by_reference(&parameters)).await?;
        return Ok(Done { changed: 0, rows: value::rows(&found)? });
    }
    let mut changed = 0;
    for window in rows.chunks(WINDOW) {
        let executions = window.iter().map(|params| async move {
            let parameters = parameters(params);
            client.execute(prepared, &by_reference(&parameters)).await
        });
        for count in in_order(executions).await? {
            changed += if statement.changes_rows { count } else { 0 };
        }
    }
    Ok(Done { changed, rows: Vec::new() })
}

fn by_reference<'a>(parameters: &'a [Parameter<'a>]) -> Vec<&'a (dyn ToSql + Sync)> {
    parameters.iter().map(|parameter| parameter as &(dyn ToSql + Sync)).collect()
}

/// Polls all futures, the first ones first, until every one has ended; the first error in order, if any.
async fn in_order<T, E>(
    futures: impl Iterator<Item = impl Future<Output = std::result::Result<T, E>>>,
) -> std::result::Result<Vec<T>, E> {
    use std::task::Poll;
    let mut pending: Vec<_> = futures.map(|future| (Some(Box::pin(future)), None)).collect();
    std::future::poll_fn(|context| {
        let mut is_done = true;
        for (future, output) in &mut pending {
            let Some(running) = future else { continue };
            match running.as_mut().poll(context) {
                Poll::Ready(result) => (*future, *output) = (None, Some(result)),
                Poll::Pending => is_done = false,
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    pending.into_iter().filter_map(|(_, output)| output).collect()
}
