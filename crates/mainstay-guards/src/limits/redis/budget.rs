//! What is asked of the script that decides about budgets, and what comes back.

use super::super::key::fnv1a;
use super::call::{Call, somebody_elses};
use crate::Result;
use mainstay_core::limits::{Decision, Kind, Limit, MAX_CAPACITY, Verb};
use redis::{Cmd, cmd};
use std::sync::Arc;

/// Longest that a key is blocked: a hundred years, which a script's numbers hold.
const MAX_BLOCK_MS: u64 = 100 * 366 * 86_400_000;

/// A limit as the script is told.
#[derive(Debug)]
pub(super) struct Law {
    text: String,
    ttl_ms: u64,
}

impl Law {
    pub(super) fn new(limit: &Limit, ttl_ms: u64) -> Self {
        let kind = match limit.kind() {
            Kind::TokenBucket => 't',
            Kind::FixedWindow => 'f',
            Kind::SlidingWindow => 's',
        };
        let (capacity, rate, period) = (limit.capacity(), limit.rate(), limit.period_ms());
        Self { text: format!("{kind}/{capacity}/{rate}/{period}/{}", limit.start_ms()), ttl_ms }
    }
}

/// One call.
pub(super) struct Ask {
    law: Arc<Law>,
    key: String,
    partition: u32,
    verb: &'static str,
    amount: u64,
}

impl Ask {
    pub(super) fn new(law: Arc<Law>, prefix: &str, key: &str, verb: Verb, partitions: u32) -> Self {
        let partition = fnv1a(&[prefix, key]) % partitions;
        let (verb, amount) = match verb {
            // More than any capacity is never allowed, however much more it is.
            Verb::Consume(cost) => ("c", cost.min(MAX_CAPACITY + 1)),
            Verb::Peek(cost) => ("p", cost.min(MAX_CAPACITY + 1)),
            Verb::Refund(amount) => ("r", amount.min(2 * MAX_CAPACITY)),
            Verb::Penalize(amount) => ("n", amount.min(2 * MAX_CAPACITY)),
            Verb::Block(for_ms) => ("b", for_ms.min(MAX_BLOCK_MS)),
            Verb::Reset => ("x", 0),
        };
        Self { law, key: format!("{{rl:{partition}}}:{prefix}{key}"), partition, verb, amount }
    }
}

impl Call for Ask {
    type Answer = Decision;
    const SCRIPT: &'static str = include_str!("budget.lua");
    const NUMBERS: usize = 3;

    fn partition(&self) -> u32 {
        self.partition
    }

    fn command(name: &str, script: &str, asks: &[&Self]) -> Cmd {
        command(name, script, asks)
    }

    fn answer(numbers: &[i64]) -> Result<Decision> {
        decision(numbers[0] == 1, numbers[1], numbers[2])
    }
}

/// What the script's numbers mean.
fn decision(allowed: bool, remaining: i64, after_ms: i64) -> Result<Decision> {
    let remaining = remaining.max(0) as u64;
    match after_ms {
        _ if allowed => Ok(Decision::allowed(remaining)),
        -2 => Err(somebody_elses()),
        -1 => Ok(Decision::impossible(remaining)),
        after_ms => Ok(Decision::denied(remaining, after_ms.max(0) as u64)),
    }
}

fn command(name: &str, script: &str, asks: &[&Ask]) -> Cmd {
    let mut command = cmd(name);
    command.arg(script).arg(asks.len());
    for ask in asks {
        command.arg(ask.key.as_str());
    }
    // Most calls of a batch go by few limits.
    let mut laws: Vec<&Arc<Law>> = Vec::new();
    let numbers: Vec<usize> = asks
        .iter()
        .map(|ask| {
            laws.iter().position(|law| Arc::ptr_eq(law, &ask.law)).unwrap_or_else(|| {
                laws.push(&ask.law);
                laws.len() - 1
            })
        })
        .collect();
    command.arg(laws.len());
    for law in &laws {
        command.arg(law.text.as_str()).arg(law.ttl_ms);
    }
    let terms = |(number, ask): (&usize, &&Ask)| (number + 1, ask.verb, ask.amount);
    let mut calls = numbers.iter().zip(asks).map(terms).peekable();
    // Most batches ask the same of all keys, and say so once.
    let first = calls.peek().copied();
    let is_same = calls.clone().all(|call| Some(call) == first);
    for (number, verb, amount) in calls.take(if is_same { 1 } else { asks.len() }) {
        command.arg(number).arg(verb).arg(amount);
    }
    command
}
