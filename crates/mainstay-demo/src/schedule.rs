//! When the provider of payments is well, slow and down: a cycle that begins anew.
//!
//! ```text
//! 0 %            30 %   40 %         65 %              100 %
//! │ well         │ slow │ down       │ well            │
//! ```
//!
//! Everything else that takes time in the demo is a share of the same cycle, so that a test can have a short one.

use std::time::Duration;

/// How the provider is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weather {
    /// It answers at once.
    Well,
    /// It answers, but takes its time.
    Slow,
    /// It does not do what it is asked, or does and says nothing of it.
    Down,
}

/// In hundredths of a cycle.
const SLOW_FROM: u128 = 30;
const DOWN_FROM: u128 = 40;
const WELL_FROM: u128 = 65;

/// The cycle.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    cycle: Duration,
}

impl Schedule {
    pub(super) fn new(cycle: Duration) -> Self {
        Self { cycle }
    }

    /// How the provider is so long after it began.
    pub(super) fn at(&self, elapsed: Duration) -> Weather {
        let cycle = self.cycle.as_micros().max(1);
        match elapsed.as_micros() % cycle * 100 / cycle {
            0..SLOW_FROM => Weather::Well,
            SLOW_FROM..DOWN_FROM => Weather::Slow,
            DOWN_FROM..WELL_FROM => Weather::Down,
            _ => Weather::Well,
        }
    }

    /// One of so many parts of a cycle.
    pub(super) fn part(&self, parts: u32) -> Duration {
        self.cycle / parts
    }

    /// How long an answer takes that is slow.
    pub(super) fn slowness(&self) -> Duration {
        self.part(100)
    }

    /// How long the circuit stays open before it is seen whether the provider is well: a few times while it is down.
    pub(super) fn reset(&self) -> Duration {
        self.part(13)
    }

    /// How long a call waits before it is made a second time.
    pub(super) fn backoff(&self) -> Duration {
        self.part(200)
    }

    /// How long the operator watches a provider that is well again before the letters are tried again: long enough for
    /// somebody to be faster.
    pub(super) fn patience(&self) -> Duration {
        self.part(8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_well_slow_down_and_well_again_and_begins_anew() {
        let schedule = Schedule::new(Duration::from_secs(40));
        let at = |seconds| schedule.at(Duration::from_secs(seconds));
        for (seconds, weather) in [
            (0, Weather::Well),
            (11, Weather::Well),
            (12, Weather::Slow),
            (16, Weather::Down),
            (25, Weather::Down),
            (26, Weather::Well),
            (39, Weather::Well),
            (52, Weather::Slow),
            (56, Weather::Down),
        ] {
            assert_eq!(at(seconds), weather, "after {seconds} s");
        }
    }

    #[test]
    fn within_a_minute_a_circuit_opens_is_probed_in_vain_and_closes() {
        let schedule = Schedule::new(Duration::from_secs(40));
        let down = Duration::from_secs(10);
        assert!(schedule.reset() * 2 < down, "at least two probes fail");
        assert!(Duration::from_secs(26) + schedule.reset() * 2 < Duration::from_secs(60));
    }
}
