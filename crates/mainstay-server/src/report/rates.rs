//! How much was appended within a minute.
//!
//! Counters only grow. What a minute has brought is the difference to what they were a minute ago, as far as anybody has
//! looked then: the report does every minute.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

const MINUTE_MS: i64 = 60_000;
/// Looks that follow each other faster than this are not kept, so that there are at most some 120.
const APART_MS: i64 = 1_000;

type Counts = BTreeMap<String, u64>;

/// What counters were, lately.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<VecDeque<(i64, Counts)>>);

impl Rates {
    /// What the counters have grown by in a minute, up to `now_ms`. What is younger than a minute is told as it is.
    pub(crate) fn per_minute(&self, now_ms: i64, counts: Counts) -> Counts {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A clock that was set back knows nothing of what came later.
        seen.retain(|(at, _)| *at <= now_ms);
        while seen.get(1).is_some_and(|(at, _)| now_ms - at >= MINUTE_MS) {
            seen.pop_front();
        }
        let nothing = (now_ms, Counts::new());
        let (since, before) = seen.front().unwrap_or(&nothing);
        let elapsed = now_ms.saturating_sub(*since).max(MINUTE_MS);
        let grown = counts.iter().map(|(name, count)| {
            let by = count.saturating_sub(before.get(name).copied().unwrap_or(0));
            (name.clone(), (by as f64 * MINUTE_MS as f64 / elapsed as f64).round() as u64)
        });
        let grown = grown.collect();
        if seen.back().is_none_or(|(at, _)| now_ms - at >= APART_MS) {
            seen.push_back((now_ms, counts));
        }
        grown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(rates: &Rates, now_ms: i64, count: u64) -> u64 {
        rates.per_minute(now_ms, [("Order".to_owned(), count)].into())["Order"]
    }

    #[test]
    fn a_minute_is_the_difference_to_what_was_a_minute_ago() {
        let rates = Rates::default();
        rates.per_minute(0, Counts::new());
        assert_eq!(at(&rates, 10_000, 5), 5, "so far");
        assert_eq!(at(&rates, 60_000, 30), 30);
        assert_eq!(at(&rates, 70_000, 36), 31, "what came in the first ten seconds is over");
        assert_eq!(at(&rates, 120_000, 40), 10);
        assert_eq!(at(&rates, 360_000, 80), 10, "of forty in four minutes");
    }

    #[test]
    fn a_clock_that_is_set_back_and_many_looks_do_no_harm() {
        let rates = Rates::default();
        at(&rates, 100_000, 7);
        assert_eq!(at(&rates, 50_000, 9), 9);
        for step in 0..100_000 {
            at(&rates, 200_000 + step * 10, 10);
        }
        assert!(rates.0.lock().unwrap().len() <= 122);
    }
}
