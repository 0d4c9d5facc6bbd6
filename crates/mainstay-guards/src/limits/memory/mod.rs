//! Budgets in the memory of one process.
//!
//! Nothing runs in the background: what has recovered is forgotten when its place is needed. At the cap on keys, full
//! budgets go first, and nothing is lost with them; then those that would be full soonest, so that rotating keys does
//! not bring back what another key has used up.
//!
//! It serves tests, single nodes at their front door, and as insurance while Redis is away; named limits, which
//! several nodes share and restarts keep, are the store's.

mod clock;
mod slots;
mod table;

use super::{Answer, Concurrency, Policy, RateLimiter, Slots, check};
use crate::Result;
use clock::Steady;
use mainstay_core::clock::Clock;
use mainstay_core::limits::{Decision, Limit, Verb};
use std::sync::{Arc, PoisonError, RwLock};
use table::Table;

pub(super) use slots::MemorySlots;

/// How many keys a limiter keeps unless told otherwise. A key takes less than 100 bytes, also while a table grows.
pub const MAX_KEYS: usize = 1_000_000;

/// Makes limiters in memory that share a clock and a cap.
#[derive(Clone)]
pub struct Memory {
    clock: Option<Arc<dyn Clock>>,
    max_keys: usize,
}

impl Memory {
    /// The defaults: a steady clock of its own, and [`MAX_KEYS`] keys for each limiter.
    pub fn new() -> Self {
        Self { clock: None, max_keys: MAX_KEYS }
    }

    /// Another clock, for tests.
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Another cap on the keys of each limiter.
    pub fn max_keys(self, max_keys: usize) -> Self {
        Self { max_keys: max_keys.max(1), ..self }
    }

    /// A limiter that goes by `policy`.
    pub fn limiter(&self, policy: Policy) -> MemoryLimiter {
        tracing::info!(
            prefix = policy.prefix(),
            max_keys = self.max_keys,
            "this limit is kept in the memory of this process: others do not share it, and a restart forgets it"
        );
        MemoryLimiter {
            table: Table::new(policy.limit(), self.max_keys),
            policy: RwLock::new(policy),
            clock: self.time(),
        }
    }

    /// A concurrency limit within this process.
    pub fn concurrency(&self, slots: Slots) -> Concurrency {
        Concurrency::new(self.slots(slots))
    }

    pub(super) fn slots(&self, slots: Slots) -> MemorySlots {
        MemorySlots::new(slots, self.time(), self.max_keys)
    }

    fn time(&self) -> Time {
        self.clock.clone().map_or_else(|| Time::Steady(Steady::new()), Time::Given)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

/// A limiter in memory with the defaults.
pub fn limiter(policy: Policy) -> MemoryLimiter {
    Memory::new().limiter(policy)
}

enum Time {
    Steady(Steady),
    Given(Arc<dyn Clock>),
}

impl Time {
    #[inline]
    fn now_ms(&self) -> i64 {
        match self {
            Self::Steady(steady) => steady.now_ms(),
            Self::Given(clock) => clock.now_ms(),
        }
    }
}

/// Budgets in the memory of one process.
pub struct MemoryLimiter {
    table: Table,
    policy: RwLock<Policy>,
    clock: Time,
}

impl MemoryLimiter {
    /// As [`act`](RateLimiter::act), without a future.
    #[inline]
    pub fn act_now(&self, key: &str, verb: Verb) -> Result<Decision> {
        check(key, verb)?;
        let now_ms = self.clock.now_ms();
        Ok(match verb {
            Verb::Consume(cost) => self.table.consume(key, cost, now_ms),
            verb => self.table.act(key, verb, now_ms),
        })
    }

    /// As [`consume`](RateLimiter::consume), without a future.
    #[inline]
    pub fn consume_now(&self, key: &str, cost: u64) -> Result<Decision> {
        self.act_now(key, Verb::Consume(cost))
    }

    /// How many keys are kept.
    pub fn keys(&self) -> usize {
        self.table.len()
    }
}

impl RateLimiter for MemoryLimiter {
    fn act<'a>(&'a self, key: &'a str, verb: Verb) -> Answer<'a, Decision> {
        Answer::now(self.act_now(key, verb))
    }

    fn policy(&self) -> Policy {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_limit(&self, limit: Limit) -> Answer<'_, ()> {
        let mut policy = self.policy.write().unwrap_or_else(PoisonError::into_inner);
        self.table.set_limit(&limit, self.clock.now_ms());
        *policy = policy.with_limit(limit);
        Answer::now(Ok(()))
    }

    fn dispose(&self) {
        self.table.clear();
    }
}
