//! Slots in the memory of one process.

use super::Time;
use crate::limits::{Answer, ConcurrencyLimiter, Slots, check_claim};
use crate::{Error, Result};
use mainstay_core::limits::leases::{Claim, Claimed, Leases};
use parking_lot::Mutex;
use std::collections::HashMap;

/// Slots in the memory of one process. At the cap on keys, those whose leases are over make room; while all are in use, new
/// keys are refused: to forget a lease would let one too many in.
pub(in crate::limits) struct MemorySlots {
    slots: Slots,
    clock: Time,
    max_keys: usize,
    keys: Mutex<Keys>,
}

struct Keys {
    leases: HashMap<Box<str>, Leases>,
    /// When it was looked last for what is over, and when something more may be.
    looked: (i64, i64),
}

impl MemorySlots {
    pub(super) fn new(slots: Slots, clock: Time, max_keys: usize) -> Self {
        let keys = Mutex::new(Keys { leases: HashMap::new(), looked: (i64::MAX, i64::MAX) });
        Self { slots, clock, max_keys, keys }
    }

    /// As [`act`](ConcurrencyLimiter::act), without a future.
    pub(in crate::limits) fn act_now(&self, key: &str, claim: Claim) -> Result<Claimed> {
        check_claim(key, claim)?;
        let (now_ms, slots) = (self.clock.now_ms(), self.slots.count());
        let mut keys = self.keys.lock();
        if let Some(leases) = keys.leases.get_mut(key) {
            let claimed = leases.act(slots, claim, now_ms);
            if leases.all().is_empty() {
                keys.leases.remove(key);
            }
            return Ok(claimed);
        }
        let mut leases = Leases::default();
        let claimed = leases.act(slots, claim, now_ms);
        if !leases.all().is_empty() {
            keys.make_room(self.max_keys, now_ms)?;
            keys.leases.insert(key.into(), leases);
        }
        Ok(claimed)
    }
}

impl Keys {
    fn make_room(&mut self, max_keys: usize, now_ms: i64) -> Result<()> {
        if self.leases.len() < max_keys {
            return Ok(());
        }
        // Also when the clock was put back: leases then last as long as they did, from now on.
        if now_ms < self.looked.0 || now_ms >= self.looked.1 {
            self.leases.retain(|_, leases| !leases.are_over(now_ms));
            let first = self.leases.values().filter_map(Leases::until_ms).min();
            self.looked = (now_ms, first.unwrap_or(now_ms));
        }
        match self.leases.len() < max_keys {
            true => Ok(()),
            false => Err(Error::TooManyHeld(max_keys)),
        }
    }
}

impl ConcurrencyLimiter for MemorySlots {
    fn act<'a>(&'a self, key: &'a str, claim: Claim) -> Answer<'a, Claimed> {
        Answer::now(self.act_now(key, claim))
    }

    fn slots(&self) -> Slots {
        self.slots.clone()
    }
}
