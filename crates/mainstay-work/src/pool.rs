//! Pools: how many items run at once, how fast, and how failures are tried again.

use crate::error::{Error, Result};
use crate::item::own_name;
use crate::retrier::own_pools;
use mainstay_core::retry::RetryPolicy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// How many items of a pool run at once unless it says otherwise.
const DEFAULT_PARALLELISM: u32 = 10;
/// Most items of a pool that may run at once, over all nodes.
pub const MAX_PARALLELISM: u32 = 10_000;
/// Most starts per second that a pool can be held to.
pub const MAX_RATE: u32 = 1_000_000;

/// How much a pool tells of its work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum LogLevel {
    /// Everything.
    Trace,
    /// Every start and end.
    Debug,
    /// Ends that are not retried.
    Info,
    /// Failures.
    #[default]
    Warn,
    /// Dead letters.
    Error,
}

/// A pool's settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pool {
    #[serde(skip)]
    pub(crate) name: String,
    /// How many items run at once, over all nodes.
    #[serde(default = "default_parallelism")]
    pub(crate) max_parallelism: u32,
    /// How failures are tried again, unless an item says otherwise.
    #[serde(default)]
    pub(crate) retry: RetryPolicy,
    /// How much is told of it.
    #[serde(default)]
    pub(crate) log_level: LogLevel,
    /// How many items may start per second, over all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rate_per_second: Option<u32>,
}

fn default_parallelism() -> u32 {
    DEFAULT_PARALLELISM
}

impl Pool {
    /// A pool with the usual settings: 10 at once, 5 executions, waits from 250 ms on, doubled each time.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            max_parallelism: DEFAULT_PARALLELISM,
            retry: RetryPolicy::default(),
            log_level: LogLevel::default(),
            rate_per_second: None,
        }
    }

    /// How many items run at once, over all nodes.
    pub fn max_parallelism(mut self, most: u32) -> Self {
        self.max_parallelism = most;
        self
    }

    /// How failures are tried again, unless an item says otherwise.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// How much is told of it.
    pub fn log_level(mut self, level: LogLevel) -> Self {
        self.log_level = level;
        self
    }

    /// How many items may start per second, over all nodes.
    pub fn rate_per_second(mut self, starts: u32) -> Self {
        self.rate_per_second = Some(starts);
        self
    }

    /// The same settings under another name: settings that were read from somewhere have none.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many of its items run at once, over all nodes.
    pub fn at_once(&self) -> u32 {
        self.max_parallelism
    }

    /// Whether it is one of the platform's own pools, which are always there.
    pub(crate) fn is_platform(&self) -> bool {
        Self::platform_names().contains(&self.name)
    }

    /// Names of the platform's own pools.
    pub(crate) fn platform_names() -> BTreeSet<String> {
        own_pools().into_iter().chain(Self::platform()).map(|pool| pool.name).collect()
    }

    /// The pool of this name among those of the [platform](Self::platform), or one with default settings.
    pub fn platform_pool(name: &str) -> Self {
        Self::platform().into_iter().find(|pool| pool.name == name).unwrap_or_else(|| Self::new(name))
    }

    pub(crate) fn check(&self) -> Result<()> {
        own_name("name", &self.name)?;
        if !(1..=MAX_PARALLELISM).contains(&self.max_parallelism) {
            return Err(Error::invalid("maxParallelism", format!("must be 1 to {MAX_PARALLELISM}")));
        }
        if self.rate_per_second.is_some_and(|rate| !(1..=MAX_RATE).contains(&rate)) {
            return Err(Error::invalid("ratePerSecond", format!("must be 1 to {MAX_RATE}")));
        }
        Ok(())
    }

    /// The pools that the platform itself uses (item 271): at once, executions, first wait.
    pub fn platform() -> Vec<Self> {
        let pools = [
            ("projectionPool", 10, 3, 250),
            ("dcbRetryPool", 10, 1, 100),
            ("eventReplayPool", 5, 5, 1_000),
            ("eventAppendPool", 10, 6, 100),
            ("publicationPool", 10, 6, 100),
            ("sagaPool", 10, 3, 250),
            ("fanoutPool", 10, 3, 250),
        ];
        let usual = RetryPolicy::default();
        let make = |(name, at_once, max_attempts, initial_backoff_ms): (&str, u32, u32, u64)| {
            let retry =
                RetryPolicy::new(max_attempts, initial_backoff_ms, usual.base(), usual.max_backoff_ms());
            let retry = retry.expect("constants that fit");
            let level = if name == "eventReplayPool" { LogLevel::Info } else { LogLevel::default() };
            Self::new(name).max_parallelism(at_once).retry(retry).log_level(level)
        };
        pools.into_iter().map(make).collect()
    }
}

/// How a pool is doing.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its settings.
    pub settings: Pool,
    /// Whether nothing is started.
    pub is_paused: bool,
    /// When it was last paused, resumed or given other settings.
    pub changed_at: i64,
    /// How much waits.
    #[serde(flatten)]
    pub depth: Depth,
}

/// How much waits in a pool, counted without looking at it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Depth {
    /// Items that wait: for their turn, their time or their key.
    pub pending: u64,
    /// Items that were taken and have not ended.
    pub running: u64,
    /// How long the one in front has waited.
    pub oldest_age_ms: Option<i64>,
    /// Starts per second, lately.
    pub started_per_second: f64,
    /// Ends per second, lately.
    pub ended_per_second: f64,
}
