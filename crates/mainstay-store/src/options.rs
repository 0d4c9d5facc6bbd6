//! How a store is opened.

use crate::migrations::{Component, Report};
use crate::system::{SystemClock, SystemRandom};
use crate::{Result, Store};
use mainstay_core::clock::Clock;
use mainstay_core::failpoints::Failpoints;
use mainstay_core::random::Random;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What [`Options::new`] begins with.
pub mod defaults {
    /// See [`Options::busy_timeout`](super::Options::busy_timeout).
    pub const BUSY_TIMEOUT_MS: u64 = 5_000;
    /// See [`Options::transaction_timeout`](super::Options::transaction_timeout).
    pub const TRANSACTION_TIMEOUT_MS: u64 = 10_000;
    /// See [`Options::read_timeout`](super::Options::read_timeout).
    pub const READ_TIMEOUT_MS: u64 = 60_000;
    /// See [`Options::queue_limit`](super::Options::queue_limit).
    pub const QUEUE_LIMIT: usize = 1_024;
    /// See [`Options::readers`](super::Options::readers).
    pub const READERS: usize = 4;
    /// See [`Options::connections`](super::Options::connections).
    pub const CONNECTIONS: usize = 16;
    /// See [`Options::wal_limit_bytes`](super::Options::wal_limit_bytes).
    pub const WAL_LIMIT_BYTES: u64 = 1 << 30;
}

/// Fewest readers of a store, or connections on PostgreSQL: one for searches, and one for everything else.
const LEAST_READERS: usize = 2;

/// Longest time that a group of transactions on SQLite collects members, since the first waits for the last.
const COLLECTING: Duration = Duration::from_millis(10);

/// What a commit waits for on SQLite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Every commit is on the disk before it is acknowledged (`synchronous=FULL`).
    #[default]
    Full,
    /// The last commits may be lost when power fails (`synchronous=NORMAL`). For measuring and for tests that
    /// must see the loss; never for data.
    Relaxed,
}

/// How much a transaction sees of the ones beside it, on PostgreSQL. SQLite is always serializable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// Each statement sees what was committed before it; read-then-write needs [`Tx::lock`](crate::Tx::lock).
    #[default]
    ReadCommitted,
    /// As if transactions ran one after another; conflicts are run again by the store.
    Serializable,
}

/// How the transactions of one handle differ from the others of its store.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Manner {
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "SQLite is always serializable"))]
    pub(crate) isolation: Isolation,
    /// The time one may run, when it is not the usual.
    pub(crate) limit: Option<Duration>,
}

/// Settings of a store. Every one has a default that is right for most.
#[derive(Clone)]
#[cfg_attr(
    not(all(feature = "sqlite", feature = "postgres")),
    allow(dead_code, reason = "some settings are for a driver that this build does without")
)]
pub struct Options {
    pub(crate) url: String,
    pub(crate) busy_timeout: Duration,
    pub(crate) transaction_timeout: Duration,
    pub(crate) read_timeout: Duration,
    pub(crate) queue_limit: usize,
    pub(crate) readers: usize,
    pub(crate) connections: usize,
    /// Opens a database that is marked as a backup, see `backup`.
    pub(crate) is_restoring: bool,
    pub(crate) wal_limit_bytes: u64,
    pub(crate) durability: Durability,
    pub(crate) migrate: bool,
    pub(crate) components: Vec<Component>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) failpoints: Failpoints,
    pub(crate) collecting: Duration,
}

impl Options {
    /// The defaults, for the store at `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            busy_timeout: Duration::from_millis(defaults::BUSY_TIMEOUT_MS),
            transaction_timeout: Duration::from_millis(defaults::TRANSACTION_TIMEOUT_MS),
            read_timeout: Duration::from_millis(defaults::READ_TIMEOUT_MS),
            queue_limit: defaults::QUEUE_LIMIT,
            readers: defaults::READERS,
            connections: defaults::CONNECTIONS,
            is_restoring: false,
            wal_limit_bytes: defaults::WAL_LIMIT_BYTES,
            durability: Durability::default(),
            migrate: true,
            components: Vec::new(),
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom::default()),
            failpoints: Failpoints::from_environment(),
            collecting: COLLECTING,
        }
    }

    /// Opens the store, and brings its schema up to date.
    pub async fn open(self) -> Result<Store> {
        self.open_reporting().await.map(|(store, _)| store)
    }

    /// Opens the store and tells which migrations were applied.
    pub async fn open_reporting(self) -> Result<(Store, Report)> {
        Store::open_with(self).await
    }

    /// How long a call waits for its turn, or for the database to come back, before it ends with `STORE_BUSY`
    /// or `STORE_UNAVAILABLE`.
    pub fn busy_timeout(self, busy_timeout: Duration) -> Self {
        Self { busy_timeout, ..self }
    }

    /// How long one transaction may run.
    pub fn transaction_timeout(self, transaction_timeout: Duration) -> Self {
        Self { transaction_timeout, ..self }
    }

    /// How long one read may run.
    pub fn read_timeout(self, read_timeout: Duration) -> Self {
        Self { read_timeout, ..self }
    }

    /// How many transactions may wait at once.
    pub fn queue_limit(self, queue_limit: usize) -> Self {
        Self { queue_limit: queue_limit.max(1), ..self }
    }

    /// How many reads run at once on SQLite: two at the least, so that a search leaves one to others.
    pub fn readers(self, readers: usize) -> Self {
        Self { readers: readers.max(LEAST_READERS), ..self }
    }

    /// How many connections the pool keeps on PostgreSQL, besides one for wake-ups: two at the least, as of
    /// [readers](Self::readers).
    pub fn connections(self, connections: usize) -> Self {
        Self { connections: connections.max(LEAST_READERS), ..self }
    }

    /// How large the write-ahead log of SQLite may grow before the reads that keep it alive are ended.
    pub fn wal_limit_bytes(self, wal_limit_bytes: u64) -> Self {
        Self { wal_limit_bytes, ..self }
    }

    /// What a commit waits for on SQLite.
    pub fn durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    /// Whether waiting migrations are run, which is the default, or refused.
    pub fn migrate(self, migrate: bool) -> Self {
        Self { migrate, ..self }
    }

    /// The schema that a part of the program needs. What several parts need is taken once.
    pub fn component(mut self, component: Component) -> Self {
        if self.components.iter().all(|other| other.name != component.name) {
            self.components.push(component);
        }
        self
    }

    /// The clock behind `mainstay_now()` on SQLite. On PostgreSQL the server's clock is the only one.
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// The source of jitter.
    pub fn random(self, random: Arc<dyn Random>) -> Self {
        Self { random, ..self }
    }

    /// The points at which tests make the store fail.
    pub fn failpoints(self, failpoints: Failpoints) -> Self {
        Self { failpoints, ..self }
    }

    /// How long a group of transactions on SQLite collects members. For tests that must have all of theirs in one group,
    /// however slow the machine is.
    #[doc(hidden)]
    pub fn collecting(self, collecting: Duration) -> Self {
        Self { collecting, ..self }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Options").finish_non_exhaustive()
    }
}
