//! Slots in Redis.

use super::super::key::fnv1a;
use super::call::{Call, somebody_elses};
use super::{PARTITIONS, Redis, WhenAway};
use crate::limits::memory::MemorySlots;
use crate::limits::{Answer, ConcurrencyLimiter, Slots, check_claim};
use crate::{Error, Result};
use mainstay_core::limits::leases::{Claim, Claimed};
use redis::{Cmd, cmd};

/// One claim.
pub(super) struct SlotAsk {
    key: String,
    partition: u32,
    claim: Claim,
    slots: u64,
}

impl SlotAsk {
    fn new(slots: &Slots, key: &str, claim: Claim) -> Self {
        let partition = fnv1a(&[slots.prefix(), key]) % PARTITIONS;
        // Not the tag of budgets: one of the same name is something else.
        let key = format!("{{cl:{partition}}}:{}{key}", slots.prefix());
        Self { key, partition, claim, slots: slots.count() }
    }
}

impl Call for SlotAsk {
    type Answer = Claimed;
    const SCRIPT: &'static str = include_str!("slots.lua");
    const NUMBERS: usize = 3;

    fn partition(&self) -> u32 {
        self.partition
    }

    fn command(name: &str, script: &str, asks: &[&Self]) -> Cmd {
        let mut command = cmd(name);
        command.arg(script).arg(asks.len());
        for ask in asks {
            command.arg(ask.key.as_str());
        }
        for ask in asks {
            let (verb, token, ttl_ms) = match ask.claim {
                Claim::Acquire { token, ttl_ms } => ("acquire", token.to_string(), ttl_ms),
                Claim::Renew { token, ttl_ms } => ("renew", token.to_string(), ttl_ms),
                Claim::Release { token } => ("release", token.to_string(), 0),
                Claim::Look => ("look", String::new(), 0),
            };
            command.arg(verb).arg(token).arg(ttl_ms).arg(ask.slots);
        }
        command
    }

    fn answer(numbers: &[i64]) -> Result<Claimed> {
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        match numbers[0] {
            -1 => Err(somebody_elses()),
            done => {
                Ok(Claimed { done: done == 1, in_use: count(numbers[1]), retry_after_ms: count(numbers[2]) })
            }
        }
    }
}

/// Slots in Redis; while it is away, this node's part of them in memory, or none.
pub(super) struct RedisSlots {
    redis: Redis,
    slots: Slots,
    insurance: Option<MemorySlots>,
}

impl RedisSlots {
    pub(super) fn new(redis: &Redis, slots: Slots) -> Self {
        let insurance = match redis.options.when_away {
            WhenAway::Refuse => None,
            WhenAway::Insure { nodes } => Some(redis.memory.slots(slots.part(nodes))),
        };
        Self { redis: redis.clone(), slots, insurance }
    }

    async fn claim(&self, key: &str, claim: Claim) -> Result<Claimed> {
        check_claim(key, claim)?;
        let asked = self.redis.ask(&self.redis.slots, SlotAsk::new(&self.slots, key, claim));
        let Some(insurance) = &self.insurance else { return asked.await };
        // What was given while Redis was away is seen to where it was given.
        let insured = match claim {
            Claim::Renew { .. } | Claim::Release { .. } => Some(insurance.act_now(key, claim)?),
            Claim::Acquire { .. } | Claim::Look => None,
        };
        match (claim, insured.filter(|claimed| claimed.done)) {
            (Claim::Renew { .. }, Some(renewed)) => return Ok(renewed),
            // It may be a slot of Redis that was renewed here.
            (_, Some(released)) => return asked.await.or(Ok(released)).map(|_| released),
            (_, None) => {}
        }
        match (asked.await, claim) {
            // Who is in stays in, as long as this node's part has room.
            (Err(Error::LimiterAway(_)), Claim::Renew { token, ttl_ms }) => {
                insurance.act_now(key, Claim::Acquire { token, ttl_ms })
            }
            (Err(Error::LimiterAway(_)), claim) => insurance.act_now(key, claim),
            (answer, _) => answer,
        }
    }
}

impl ConcurrencyLimiter for RedisSlots {
    fn act<'a>(&'a self, key: &'a str, claim: Claim) -> Answer<'a, Claimed> {
        Answer::later(self.claim(key, claim))
    }

    fn slots(&self) -> Slots {
        self.slots.clone()
    }
}
