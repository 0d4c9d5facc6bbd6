//! A clock that never goes back.

use mainstay_core::clock::Clock as _;
use mainstay_store::system::SystemClock;
use quanta::Clock;

/// The time of day when it was made, and what has passed since by the processor's own counter, which is read several
/// times faster than the system's clock.
pub(super) struct Steady {
    counter: Clock,
    began: u64,
    began_ms: i64,
}

impl Steady {
    pub(super) fn new() -> Self {
        let counter = Clock::new();
        Self { began: counter.raw(), began_ms: SystemClock.now_ms(), counter }
    }

    #[inline]
    pub(super) fn now_ms(&self) -> i64 {
        let passed_ns = self.counter.delta_as_nanos(self.began, self.counter.raw());
        self.began_ms + (passed_ns / 1_000_000) as i64
    }
}
