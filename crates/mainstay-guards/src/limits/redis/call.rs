//! What is sent to Redis, and what comes back.

use super::super::batch::Runs;
use super::super::key::fnv1a;
use super::line::{Connection, Line};
use crate::{Error, Result};
use futures_util::future::join_all;
use mainstay_core::limits::{Decision, Kind, Limit, MAX_CAPACITY, Verb};
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, cmd};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

pub(super) const SCRIPT: &str = include_str!("script.lua");
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

/// Answers calls by asking Redis.
pub(super) struct Caller {
    line: Arc<Line>,
    is_cluster: bool,
    timeout: Duration,
    hash: String,
}

impl Caller {
    pub(super) fn new(line: Arc<Line>, is_cluster: bool, timeout: Duration) -> Self {
        Self { line, is_cluster, timeout, hash: redis::Script::new(SCRIPT).get_hash().to_owned() }
    }

    pub(super) fn line(&self) -> &Arc<Line> {
        &self.line
    }

    /// Runs the script once for calls whose keys lie together.
    async fn run_together(&self, connection: &Connection, asks: &[&Ask]) -> Result<Vec<Result<Decision>>> {
        let asked = tokio::time::timeout(self.timeout, self.query(connection, asks)).await;
        let answer = asked.map_err(|_| self.line.no_answer(self.timeout))?;
        let numbers = answer.map_err(|error| self.line.failed(&error))?;
        if numbers.len() != 3 * asks.len() {
            return Err(Error::LimiterAway("Redis gave an answer that makes no sense".into()));
        }
        Ok(numbers.chunks(3).map(|answer| decision(answer[0] == 1, answer[1], answer[2])).collect())
    }

    async fn query(
        &self,
        connection: &Connection,
        asks: &[&Ask],
    ) -> std::result::Result<Vec<i64>, RedisError> {
        let answer = connection.query(&command("EVALSHA", &self.hash, asks)).await;
        match answer {
            // A Redis that was restarted, or whose scripts were flushed: this loads it again, and runs it.
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                connection.query(&command("EVAL", SCRIPT, asks)).await
            }
            answer => answer,
        }
    }

    async fn run_group(&self, connection: &Connection, asks: &[&Ask]) -> Vec<Result<Decision>> {
        self.line.figures().batch_size.record(asks.len() as u64);
        match self.run_together(connection, asks).await {
            Ok(answers) => answers,
            Err(error) => asks.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}

/// What the script's numbers mean.
fn decision(allowed: bool, remaining: i64, after_ms: i64) -> Result<Decision> {
    let remaining = remaining.max(0) as u64;
    match after_ms {
        _ if allowed => Ok(Decision::allowed(remaining)),
        -2 => Err(Error::invalid("key", "is used by somebody else in this Redis")),
        -1 => Ok(Decision::impossible(remaining)),
        after_ms => Ok(Decision::denied(remaining, after_ms.max(0) as u64)),
    }
}

impl Runs for Caller {
    type Ask = Ask;
    type Answer = Decision;

    async fn run(&self, asks: Vec<Ask>) -> Vec<Result<Decision>> {
        let connection = match self.line.connection() {
            Ok(connection) => connection,
            Err(error) => return asks.iter().map(|_| Err(error.clone())).collect(),
        };
        if !self.is_cluster {
            return self.run_group(&connection, &asks.iter().collect::<Vec<_>>()).await;
        }
        let mut groups: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (number, ask) in asks.iter().enumerate() {
            groups.entry(ask.partition).or_default().push(number);
        }
        let group = async |numbers: &Vec<usize>| {
            let group: Vec<&Ask> = numbers.iter().map(|number| &asks[*number]).collect();
            self.run_group(&connection, &group).await
        };
        let done = join_all(groups.values().map(group)).await;
        let mut answers: Vec<(usize, Result<Decision>)> =
            groups.into_values().flatten().zip(done.into_iter().flatten()).collect();
        answers.sort_unstable_by_key(|(number, _)| *number);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    fn lost(&self) -> Error {
        Error::LimiterAway("too many callers wait for Redis".into())
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
    let mut uses: HashMap<&str, u32> = HashMap::with_capacity(asks.len());
    for ask in asks {
        *uses.entry(&ask.key).or_default() += 1;
    }
    for (number, ask) in numbers.into_iter().zip(asks) {
        let is_alone = ask.verb == "c" && uses.get(ask.key.as_str()) == Some(&1);
        command.arg(number + 1).arg(if is_alone { "C" } else { ask.verb }).arg(ask.amount);
    }
    command
}
