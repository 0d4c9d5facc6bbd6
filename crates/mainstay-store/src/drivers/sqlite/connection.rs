//! A connection, and what an author's statements may do on it.

use super::claim::Claim;
use super::failure;
use super::job::Mode;
use crate::epilogue::AfterCommit;
use crate::sql::{Cache, Statement};
use crate::{Error, Result, Row, Topic, Value};
use mainstay_core::clock::Clock;
use rusqlite::functions::FunctionFlags;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::types::{ToSqlOutput, ValueRef};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Steps of SQLite's virtual machine between two looks at the clock: a fraction of a millisecond.
const STEPS_BETWEEN_LOOKS: i32 = 20_000;
const STATEMENTS_KEPT_PREPARED: usize = 256;

/// A connection that runs one transaction at a time.
pub(super) struct Connection {
    db: rusqlite::Connection,
    /// The clock behind `mainstay_now()`.
    clock: Arc<dyn Clock>,
    statements: Cache,
    current: Option<Current>,
    tickets: u64,
    /// Which transaction of the connection is open, or was the last.
    serial: u64,
    watch: Arc<Watch>,
    limit: Duration,
}

/// The transaction that is running.
struct Current {
    ticket: u64,
    mode: Mode,
    failure: Option<String>,
    /// Whether it was stopped because its time was up.
    is_late: bool,
    /// How many statements that may have changed something were begun.
    writes: u64,
    wakes: Vec<Topic>,
    after_commit: Vec<AfterCommit>,
}

/// How a transaction ended.
#[derive(Default)]
pub(super) struct End {
    /// The first statement that failed.
    pub(super) failure: Option<String>,
    /// Whether it was stopped because its time was up.
    pub(super) is_late: bool,
    /// Whether there may be something to take back.
    pub(super) has_written: bool,
    pub(super) wakes: Vec<Topic>,
    pub(super) after_commit: Vec<AfterCommit>,
}

/// What SQLite's callbacks look at while an author's statement runs.
pub(super) struct Watch {
    origin: Instant,
    /// Microseconds after `origin` at which the running transaction began; 0 when none runs.
    began_us: AtomicU64,
    deadline_us: AtomicU64,
    is_authors: AtomicBool,
    /// The size of the write-ahead log for which the running read must end; 0 while it may go on.
    evicted_at_bytes: AtomicU64,
    /// Who waits for the running read; when they have gone, it stops.
    caller: Mutex<Option<Claim>>,
}

impl Watch {
    fn now_us(&self) -> u64 {
        // Never 0, which means "none".
        self.origin.elapsed().as_micros() as u64 + 1
    }

    fn is_due(&self) -> bool {
        self.evicted_at_bytes.load(Ordering::Relaxed) > 0 || self.is_late() || self.is_deserted()
    }

    fn is_deserted(&self) -> bool {
        self.caller().as_ref().is_some_and(Claim::is_deserted)
    }

    fn caller(&self) -> MutexGuard<'_, Option<Claim>> {
        self.caller.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_late(&self) -> bool {
        self.now_us() > self.deadline_us.load(Ordering::Relaxed)
    }

    /// How long the running transaction has been open.
    pub(super) fn open_for(&self) -> Option<Duration> {
        match self.began_us.load(Ordering::Relaxed) {
            0 => None,
            began => Some(Duration::from_micros(self.now_us().saturating_sub(began))),
        }
    }

    /// Ends the running transaction at its next step.
    pub(super) fn evict(&self, wal_bytes: u64) {
        self.evicted_at_bytes.store(wal_bytes.max(1), Ordering::Relaxed);
    }
}

/// A connection that is shared with the `Tx` of whatever runs on it.
#[derive(Clone)]
pub(super) struct Session(Arc<Mutex<Connection>>);

impl Session {
    pub(super) fn new(
        mut db: rusqlite::Connection,
        clock: Arc<dyn Clock>,
        limit: Duration,
    ) -> rusqlite::Result<Self> {
        let watch = Arc::new(Watch {
            origin: Instant::now(),
            began_us: AtomicU64::new(0),
            deadline_us: AtomicU64::new(u64::MAX),
            is_authors: AtomicBool::new(false),
            evicted_at_bytes: AtomicU64::new(0),
            caller: Mutex::default(),
        });
        let now = clock.clone();
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_INNOCUOUS;
        db.create_scalar_function("mainstay_now", 0, flags, move |_| Ok(now.now_ms()))?;
        let authorizing = watch.clone();
        db.authorizer(Some(move |context: AuthContext<'_>| authorize(&authorizing, &context)))?;
        let timing = watch.clone();
        db.progress_handler(STEPS_BETWEEN_LOOKS, Some(move || timing.is_due()))?;
        db.set_prepared_statement_cache_capacity(STATEMENTS_KEPT_PREPARED);
        let connection = Connection {
            db,
            clock,
            statements: Cache::default(),
            current: None,
            tickets: 0,
            serial: 0,
            watch,
            limit,
        };
        Ok(Self(Arc::new(Mutex::new(connection))))
    }

    /// Stops what runs next when `caller` goes away. For reads only: a write stopped half-way costs its neighbours.
    pub(super) fn attend(&self, caller: Claim) {
        *self.lock().watch.caller() = Some(caller);
    }

    /// Hands the open transaction to an author, for at most `limit` or the usual time.
    pub(super) fn open(&self, mode: Mode, limit: Option<Duration>) -> Handle {
        let mut connection = self.lock();
        let limit = limit.unwrap_or(connection.limit);
        connection.tickets += 1;
        let ticket = connection.tickets;
        connection.current = Some(Current {
            ticket,
            mode,
            failure: None,
            is_late: false,
            writes: 0,
            wakes: Vec::new(),
            after_commit: Vec::new(),
        });
        let watch = &connection.watch;
        let now = watch.now_us();
        watch.began_us.store(now, Ordering::Relaxed);
        watch.deadline_us.store(now.saturating_add(limit.as_micros() as u64), Ordering::Relaxed);
        watch.is_authors.store(true, Ordering::Relaxed);
        drop(connection);
        Handle { session: self.clone(), ticket }
    }

    /// Takes it back: from here on the author's `Tx` is refused.
    pub(super) fn end(&self) -> End {
        let mut connection = self.lock();
        connection.watch.is_authors.store(false, Ordering::Relaxed);
        connection.watch.deadline_us.store(u64::MAX, Ordering::Relaxed);
        connection.watch.evicted_at_bytes.store(0, Ordering::Relaxed);
        connection.watch.began_us.store(0, Ordering::Relaxed);
        connection.watch.caller().take();
        let current = connection.current.take();
        current.map_or_else(End::default, |current| End {
            failure: current.failure,
            is_late: current.is_late,
            has_written: current.writes > 0,
            wakes: current.wakes,
            after_commit: current.after_commit,
        })
    }

    /// Opens a transaction that may write.
    pub(super) fn begin(&self) -> rusqlite::Result<()> {
        self.lock().serial += 1;
        self.control("BEGIN IMMEDIATE")
    }

    /// Runs a statement of the store's own.
    pub(super) fn control(&self, sql: &str) -> rusqlite::Result<()> {
        self.lock().db.prepare_cached(sql)?.execute([]).map(drop)
    }

    /// Whether a transaction is open.
    pub(super) fn is_in_transaction(&self) -> bool {
        !self.lock().db.is_autocommit()
    }

    /// Works on the bare connection.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut rusqlite::Connection) -> T) -> T {
        work(&mut self.lock().db)
    }

    /// Closes the database; whoever still holds the session finds an empty one in memory.
    pub(super) fn close(&self) {
        if let Ok(empty) = rusqlite::Connection::open_in_memory() {
            self.with(|db| *db = empty);
        }
    }

    pub(super) fn watch(&self) -> Arc<Watch> {
        self.lock().watch.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // A panic inside leaves SQLite's own state whole: it is C, and does not unwind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Savepoints do not protect a group from statements that end the whole transaction, so an author has none of them.
fn authorize(watch: &Watch, context: &AuthContext<'_>) -> Authorization {
    let is_control = matches!(
        context.action,
        AuthAction::Transaction { .. }
            | AuthAction::Savepoint { .. }
            | AuthAction::Attach { .. }
            | AuthAction::Detach { .. }
            | AuthAction::Pragma { .. }
    );
    if is_control && watch.is_authors.load(Ordering::Relaxed) {
        Authorization::Deny
    } else {
        Authorization::Allow
    }
}

/// An author's hold on the transaction that runs on a connection.
#[derive(Clone)]
pub(crate) struct Handle {
    session: Session,
    ticket: u64,
}

impl Handle {
    pub(crate) fn execute(&self, sql: &str, params: &[Value]) -> Result<u64> {
        self.operate(|connection, mode| connection.execute(sql, &[params], mode))
    }

    pub(crate) fn execute_many(&self, sql: &str, rows: &[Vec<Value>]) -> Result<u64> {
        self.operate(|connection, mode| connection.execute(sql, rows, mode))
    }

    pub(crate) fn query(&self, sql: &str, params: &[Value]) -> Result<Vec<Row>> {
        self.operate(|connection, mode| connection.query(sql, params, mode))
    }

    /// The time of `mainstay_now()`, without a statement.
    pub(crate) fn now_ms(&self) -> Result<i64> {
        let connection = self.session.lock();
        connection.mode_of(self.ticket)?;
        Ok(connection.clock.now_ms())
    }

    pub(crate) fn wake(&self, topic: &Topic) -> Result<()> {
        let mut connection = self.session.lock();
        let current = connection.current.as_mut().filter(|current| current.ticket == self.ticket);
        current.ok_or(Error::TransactionClosed)?.wakes.push(topic.clone());
        Ok(())
    }

    pub(crate) fn after_commit(&self, hook: AfterCommit) -> Result<()> {
        let mut connection = self.session.lock();
        let current = connection.current.as_mut().filter(|current| current.ticket == self.ticket);
        current.ok_or(Error::TransactionClosed)?.after_commit.push(hook);
        Ok(())
    }

    pub(crate) fn intact(&self) -> Result<()> {
        self.session.lock().mode_of(self.ticket).map(drop)
    }

    pub(crate) fn writes(&self) -> u64 {
        let connection = self.session.lock();
        let current = connection.current.as_ref().filter(|current| current.ticket == self.ticket);
        current.map_or(0, |current| current.writes)
    }

    /// Nothing for a read: readers count by themselves, and what one is part of says nothing about the writer.
    pub(crate) fn serial(&self) -> Option<u64> {
        let connection = self.session.lock();
        let current = connection.current.as_ref().filter(|current| current.ticket == self.ticket);
        current.filter(|current| current.mode == Mode::Write).map(|_| connection.serial)
    }

    fn operate<T>(&self, run: impl FnOnce(&mut Connection, Mode) -> Result<T>) -> Result<T> {
        let mut connection = self.session.lock();
        let mode = connection.mode_of(self.ticket)?;
        let result = run(&mut connection, mode);
        if let (Err(error), Some(current)) = (&result, &mut connection.current) {
            current.failure = Some(error.to_string());
            current.is_late = matches!(error, Error::Timeout { .. });
        }
        result
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Sqlite").field("ticket", &self.ticket).finish()
    }
}

impl Connection {
    /// How the transaction of a ticket runs, if it runs still and nothing in it has failed.
    fn mode_of(&self, ticket: u64) -> Result<Mode> {
        match &self.current {
            Some(current) if current.ticket == ticket => match &current.failure {
                Some(failure) => Err(Error::TransactionFailed(failure.clone())),
                None => Ok(current.mode),
            },
            _ => Err(Error::TransactionClosed),
        }
    }

    fn execute<P: AsRef<[Value]>>(&mut self, sql: &str, rows: &[P], mode: Mode) -> Result<u64> {
        let statement = self.statements.get(sql)?;
        rows.iter().try_for_each(|params| statement.check(params.as_ref()))?;
        let (mut changed, mut has_written) = (0, false);
        let result = self.db.prepare_cached(&statement.sqlite_text).and_then(|mut prepared| {
            for params in rows {
                if mode == Mode::Read && !prepared.readonly() {
                    return Ok(false);
                }
                has_written |= !prepared.readonly();
                bind(&mut prepared, params.as_ref())?;
                let mut results = prepared.raw_query();
                while results.next()?.is_some() {}
                drop(results);
                if statement.changes_rows && !prepared.readonly() {
                    changed += self.db.changes();
                }
            }
            Ok(true)
        });
        self.mark_written(has_written);
        self.finish(result, &statement)?.then_some(changed).ok_or_else(|| read_only(&statement))
    }

    fn query(&mut self, sql: &str, params: &[Value], mode: Mode) -> Result<Vec<Row>> {
        let statement = self.statements.get(sql)?;
        statement.check(params)?;
        let mut has_written = false;
        let result = self.db.prepare_cached(&statement.sqlite_text).and_then(|mut prepared| {
            if mode == Mode::Read && !prepared.readonly() {
                return Ok(None);
            }
            has_written |= !prepared.readonly();
            bind(&mut prepared, params)?;
            let mut results = prepared.raw_query();
            let mut rows = Vec::new();
            // Known only after the first step, which prepares anew when the schema has changed.
            let mut columns: Option<Arc<[String]>> = None;
            while let Some(row) = results.next()? {
                let columns =
                    columns.get_or_insert_with(|| statement.columns(|| row.as_ref().column_names()));
                let values = (0..columns.len()).map(|index| row.get_ref(index).map(own));
                rows.push(Row::new(columns.clone(), values.collect::<rusqlite::Result<_>>()?));
            }
            Ok(Some(rows))
        });
        self.mark_written(has_written);
        self.finish(result, &statement)?.ok_or_else(|| read_only(&statement))
    }

    /// Also when the statement failed: `OR FAIL` keeps what it did before it failed.
    fn mark_written(&mut self, has_written: bool) {
        if let Some(current) = &mut self.current {
            current.writes += u64::from(has_written);
        }
    }

    fn finish<T>(&self, result: rusqlite::Result<T>, statement: &Statement) -> Result<T> {
        result.map_err(|error| {
            let was_interrupted =
                error.sqlite_error_code() == Some(rusqlite::ErrorCode::OperationInterrupted);
            match self.watch.evicted_at_bytes.load(Ordering::Relaxed) {
                0 if was_interrupted => Error::Timeout { limit_ms: self.limit.as_millis() as u64 },
                wal_bytes if was_interrupted => {
                    let held_ms = self.watch.open_for().unwrap_or_default().as_millis() as u64;
                    Error::ReadEvicted { held_ms, wal_bytes }
                }
                _ => failure::of_statement(&error, &statement.text),
            }
        })
    }
}

fn read_only(statement: &Statement) -> Error {
    Error::ReadOnly(statement.text.clone())
}

fn bind(prepared: &mut rusqlite::Statement<'_>, params: &[Value]) -> rusqlite::Result<()> {
    (1..).zip(params).try_for_each(|(index, value)| prepared.raw_bind_parameter(index, value))
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Bool(value) => ValueRef::Integer((*value).into()),
            Self::Int(value) => ValueRef::Integer(*value),
            Self::Real(value) => ValueRef::Real(*value),
            Self::Text(value) => ValueRef::Text(value.as_bytes()),
            Self::Blob(value) => ValueRef::Blob(value),
        }))
    }
}

fn own(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => Value::Int(value),
        ValueRef::Real(value) => Value::Real(value),
        // Text that is not UTF-8 can only have been written past this program; showing it beats losing the row.
        ValueRef::Text(value) => Value::Text(String::from_utf8_lossy(value).into_owned()),
        ValueRef::Blob(value) => Value::Blob(value.to_owned()),
    }
}
