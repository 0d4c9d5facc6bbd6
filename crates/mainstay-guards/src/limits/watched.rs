//! What a limiter decides, counted, and whom it denies most.

use super::{Answer, Policy, RateLimiter};
use mainstay_core::limits::{Decision, Limit, Verb};
use mainstay_core::measure::{Counter, Measured, Reading};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

/// How many keys are counted at once. Whoever has more than one in so many of all denials is among them.
const MAX_COUNTED: usize = 256;

/// Counts what a limiter decides.
pub struct Watched<L> {
    limiter: L,
    figures: Arc<Figures>,
}

/// What was decided.
#[derive(Debug, Default)]
pub struct Figures {
    /// Calls that were allowed.
    pub allowed: Counter,
    /// Calls that were denied.
    pub denied: Counter,
    /// Calls that cost more than there can ever be.
    pub impossible: Counter,
    /// Calls that could not be decided.
    pub failed: Counter,
    most_denied: Mutex<HashMap<String, Tally>>,
}

/// How often a key was denied.
#[derive(Debug, Clone, Copy)]
struct Tally {
    count: u64,
    /// By how much that may be too much: what was counted of the key whose place it took.
    over: u64,
}

/// A key that was denied often.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MostDenied {
    /// The key.
    pub key: String,
    /// How often it was denied, at most.
    pub at_most: u64,
    /// How often it was denied, at least.
    pub at_least: u64,
}

impl<L: RateLimiter> Watched<L> {
    /// Counts what this limiter decides from now on.
    pub fn new(limiter: L) -> Self {
        Self { limiter, figures: Arc::default() }
    }

    /// What was decided so far.
    pub fn figures(&self) -> &Arc<Figures> {
        &self.figures
    }

    /// The limiter inside.
    pub fn inner(&self) -> &L {
        &self.limiter
    }
}

impl Figures {
    /// The keys that were denied most, the most denied first.
    pub fn most_denied(&self, count: usize) -> Vec<MostDenied> {
        let tallies = self.most_denied.lock();
        let mut all: Vec<MostDenied> = tallies
            .iter()
            .map(|(key, tally)| MostDenied {
                key: key.clone(),
                at_most: tally.count,
                at_least: tally.count - tally.over,
            })
            .collect();
        all.sort_unstable_by(|one, other| {
            other.at_most.cmp(&one.at_most).then_with(|| one.key.cmp(&other.key))
        });
        all.truncate(count);
        all
    }

    /// Counts a decision, whoever it was about.
    pub(crate) fn count(&self, decision: &Decision) {
        match decision {
            Decision { allowed: true, .. } => self.allowed.increment(),
            impossible if impossible.is_impossible() => self.impossible.increment(),
            _ => self.denied.increment(),
        }
    }

    /// Counts a decision about a key.
    pub(crate) fn record(&self, key: &str, decision: &Decision) {
        self.count(decision);
        if decision.allowed {
            return;
        }
        let mut tallies = self.most_denied.lock();
        if let Some(tally) = tallies.get_mut(key) {
            tally.count += 1;
            return;
        }
        let mut over = 0;
        if tallies.len() >= MAX_COUNTED {
            // Space-saving: the least counted gives up its place, and its count.
            let least = tallies
                .iter()
                .min_by_key(|(_, tally)| tally.count)
                .map(|(key, tally)| (key.clone(), tally.count));
            if let Some((least, count)) = least {
                tallies.remove(&least);
                over = count;
            }
        }
        tallies.insert(key.to_owned(), Tally { count: over + 1, over });
    }
}

impl Measured for Figures {
    fn measure(&self, visit: &mut dyn FnMut(&'static str, &'static str, Reading)) {
        let counter = |counter: &Counter| Reading::Counter(counter.get());
        visit("limits_allowed", "Calls that a rate limit allowed.", counter(&self.allowed));
        visit("limits_denied", "Calls that a rate limit denied.", counter(&self.denied));
        visit("limits_impossible", "Calls that cost more than their limit holds.", counter(&self.impossible));
        visit("limits_failed", "Calls that a rate limit could not decide.", counter(&self.failed));
    }
}

impl<L: RateLimiter> RateLimiter for Watched<L> {
    fn act<'a>(&'a self, key: &'a str, verb: Verb) -> Answer<'a, Decision> {
        let answer = self.limiter.act(key, verb);
        if !matches!(verb, Verb::Consume(_)) {
            return answer;
        }
        answer.inspect(move |answer| match answer {
            Ok(decision) => self.figures.record(key, decision),
            Err(_) => self.figures.failed.increment(),
        })
    }

    fn policy(&self) -> Policy {
        self.limiter.policy()
    }

    fn set_limit(&self, limit: Limit) -> Answer<'_, ()> {
        self.limiter.set_limit(limit)
    }

    fn dispose(&self) {
        self.limiter.dispose();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::memory;

    #[tokio::test]
    async fn decisions_are_counted_and_who_is_denied_most_is_known() {
        let watched = Watched::new(memory::limiter(Policy::bucket(2.0, 0.001).unwrap()));
        for _ in 0..100 {
            watched.consume("greedy", 1).await.unwrap();
        }
        for number in 0..2_000 {
            let key = format!("user {number}");
            for _ in 0..3 {
                watched.consume(&key, 1).await.unwrap();
            }
            watched.consume("greedy", 1).await.unwrap();
        }
        watched.consume("large", 3).await.unwrap();
        watched.peek("greedy", 1).await.unwrap();
        assert!(watched.consume("", 1).await.is_err());
        let figures = watched.figures();
        assert_eq!(figures.allowed.get(), 2 + 2 * 2_000);
        assert_eq!(figures.denied.get(), 98 + 2_000 + 2_000);
        assert_eq!((figures.impossible.get(), figures.failed.get()), (1, 1));
        let most = figures.most_denied(1);
        assert_eq!((most[0].key.as_str(), most[0].at_least), ("greedy", 2_098));
        assert_eq!(figures.most_denied(1_000).len(), MAX_COUNTED, "rotating keys take no more room");
    }
}
