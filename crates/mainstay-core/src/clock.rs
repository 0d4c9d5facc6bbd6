//! The clock as something one is given.

use std::sync::atomic::{AtomicI64, Ordering};

/// A source of wall-clock time.
///
/// Leases and timers are judged by the database's clock, never by this one: a node's clock may be wrong by a
/// day. On SQLite the owning process *is* the database, so there the two are the same.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since the Unix epoch.
    fn now_ms(&self) -> i64;
}

/// A clock that moves only when told to.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that stands at `now_ms`.
    pub fn at(now_ms: i64) -> Self {
        Self(AtomicI64::new(now_ms))
    }

    /// Moves the clock by `by_ms`, backwards if negative, and returns the new time.
    pub fn advance(&self, by_ms: i64) -> i64 {
        self.0.fetch_add(by_ms, Ordering::SeqCst) + by_ms
    }

    /// Puts the clock to `now_ms`.
    pub fn set(&self, now_ms: i64) {
        self.0.store(now_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::at(1_000);
        assert_eq!(clock.now_ms(), 1_000);
        assert_eq!(clock.advance(-400), 600);
        clock.set(5);
        assert_eq!(clock.now_ms(), 5);
    }
}
