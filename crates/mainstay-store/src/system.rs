//! The clock and the randomness of the machine.

use mainstay_core::clock::Clock;
use mainstay_core::random::{Random, SeededRandom};
use std::time::{SystemTime, UNIX_EPOCH};

/// The machine's wall clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        // Before 1970 only on a machine whose clock was never set; the epoch is the honest answer there.
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
    }
}

/// The operating system's random numbers, drawn once as a seed; for jitter and ids, not for secrets.
#[derive(Debug)]
pub struct SystemRandom(SeededRandom);

impl Default for SystemRandom {
    fn default() -> Self {
        // Without entropy there is still the clock: jitter that can be guessed is better than no program.
        let seed = getrandom::u64().unwrap_or_else(|_| SystemClock.now_ms().cast_unsigned());
        Self(SeededRandom::new(seed))
    }
}

impl Random for SystemRandom {
    fn next_u64(&self) -> u64 {
        self.0.next_u64()
    }
}
