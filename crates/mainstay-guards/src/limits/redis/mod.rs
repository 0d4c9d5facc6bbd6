//! Budgets in Redis 7 or newer, alone or as a cluster: shared by all processes that use it, and as lasting as it is.
//!
//! Callers that ask at the same time are answered by one run of a script, which goes by Redis' own time. Keys carry one of
//! a few hash tags, so that those that are decided together lie together in a cluster. What was denied is remembered
//! here until it may be tried again, and costs Redis nothing meanwhile.
//!
//! No caller waits longer than the [timeout](Options::timeout). When Redis does not answer, nobody asks it any more until
//! it does; a limiter in memory takes over meanwhile, or calls are refused, as configured.

mod budget;
mod call;
mod denied;
mod line;
mod slots;

use super::memory::{Memory, MemoryLimiter};
use super::{Answer, Concurrency, Policy, RateLimiter, Slots, check};
use crate::{Error, Result};
use budget::{Ask, Law};
use call::{Call, Caller};
use denied::Denied;
use line::Line;
use mainstay_core::clock::Clock;
use mainstay_core::limits::{Decision, Limit, Verb};
use mainstay_store::batch::Batcher;
use parking_lot::RwLock;
use std::sync::Arc;
use std::time::Duration;

use slots::{RedisSlots, SlotAsk};

pub use line::Figures;

/// Two runs at once: while Redis carries out one, the next is on its way.
const LANES: usize = 2;
/// How many hash tags there are. Few, so that in a cluster many callers share a run; enough to use all masters.
const PARTITIONS: u32 = 16;
/// The least time that a budget is kept (item 36).
const MIN_TTL_MS: u64 = 60_000;

/// What happens to calls while Redis does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenAway {
    /// A limiter in memory takes over, with this node's part of the budget if there are so many.
    Insure {
        /// Among how many nodes the budget is split meanwhile.
        nodes: u64,
    },
    /// They are refused with `LIMITER_UNAVAILABLE`.
    Refuse,
}

/// How Redis is used.
#[derive(Clone)]
pub struct Options {
    nodes: Vec<String>,
    is_cluster: bool,
    timeout: Duration,
    retry_every: Duration,
    when_away: WhenAway,
    ttl_ms: Option<u64>,
    clock: Option<Arc<dyn Clock>>,
}

impl Options {
    /// The defaults, for one server: `redis://host:port`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            nodes: vec![url.into()],
            is_cluster: false,
            timeout: Duration::from_millis(250),
            retry_every: Duration::from_millis(500),
            when_away: WhenAway::Insure { nodes: 1 },
            ttl_ms: None,
            clock: None,
        }
    }

    /// The defaults, for a cluster of which some nodes are known.
    pub fn cluster<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> Self {
        Self { nodes: urls.into_iter().map(Into::into).collect(), is_cluster: true, ..Self::new("") }
    }

    /// The longest that a caller waits.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// How often it is looked whether Redis is back.
    pub fn retry_every(self, retry_every: Duration) -> Self {
        Self { retry_every, ..self }
    }

    /// What happens to calls while Redis does not answer.
    pub fn when_away(self, when_away: WhenAway) -> Self {
        Self { when_away, ..self }
    }

    /// How long a budget is kept after its last use, instead of twice the time it takes to be full again, and a minute at
    /// least.
    pub fn ttl_ms(self, ttl_ms: u64) -> Self {
        Self { ttl_ms: Some(ttl_ms.max(1)), ..self }
    }

    /// The clock of what is kept in memory, for tests: denied keys, and the limiter that takes over. What Redis keeps
    /// goes by Redis' time.
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock: Some(clock), ..self }
    }
}

/// One connection to Redis, for any number of limiters.
#[derive(Clone)]
pub struct Redis {
    batcher: Batcher<Caller<Ask>>,
    slots: Batcher<Caller<SlotAsk>>,
    options: Arc<Options>,
    memory: Memory,
}

impl Redis {
    /// Connects. A Redis that is away is waited for in the background; only an address that makes no sense is refused.
    pub async fn open(options: Options) -> Result<Self> {
        let line = Line::open(&options).await?;
        let memory = options.clock.clone().map_or_else(Memory::new, |clock| Memory::new().clock(clock));
        let caller = Caller::new(line.clone(), options.is_cluster, options.timeout);
        let slots = Caller::new(line, options.is_cluster, options.timeout);
        let (batcher, slots) = (Batcher::new(caller, LANES), Batcher::new(slots, LANES));
        Ok(Self { batcher, slots, options: Arc::new(options), memory })
    }

    /// A limiter that goes by `policy`. Limiters with the same prefix share their budgets.
    pub fn limiter(&self, policy: Policy) -> RedisLimiter {
        let law = RwLock::new(Arc::new(self.law(policy.limit())));
        let insurance = match self.options.when_away {
            WhenAway::Refuse => None,
            WhenAway::Insure { nodes } => Some(self.insurance(&policy, nodes)),
        };
        let denied = Denied::new(self.options.clock.clone());
        RedisLimiter { redis: self.clone(), policy: RwLock::new(policy), law, insurance, denied }
    }

    /// A concurrency limit that all share who use this Redis and the same prefix.
    pub fn concurrency(&self, slots: Slots) -> Concurrency {
        Concurrency::new(RedisSlots::new(self, slots))
    }

    /// What is measured about the line to Redis.
    pub fn figures(&self) -> &Arc<Figures> {
        self.batcher.runs().line().figures()
    }

    /// Whether Redis answers.
    pub fn is_up(&self) -> bool {
        self.batcher.runs().line().is_up()
    }

    fn insurance(&self, policy: &Policy, nodes: u64) -> MemoryLimiter {
        self.memory.limiter(policy.with_limit(part(policy.limit(), nodes)))
    }

    fn law(&self, limit: &Limit) -> Law {
        let ttl_ms = self.options.ttl_ms.unwrap_or_else(|| (2 * limit.full_after_ms()).max(MIN_TTL_MS));
        Law::new(limit, ttl_ms)
    }

    /// Asks, for no longer than is configured.
    async fn ask<C: Call>(&self, batcher: &Batcher<Caller<C>>, call: C) -> Result<C::Answer> {
        let answer = tokio::time::timeout(self.options.timeout, batcher.ask(call)).await;
        answer.unwrap_or_else(|_| Err(batcher.runs().line().no_answer(self.options.timeout)))
    }
}

/// This node's part of a limit; all of it when it cannot be split.
fn part(limit: &Limit, nodes: u64) -> Limit {
    limit.share(nodes.max(1), 0).unwrap_or(*limit)
}

/// Budgets in Redis.
pub struct RedisLimiter {
    redis: Redis,
    policy: RwLock<Policy>,
    law: RwLock<Arc<Law>>,
    insurance: Option<MemoryLimiter>,
    denied: Denied,
}

impl RedisLimiter {
    async fn decide(&self, key: &str, verb: Verb) -> Result<Decision> {
        check(key, verb)?;
        if let Verb::Consume(cost) = verb
            && let Some(decision) = self.denied.remembered(key, cost)
        {
            return Ok(decision);
        }
        let law = self.law.read().clone();
        let ask = Ask::new(law, self.policy.read().prefix(), key, verb, PARTITIONS);
        let decision = match (self.redis.ask(&self.redis.batcher, ask).await, &self.insurance) {
            (Err(Error::LimiterAway(_)), Some(insurance)) => return insurance.act_now(key, verb),
            (answer, _) => answer?,
        };
        self.denied.note(key, verb, &decision);
        Ok(decision)
    }
}

impl RateLimiter for RedisLimiter {
    fn act<'a>(&'a self, key: &'a str, verb: Verb) -> Answer<'a, Decision> {
        Answer::later(self.decide(key, verb))
    }

    fn policy(&self) -> Policy {
        self.policy.read().clone()
    }

    /// Counts for this process; others that use the same budgets go by theirs until they are told.
    fn set_limit(&self, limit: Limit) -> Answer<'_, ()> {
        let mut policy = self.policy.write();
        *self.law.write() = Arc::new(self.redis.law(&limit));
        *policy = policy.with_limit(limit);
        self.denied.clear();
        match (&self.insurance, self.redis.options.when_away) {
            (Some(insurance), WhenAway::Insure { nodes }) => insurance.set_limit(part(&limit, nodes)),
            _ => Answer::now(Ok(())),
        }
    }

    fn dispose(&self) {
        self.denied.clear();
        if let Some(insurance) = &self.insurance {
            insurance.dispose();
        }
    }
}
