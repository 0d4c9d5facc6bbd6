//! A transaction as its author sees it.

use crate::drivers;
use crate::epilogue::Epilogues;
use crate::{Error, Result, Row, Topic, Value};

/// Longest name that [`Tx::lock`] takes.
const MAX_LOCK_BYTES: usize = 512;

/// An open transaction. It lives as long as the closure it was given to; clones are the same transaction.
#[derive(Debug, Clone)]
pub struct Tx {
    pub(crate) link: Link,
    pub(crate) epilogues: Epilogues,
}

/// How rows are held against other transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Nobody else may hold or change them.
    Alone,
    /// Nobody may delete them; what they say, but not their key, may change.
    InPlace,
}

#[cfg(feature = "postgres")]
impl Hold {
    pub(crate) fn clause(self) -> &'static str {
        match self {
            Self::Alone => "FOR UPDATE",
            Self::InPlace => "FOR KEY SHARE",
        }
    }
}

/// The driver behind a [`Tx`].
#[derive(Debug, Clone)]
pub(crate) enum Link {
    #[cfg(feature = "sqlite")]
    Sqlite(drivers::sqlite::Handle),
    #[cfg(feature = "postgres")]
    Postgres(drivers::postgres::Handle),
}

impl Tx {
    pub(crate) fn new(link: Link) -> Self {
        Self { link, epilogues: Epilogues::default() }
    }

    /// Runs a statement and returns how many rows it changed.
    pub async fn execute(&self, sql: &str, params: &[Value]) -> Result<u64> {
        match &self.link {
            #[cfg(feature = "sqlite")]
            Link::Sqlite(handle) => handle.execute(sql, params),
            #[cfg(feature = "postgres")]
            Link::Postgres(handle) => handle.execute(sql, params).await,
        }
    }

    /// Runs a statement once for every row of parameters, in one go, and returns how many rows it changed.
    pub async fn execute_many(&self, sql: &str, rows: &[Vec<Value>]) -> Result<u64> {
        match &self.link {
            #[cfg(feature = "sqlite")]
            Link::Sqlite(handle) => handle.execute_many(sql, rows),
            #[cfg(feature = "postgres")]
            Link::Postgres(handle) => handle.execute_many(sql, rows).await,
        }
    }

    /// Runs a statement and returns its rows.
    pub async fn query(&self, sql: &str, params: &[Value]) -> Result<Vec<Row>> {
        match &self.link {
            #[cfg(feature = "sqlite")]
            Link::Sqlite(handle) => handle.query(sql, params),
            #[cfg(feature = "postgres")]
            Link::Postgres(handle) => handle.query(sql, params).await,
        }
    }

    /// Runs a statement that yields one row or none.
    pub async fn query_optional(&self, sql: &str, params: &[Value]) -> Result<Option<Row>> {
        let mut rows = self.query(sql, params).await?;
        match rows.len() {
            0 | 1 => Ok(rows.pop()),
            several => Err(Error::RowCount(several)),
        }
    }

    /// Runs a statement that yields exactly one row.
    pub async fn query_one(&self, sql: &str, params: &[Value]) -> Result<Row> {
        self.query_optional(sql, params).await?.ok_or(Error::RowCount(0))
    }

    /// As [`query`](Self::query), and holds the rows until the transaction ends. On SQLite every transaction has the
    /// writer to itself already.
    pub async fn query_holding(&self, sql: &str, params: &[Value], hold: Hold) -> Result<Vec<Row>> {
        match &self.link {
            #[cfg(feature = "sqlite")]
            Link::Sqlite(handle) => {
                let _ = hold;
                handle.query(sql, params)
            }
            #[cfg(feature = "postgres")]
            Link::Postgres(handle) => handle.query(&format!("{sql} {}", hold.clause()), params).await,
        }
    }

    /// Wakes the listeners of `topic`, on every node, once this transaction has committed.
    pub fn wake(&self, topic: &Topic) -> Result<()> {
        match &self.link {
            #[cfg(feature = "sqlite")]
            Link::Sqlite(handle) => handle.wake(topic),
            #[cfg(feature = "postgres")]
            Link::Postgres(handle) => handle.wake(topic),
        }
    }

    /// Holds the lock `name` until the transaction ends: transactions that take the same one run one after
    /// another, on all nodes. On SQLite every transaction has the writer to itself already.
    pub async fn lock(&self, name: &str) -> Result<()> {
        if name.is_empty() || name.len() > MAX_LOCK_BYTES {
            return Err(Error::Parameters(format!("a lock's name has 1 to {MAX_LOCK_BYTES} bytes")));
        }
        match &self.link {
            #[cfg(feature = "sqlite")]
            Link::Sqlite(_) => Ok(()),
            #[cfg(feature = "postgres")]
            Link::Postgres(handle) => handle.lock(name).await,
        }
    }

    /// Fails when a statement of this transaction has failed, also when whoever ran it has not passed that on.
    pub fn intact(&self) -> Result<()> {
        match &self.link {
            #[cfg(feature = "sqlite")]
            Link::Sqlite(handle) => handle.intact(),
            #[cfg(feature = "postgres")]
            Link::Postgres(handle) => handle.intact(),
        }
    }

    /// The database's time, in milliseconds since the epoch: `mainstay_now()` in SQL.
    pub async fn now_ms(&self) -> Result<i64> {
        match &self.link {
            #[cfg(feature = "sqlite")]
            Link::Sqlite(handle) => handle.now_ms(),
            #[cfg(feature = "postgres")]
            Link::Postgres(_) => self.query_one("SELECT mainstay_now()", &[]).await?.get(0),
        }
    }
}
