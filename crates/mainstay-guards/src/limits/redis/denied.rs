//! What Redis has denied, remembered until it may be tried again.

use mainstay_core::clock::Clock;
use mainstay_core::limits::{Decision, Verb};
use mainstay_store::system::SystemClock;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Most keys that are remembered. Of those beyond, Redis is asked.
const MAX_KEYS: usize = 10_000;
/// Longest that is remembered, so that a key that was reset from elsewhere is not kept waiting for hours.
const MAX_MS: i64 = 10_000;

pub(super) struct Denied {
    clock: Arc<dyn Clock>,
    keys: Mutex<HashMap<String, Entry>>,
}

struct Entry {
    cost: u64,
    remaining: u64,
    since_ms: i64,
    /// When it may be tried again.
    until_ms: i64,
}

impl Denied {
    pub(super) fn new(clock: Option<Arc<dyn Clock>>) -> Self {
        Self { clock: clock.unwrap_or_else(|| Arc::new(SystemClock)), keys: Mutex::default() }
    }

    /// What would be said again of a cost that is not smaller.
    pub(super) fn remembered(&self, key: &str, cost: u64) -> Option<Decision> {
        let mut keys = self.keys.lock();
        let entry = keys.get(key)?;
        let now_ms = self.clock.now_ms();
        // A clock that was put back is not believed either.
        if now_ms < entry.since_ms || now_ms >= entry.until_ms.min(entry.since_ms + MAX_MS) {
            keys.remove(key);
            return None;
        }
        // A larger cost has longer to wait, and only Redis knows how long.
        (cost == entry.cost).then(|| Decision::denied(entry.remaining, (entry.until_ms - now_ms) as u64))
    }

    /// Remembers a denial; forgets it when something else is done to the key.
    pub(super) fn note(&self, key: &str, verb: Verb, decision: &Decision) {
        match (verb, decision.retry_after_ms) {
            (Verb::Peek(_), _) => {}
            (Verb::Consume(cost), Some(retry_after_ms)) => self.remember(key, cost, decision, retry_after_ms),
            (Verb::Consume(_), None) => {}
            _ => drop(self.keys.lock().remove(key)),
        }
    }

    pub(super) fn clear(&self) {
        self.keys.lock().clear();
    }

    fn remember(&self, key: &str, cost: u64, decision: &Decision, retry_after_ms: u64) {
        let now_ms = self.clock.now_ms();
        let mut keys = self.keys.lock();
        if keys.len() >= MAX_KEYS {
            keys.retain(|_, entry| now_ms < entry.until_ms);
            if keys.len() >= MAX_KEYS {
                return;
            }
        }
        let until_ms = now_ms.saturating_add(i64::try_from(retry_after_ms).unwrap_or(i64::MAX));
        keys.insert(
            key.to_owned(),
            Entry { cost, remaining: decision.remaining, since_ms: now_ms, until_ms },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_core::clock::ManualClock;

    #[test]
    fn a_denial_is_remembered_until_it_may_be_tried_again() {
        let clock = Arc::new(ManualClock::at(0));
        let denied = Denied::new(Some(clock.clone()));
        denied.note("a", Verb::Consume(3), &Decision::denied(2, 1_000));
        clock.advance(400);
        assert_eq!(denied.remembered("a", 3), Some(Decision::denied(2, 600)));
        assert_eq!(denied.remembered("a", 1), None, "a smaller cost may be had");
        assert_eq!(denied.remembered("b", 3), None);
        clock.advance(600);
        assert_eq!(denied.remembered("a", 3), None);
        denied.note("a", Verb::Consume(3), &Decision::denied(2, 1_000));
        denied.note("a", Verb::Refund(1), &Decision::allowed(3));
        assert_eq!(denied.remembered("a", 3), None, "something was given back");
    }

    #[test]
    fn it_is_bounded_in_keys_and_in_time() {
        let clock = Arc::new(ManualClock::at(0));
        let denied = Denied::new(Some(clock.clone()));
        for number in 0..20_000 {
            denied.note(&number.to_string(), Verb::Consume(1), &Decision::denied(0, 3_600_000));
        }
        assert_eq!(denied.keys.lock().len(), MAX_KEYS);
        clock.advance(MAX_MS);
        assert_eq!(denied.remembered("0", 1), None);
        clock.set(-1);
        assert_eq!(denied.remembered("1", 1), None, "the clock was put back");
    }
}
