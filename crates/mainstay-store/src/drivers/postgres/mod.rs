//! PostgreSQL, for many nodes on one database.
//!
//! - `connect`: the pool, and what a server must offer
//! - `tls`: how the line is protected
//! - `transaction`: a transaction as the author's `Tx` sees it
//! - `pooled`: a connection on loan
//! - `attempt`: runs a closure in a transaction, and ends it one way or the other
//! - `lend`: runs a closure in a transaction that belongs to someone else
//! - `notifier`: wake-ups between nodes
//! - `dump`: backups by PostgreSQL's own programs
//! - `value`, `failure`: what PostgreSQL's types and error codes mean

mod attempt;
mod connect;
mod dump;
mod failure;
mod lend;
mod notifier;
mod pooled;
mod tls;
mod transaction;
mod value;

pub(crate) use dump::{check_empty, dump, run, undump};
pub use lend::Lent;
pub(crate) use transaction::Handle;

use crate::body::Body;
use crate::figures::Figures;
use crate::gate::Gate;
use crate::options::Manner;
use crate::wakeups::Hub;
use crate::{Error, Options, Result};
use attempt::{Ended, Kind};
use connect::Server;
use deadpool_postgres::{Object, Pool};
use mainstay_core::backoff::Backoff;
use mainstay_core::failpoints::Failpoints;
use mainstay_core::random::Random;
use notifier::Notifier;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use transaction::Statements;

/// Whether a URL can be understood.
pub(crate) fn check_url(url: &str) -> Result<()> {
    connect::read(url).map(drop)
}

/// How often a transaction is run again after losing against others, before the caller hears of it.
const MAX_CONFLICTS: u32 = 10;

/// A PostgreSQL database, connected.
pub(crate) struct Driver {
    url: String,
    pool: Pool,
    server: Arc<Server>,
    gate: Gate,
    notifier: Notifier,
    statements: Arc<Statements>,
    figures: Arc<Figures>,
    random: Arc<dyn Random>,
    failpoints: Failpoints,
    transaction_timeout: Duration,
    read_timeout: Duration,
}

impl Driver {
    pub(crate) async fn open(
        url: &str,
        options: &Options,
        figures: &Arc<Figures>,
        hub: &Arc<Hub>,
    ) -> Result<Self> {
        let server = Server::new(url, options)?;
        let pool = server.pool(options)?;
        server.check(&pool).await?;
        Ok(Self {
            notifier: Notifier::start(&server, hub.clone(), figures.clone(), options.random.clone()),
            url: url.to_owned(),
            pool,
            server: Arc::new(server),
            gate: Gate::new(options.queue_limit, options.busy_timeout),
            statements: Arc::default(),
            figures: figures.clone(),
            random: options.random.clone(),
            failpoints: options.failpoints.clone(),
            transaction_timeout: options.transaction_timeout,
            read_timeout: options.read_timeout,
        })
    }

    pub(crate) async fn transact(&self, body: Body, manner: Manner) -> Result<()> {
        self.run(body, Kind::Write(manner.isolation), manner.limit, self.transaction_timeout).await
    }

    pub(crate) async fn read(&self, body: Body, manner: Manner) -> Result<()> {
        self.run(body, Kind::Read, manner.limit, self.read_timeout).await
    }

    /// Runs `body` until it commits, fails for good, or patience ends. Only what certainly did not happen is run
    /// again.
    async fn run(&self, mut body: Body, kind: Kind, limit: Option<Duration>, usual: Duration) -> Result<()> {
        let called = Instant::now();
        let (_place, deadline) = self.gate.enter().await?;
        let (mut conflicts, mut outages) = (0, 0);
        loop {
            let ended = match self.connection(deadline).await {
                Ok(connection) => {
                    self.figures.wait_time.record_duration(called.elapsed());
                    self.attempt(connection, &mut body, kind, limit, usual).await
                }
                Err(error) => Ended::Failed(error),
            };
            let (wait_ms, error) = match ended {
                Ended::Done => return Ok(()),
                Ended::Conflict(reason) => {
                    conflicts += 1;
                    let error = Error::Conflict { attempts: conflicts, reason };
                    if conflicts >= MAX_CONFLICTS {
                        return Err(error);
                    }
                    (conflict_backoff().jittered_ms(conflicts - 1, &*self.random), error)
                }
                Ended::Failed(error @ Error::Unavailable(_)) => {
                    outages += 1;
                    (outage_backoff().jittered_ms(outages - 1, &*self.random), error)
                }
                Ended::Failed(error) => return Err(error),
            };
            let wait = Duration::from_millis(wait_ms);
            if Instant::now() + wait >= deadline {
                return Err(error);
            }
            self.figures.rerun.increment();
            tokio::time::sleep(wait).await;
        }
    }

    async fn connection(&self, deadline: Instant) -> Result<Object> {
        use deadpool_postgres::{PoolError, TimeoutType};
        match tokio::time::timeout_at(deadline, self.pool.get()).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(PoolError::Backend(error))) => Err(failure::of_connecting(&error, self.server.name())),
            Ok(Err(PoolError::Closed)) => Err(Error::Closed),
            Ok(Err(PoolError::Timeout(TimeoutType::Wait))) | Err(_) if self.is_exhausted() => {
                Err(self.gate.busy("every connection is in use"))
            }
            Ok(Err(error)) => Err(Error::Unavailable(format!("{}: {error}", self.server.name()))),
            Err(_elapsed) => Err(Error::Unavailable(format!("{} does not answer", self.server.name()))),
        }
    }

    fn is_exhausted(&self) -> bool {
        let status = self.pool.status();
        status.size >= status.max_size && status.available == 0
    }

    /// The URL it was opened with.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) async fn durability(&self) -> Result<String> {
        let connection = self.connection(Instant::now() + Duration::from_secs(5)).await?;
        connect::durability(&connection).await
    }

    /// Finishes what was accepted, its wake-ups included.
    pub(crate) async fn close(&self) {
        self.gate.drain().await;
        self.notifier.flush().await;
        self.pool.close();
    }
}

/// Conflicts clear within a transaction's time.
fn conflict_backoff() -> Backoff {
    backoff(2.0, 100.0)
}

/// A server that restarts is away for seconds.
fn outage_backoff() -> Backoff {
    backoff(25.0, 500.0)
}

fn backoff(initial_ms: f64, max_ms: f64) -> Backoff {
    Backoff::new(initial_ms, 2.0, max_ms).expect("both are positive constants")
}
