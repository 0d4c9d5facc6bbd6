//! The pool, and what a server must offer.

use super::{failure, tls};
use crate::{Error, Location, Options, Result};
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod};
use std::time::Duration;
use tokio_postgres::config::Host;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The oldest server that is tested.
const OLDEST: u32 = 15;
/// How long a half-open connection may look alive: a lost server must be noticed well before a lease runs out.
const SILENCE: Duration = Duration::from_secs(10);

/// A connection that its owner drives.
pub(super) type Line = tokio_postgres::Connection<
    tokio_postgres::Socket,
    <MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<tokio_postgres::Socket>>::Stream,
>;

fn is_local(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => ["localhost", "127.0.0.1", "::1"].contains(&name.as_str()),
        Host::Unix(_) => true,
    }
}

/// How to reach a server.
#[derive(Clone)]
pub(super) struct Server {
    config: Config,
    tls: MakeRustlsConnect,
    name: String,
    /// How long an answer may take before the server counts as gone.
    patience: Duration,
}

/// Reads a URL, without connecting to anything.
pub(super) fn read(url: &str) -> Result<(Config, tls::Wanted)> {
    let bad = |reason: String| Error::Url { url: Location::Postgres(url.to_owned()).to_string(), reason };
    let wanted = tls::read(url).map_err(bad)?;
    let config: Config = wanted.url.parse().map_err(|error: tokio_postgres::Error| {
        bad(std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string))
    })?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(bad("names no host".to_owned()));
    }
    if config.get_dbname().is_none_or(str::is_empty) {
        return Err(bad("names no database; write postgres://user@host/database".to_owned()));
    }
    Ok((config, wanted))
}

impl Server {
    pub(super) fn new(url: &str, options: &Options) -> Result<Self> {
        let (mut config, wanted) = read(url)?;
        config.ssl_mode(if wanted.is_required { SslMode::Require } else { SslMode::Disable });
        if !wanted.is_required && !config.get_hosts().iter().all(is_local) {
            tracing::warn!("the connection to the database is not encrypted; add sslmode=require to its URL");
        }
        if config.get_application_name().is_none() {
            config.application_name("mainstay");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(options.busy_timeout);
        }
        config.tcp_user_timeout(SILENCE).keepalives_idle(SILENCE).keepalives_interval(SILENCE / 5);
        config.options(server_limits(config.get_options(), options));
        let name = Location::Postgres(wanted.url.clone()).to_string();
        Ok(Self { config, tls: tls::connector(&wanted)?, name, patience: options.busy_timeout })
    }

    /// Where it is, for messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn pool(&self, options: &Options) -> Result<Pool> {
        let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(self.config.clone(), self.tls.clone(), manager);
        let builder = Pool::builder(manager)
            .max_size(options.connections)
            .runtime(deadpool_postgres::Runtime::Tokio1)
            .wait_timeout(Some(options.busy_timeout))
            .create_timeout(Some(options.busy_timeout));
        builder
            .build()
            .map_err(|error| Error::Open { what: "the pool".to_owned(), reason: error.to_string() })
    }

    /// A connection beside the pool; whoever asks drives the second part.
    pub(super) async fn connect(&self) -> Result<(Client, Line)> {
        self.answer(self.config.connect(self.tls.clone())).await
    }

    /// What the server answers, if it does so in time.
    pub(super) async fn answer<T>(
        &self,
        asking: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        match tokio::time::timeout(self.patience, asking).await {
            Ok(answer) => answer.map_err(|error| failure::of(&error)),
            Err(_elapsed) => Err(Error::Unavailable(format!("{} does not answer", self.name()))),
        }
    }

    /// Asks a running statement to stop.
    pub(super) async fn cancel(&self, token: tokio_postgres::CancelToken) {
        // If the request does not arrive, the connection is discarded all the same.
        drop(token.cancel_query(self.tls.clone()).await);
    }

    /// Connects once, so that what is wrong with the URL or the server is said when the store is opened.
    pub(super) async fn check(&self, pool: &Pool) -> Result<()> {
        let connection = pool.get().await.map_err(|error| match error {
            deadpool_postgres::PoolError::Backend(error) => failure::of_connecting(&error, self.name()),
            other => Error::Unavailable(format!("{}: {other}", self.name())),
        })?;
        let row = self.answer(connection.query_one("SHOW server_version_num", &[])).await?;
        let number: u32 = row.get::<_, String>(0).parse().unwrap_or(0);
        if number / 10_000 < OLDEST {
            return Err(Error::ServerTooOld { found: (number / 10_000).to_string(), needed: OLDEST });
        }
        Ok(())
    }
}

/// What the server does about a node that falls silent in the middle of a transaction, so that its locks come free.
/// A node ends its own transactions earlier than this. What the URL asks for goes before.
fn server_limits(asked: Option<&str>, options: &Options) -> String {
    // The server takes these as i32, and 0 for never.
    let ms = |limit: Duration| limit.as_millis().clamp(1, i32::MAX as u128);
    let idle_ms = ms(options.transaction_timeout);
    let longest = options.transaction_timeout.max(options.read_timeout);
    let statement_ms = ms(longest.saturating_add(Duration::from_secs(1)));
    let asked = asked.unwrap_or_default();
    format!("-c idle_in_transaction_session_timeout={idle_ms} -c statement_timeout={statement_ms} {asked}")
}

/// How the server makes commits durable.
pub(super) async fn durability(connection: &Object) -> Result<String> {
    let sql = "SELECT current_setting('server_version'), current_setting('fsync'), \
               current_setting('synchronous_commit')";
    let row = connection.query_one(sql, &[]).await.map_err(|error| failure::of(&error))?;
    let (version, fsync, commit): (String, String, String) = (row.get(0), row.get(1), row.get(2));
    let version = version.split(' ').next().unwrap_or_default();
    Ok(format!("PostgreSQL {version}, fsync={fsync}, synchronous_commit={commit}"))
}
