//! How many may be at something at once: slots that are leased.
//!
//! A slot is taken for a time, and is free when that is over, whether or not whoever took it still lives. A lease has a
//! token that nobody else has, and whatever is done about a lease is done about that token: who is late with giving back
//! what was over long ago frees nobody else's slot.
//!
//! A clock that is put back by more than a second lets leases begin anew by the clock as it is now. So no lease is shorter
//! than was promised, and none lasts for ever.

use std::fmt;

/// Most slots of a key.
pub const MAX_SLOTS: u64 = 1_000;
/// Longest time that a slot is taken for at once: a day.
pub const MAX_TTL_MS: u64 = 86_400_000;
/// Clocks that are asked one after another may differ by so much without having been put back.
const WOBBLE_MS: i64 = 1_000;

/// Which lease it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u128);

impl fmt::Display for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", self.0)
    }
}

/// A slot that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Which lease it is.
    pub token: Token,
    /// When it was taken, or renewed last.
    pub since_ms: i64,
    /// For how long.
    pub ttl_ms: i64,
}

impl Lease {
    /// When it is over.
    pub fn until_ms(&self) -> i64 {
        self.since_ms.saturating_add(self.ttl_ms)
    }
}

/// What is wanted of the slots of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// Takes a slot if there is one. Asked again with the same token, it is the same slot.
    Acquire {
        /// Of the new lease.
        token: Token,
        /// For how long.
        ttl_ms: u64,
    },
    /// Lets a lease that is not over last so long from now on.
    Renew {
        /// Of the lease.
        token: Token,
        /// For how long.
        ttl_ms: u64,
    },
    /// Gives a slot back.
    Release {
        /// Of the lease.
        token: Token,
    },
    /// Tells whether there is a slot.
    Look,
}

impl Claim {
    /// Whether it leaves everything as it was.
    pub fn only_looks(self) -> bool {
        matches!(self, Self::Look)
    }
}

/// What came of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claimed {
    /// Whether the slot was taken, the lease renewed or given back; of a look, whether there is a slot.
    pub done: bool,
    /// How many slots are taken now.
    pub in_use: u64,
    /// When there will be a slot if nobody renews and nobody else asks; 0 when there is one.
    pub retry_after_ms: u64,
}

/// The slots of a key that are taken, in the order in which they were.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leases(Vec<Lease>);

impl Leases {
    /// These.
    pub fn new(leases: Vec<Lease>) -> Self {
        Self(leases)
    }

    /// All of them, also those that are over and were not looked at since.
    pub fn all(&self) -> &[Lease] {
        &self.0
    }

    /// When the last one is over; nothing when there is none.
    pub fn until_ms(&self) -> Option<i64> {
        self.0.iter().map(Lease::until_ms).max()
    }

    /// Forgets what is over; whether that is all of them.
    pub fn are_over(&mut self, now_ms: i64) -> bool {
        self.refresh(now_ms);
        self.0.is_empty()
    }

    /// Does what is wanted, where there are so many slots.
    pub fn act(&mut self, slots: u64, claim: Claim, now_ms: i64) -> Claimed {
        self.refresh(now_ms);
        let done = match claim {
            Claim::Acquire { token, ttl_ms } => {
                self.renew(token, ttl_ms, now_ms) || self.take(slots, token, ttl_ms, now_ms)
            }
            Claim::Renew { token, ttl_ms } => self.renew(token, ttl_ms, now_ms),
            Claim::Release { token } => {
                let before = self.0.len();
                self.0.retain(|lease| lease.token != token);
                self.0.len() < before
            }
            Claim::Look => (self.0.len() as u64) < slots,
        };
        Claimed { done, in_use: self.0.len() as u64, retry_after_ms: self.retry_after_ms(slots, now_ms) }
    }

    fn refresh(&mut self, now_ms: i64) {
        for lease in &mut self.0 {
            if now_ms < lease.since_ms.saturating_sub(WOBBLE_MS) {
                lease.since_ms = now_ms;
            }
        }
        self.0.retain(|lease| lease.until_ms() > now_ms);
    }

    fn renew(&mut self, token: Token, ttl_ms: u64, now_ms: i64) -> bool {
        let found = self.0.iter_mut().find(|lease| lease.token == token);
        found.map(|lease| *lease = Lease { token, since_ms: now_ms, ttl_ms: as_ms(ttl_ms) }).is_some()
    }

    fn take(&mut self, slots: u64, token: Token, ttl_ms: u64, now_ms: i64) -> bool {
        let is_room = (self.0.len() as u64) < slots;
        if is_room {
            self.0.push(Lease { token, since_ms: now_ms, ttl_ms: as_ms(ttl_ms) });
        }
        is_room
    }

    fn retry_after_ms(&self, slots: u64, now_ms: i64) -> u64 {
        // As many must end as are too many, and one more.
        let Some(ends) = (self.0.len() as u64).checked_sub(slots) else { return 0 };
        let mut left: Vec<i64> = self.0.iter().map(|lease| lease.until_ms() - now_ms).collect();
        left.sort_unstable();
        left.get(ends as usize).map_or(0, |left| (*left).max(0) as u64)
    }
}

fn as_ms(ttl_ms: u64) -> i64 {
    ttl_ms.min(MAX_TTL_MS) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Random, SeededRandom};

    fn acquire(number: u128, ttl_ms: u64) -> Claim {
        Claim::Acquire { token: Token(number), ttl_ms }
    }

    fn release(number: u128) -> Claim {
        Claim::Release { token: Token(number) }
    }

    #[test]
    fn a_slot_is_free_when_its_time_is_over_and_not_a_millisecond_earlier() {
        let mut leases = Leases::default();
        assert!(leases.act(2, acquire(1, 1_000), 0).done);
        assert!(leases.act(2, acquire(2, 3_000), 100).done);
        let denied = Claimed { done: false, in_use: 2, retry_after_ms: 1 };
        assert_eq!(leases.act(2, acquire(3, 1_000), 999), denied);
        assert!(leases.act(2, acquire(3, 1_000), 1_000).done);
        assert_eq!(
            leases.act(1, Claim::Look, 1_000).retry_after_ms,
            2_100,
            "two must end before one has room"
        );
    }

    #[test]
    fn who_is_late_frees_nobody_elses_slot() {
        let mut leases = Leases::default();
        leases.act(1, acquire(1, 1_000), 0);
        assert!(leases.act(1, acquire(2, 1_000), 1_000).done);
        assert!(!leases.act(1, release(1), 1_001).done);
        assert!(!leases.act(1, Claim::Renew { token: Token(1), ttl_ms: 9 }, 1_001).done);
        assert!(!leases.act(1, acquire(3, 1_000), 1_001).done);
        assert!(leases.act(1, release(2), 1_001).done);
        assert!(leases.act(1, acquire(3, 1_000), 1_001).done);
    }

    #[test]
    fn whatever_happens_nobody_gets_a_slot_too_many_and_none_is_lost() {
        let random = SeededRandom::new(5);
        for _ in 0..50 {
            let slots = 1 + random.below(5);
            let (mut leases, mut now_ms) = (Leases::default(), 0_i64);
            for _ in 0..400 {
                let (token, ttl_ms) = (Token(u128::from(random.below(12))), 1 + random.below(3_000));
                let before = leases.clone();
                let claim = match random.below(5) {
                    0 | 1 => Claim::Acquire { token, ttl_ms },
                    2 => Claim::Renew { token, ttl_ms },
                    3 => Claim::Release { token },
                    _ => Claim::Look,
                };
                let came = leases.act(slots, claim, now_ms);
                assert!(leases.all().len() as u64 <= slots);
                assert_eq!(came.in_use, leases.all().len() as u64);
                assert_eq!(came.retry_after_ms == 0, came.in_use < slots);
                if let Claim::Acquire { .. } = claim {
                    let held = before.all().iter().filter(|lease| lease.until_ms() > now_ms).count() as u64;
                    assert!(came.done || held >= slots);
                }
                now_ms += match random.below(8) {
                    0 => -(random.below(5_000) as i64),
                    _ => random.below(900) as i64,
                };
            }
            now_ms += 3_000 + 5_000 * 400;
            assert_eq!(leases.act(slots, Claim::Look, now_ms).in_use, 0);
        }
    }

    #[test]
    fn a_clock_that_is_put_back_makes_no_lease_shorter_and_none_last_for_ever() {
        let mut leases = Leases::default();
        leases.act(1, acquire(1, 1_000), 3_600_000);
        assert_eq!(leases.act(1, Claim::Look, 0).retry_after_ms, 1_000);
        assert!(!leases.act(1, acquire(2, 1_000), 999).done);
        assert!(leases.act(1, acquire(2, 1_000), 1_000).done);
    }
}
