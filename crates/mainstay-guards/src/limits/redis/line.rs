//! The line to Redis: up, or down until Redis answers again.
//!
//! It goes down with the first call that fails or is not answered in time, so that nobody else waits for it. A task then
//! looks every now and then whether Redis is back.

use super::Options;
use super::budget::Ask;
use super::call::Call;
use super::slots::SlotAsk;
use crate::{Error, Result};
use mainstay_core::measure::{Counter, Gauge, Histogram, Measured, Reading};
use parking_lot::RwLock;
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisError, RedisResult, cmd};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What is measured about a line to Redis.
#[derive(Debug, Default)]
pub struct Figures {
    /// Calls per run of the script.
    pub batch_size: Histogram,
    /// Times that Redis went away.
    pub outages: Counter,
    /// Calls that met a Redis that was away.
    pub refused: Counter,
    /// 1 while Redis answers.
    pub up: Gauge,
}

impl Measured for Figures {
    fn measure(&self, visit: &mut dyn FnMut(&'static str, &'static str, Reading)) {
        let batch_size = Reading::Sizes(self.batch_size.snapshot());
        visit("limits_redis_batch_size", "Calls per run of the script in Redis.", batch_size);
        let outages = Reading::Counter(self.outages.get());
        visit("limits_redis_outages", "Times that Redis went away.", outages);
        let refused = Reading::Counter(self.refused.get());
        visit("limits_redis_refused", "Calls that met a Redis that was away.", refused);
        visit("limits_redis_up", "1 while Redis answers.", Reading::Gauge(self.up.get()));
    }
}

/// A way to ask Redis. Clones share it.
#[derive(Clone)]
pub(super) enum Connection {
    One(MultiplexedConnection),
    Many(ClusterConnection),
}

impl Connection {
    pub(super) async fn query<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        match self {
            Self::One(connection) => command.query_async(&mut connection.clone()).await,
            Self::Many(connection) => command.query_async(&mut connection.clone()).await,
        }
    }
}

/// How Redis is reached.
enum Target {
    One(Client),
    Many(Box<ClusterClient>),
}

impl Target {
    fn new(options: &Options) -> RedisResult<Self> {
        if !options.is_cluster {
            let url = options.nodes.first().map_or("", String::as_str);
            return Ok(Self::One(Client::open(url)?));
        }
        // Retries are ours to make: a caller has no time for them.
        let builder = ClusterClient::builder(options.nodes.iter().map(String::as_str)).retries(1);
        let builder = builder.connection_timeout(options.timeout).response_timeout(options.timeout);
        Ok(Self::Many(Box::new(builder.build()?)))
    }

    async fn connect(&self, timeout: Duration) -> RedisResult<Connection> {
        let connection = match self {
            Self::One(client) => {
                // The time limit is that of the callers, and is kept by us.
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(timeout))
                    .set_response_timeout(None)
                    .set_pipeline_buffer_size(1_024);
                Connection::One(client.get_multiplexed_async_connection_with_config(&config).await?)
            }
            Self::Many(client) => Connection::Many(client.get_async_connection().await?),
        };
        for script in [Ask::SCRIPT, SlotAsk::SCRIPT] {
            let _: redis::Value = connection.query(cmd("SCRIPT").arg("LOAD").arg(script)).await?;
        }
        Ok(connection)
    }
}

pub(super) struct Line {
    target: Target,
    timeout: Duration,
    retry_every: Duration,
    state: RwLock<State>,
    figures: Arc<Figures>,
}

enum State {
    Up(Connection),
    Down { why: Arc<str> },
}

impl Line {
    pub(super) async fn open(options: &Options) -> Result<Arc<Self>> {
        let target = Target::new(options).map_err(|error| Error::invalid("url", error.to_string()))?;
        let line = Arc::new(Self {
            target,
            timeout: options.timeout,
            retry_every: options.retry_every,
            state: RwLock::new(State::Down { why: "not connected yet".into() }),
            figures: Arc::default(),
        });
        if let Err(why) = line.connect().await {
            line.look_for_it(&why);
        }
        Ok(line)
    }

    pub(super) fn figures(&self) -> &Arc<Figures> {
        &self.figures
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(*self.state.read(), State::Up(_))
    }

    /// A way to ask Redis, if it answers.
    pub(super) fn connection(&self) -> Result<Connection> {
        match &*self.state.read() {
            State::Up(connection) => Ok(connection.clone()),
            State::Down { why } => {
                self.figures.refused.increment();
                Err(Error::LimiterAway(why.clone()))
            }
        }
    }

    /// Redis did not answer in time.
    pub(super) fn no_answer(self: &Arc<Self>, within: Duration) -> Error {
        self.down(format!("Redis did not answer within {} ms", within.as_millis()))
    }

    /// Redis answered with an error, or not at all.
    pub(super) fn failed(self: &Arc<Self>, error: &RedisError) -> Error {
        self.down(error.to_string())
    }

    /// Nobody asks Redis any more until it answers.
    fn down(self: &Arc<Self>, why: String) -> Error {
        let why: Arc<str> = why.into();
        let before = std::mem::replace(&mut *self.state.write(), State::Down { why: why.clone() });
        if let State::Up(_) = before {
            self.look_for_it(&why);
        }
        Error::LimiterAway(why)
    }

    async fn connect(&self) -> std::result::Result<(), String> {
        let connected = tokio::time::timeout(self.timeout, self.target.connect(self.timeout)).await;
        let connection = match connected {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err(format!("Redis did not answer within {} ms", self.timeout.as_millis())),
        };
        *self.state.write() = State::Up(connection);
        self.figures.up.set(1);
        Ok(())
    }

    fn look_for_it(self: &Arc<Self>, why: &str) {
        tracing::warn!(why, "Redis is away: rate limits go by what was configured for that until it is back");
        self.figures.outages.increment();
        self.figures.up.set(0);
        tokio::spawn(look(Arc::downgrade(self), self.retry_every));
    }
}

/// Looks every now and then whether Redis is back, for as long as somebody uses the line.
async fn look(line: Weak<Line>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let Some(line) = line.upgrade() else { return };
        match line.connect().await {
            Ok(()) => {
                tracing::info!("Redis is back");
                return;
            }
            Err(why) => *line.state.write() = State::Down { why: why.into() },
        }
    }
}
