//! The platform's exponential backoff: `min(initial × base^attempt × jitter, max)`, attempts counted from 0.
//!
//! Jitter is applied before the cap (decision C3), so no wait is ever longer than `max_ms`.

use crate::random::Random;

/// How long to wait before trying again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    initial_ms: f64,
    base: f64,
    max_ms: f64,
}

/// Why a backoff cannot be built or asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BackoffError {
    /// A part that must be a positive, finite number is not.
    #[error("backoff {0} must be a positive number")]
    NotPositive(&'static str),
    /// Attempts are counted 0, 1, 2, …
    #[error("backoff attempt must be a whole number, 0 or more")]
    BadAttempt,
}

impl Backoff {
    /// A backoff of `initial_ms × base^attempt`, never above `max_ms`.
    pub fn new(initial_ms: f64, base: f64, max_ms: f64) -> Result<Self, BackoffError> {
        positive("initial", initial_ms)?;
        positive("base", base)?;
        positive("max", max_ms)?;
        Ok(Self { initial_ms, base, max_ms })
    }

    /// The wait before retry number `attempt` (0-based), with a jitter factor supplied by the caller.
    pub fn delay_ms(&self, attempt: f64, jitter: f64) -> Result<u64, BackoffError> {
        positive("jitter", jitter)?;
        if !(attempt.is_finite() && attempt >= 0.0 && attempt.fract() == 0.0) {
            return Err(BackoffError::BadAttempt);
        }
        Ok((self.initial_ms * self.base.powf(attempt) * jitter).min(self.max_ms).round() as u64)
    }

    /// The wait before retry number `attempt`, with the platform's jitter: a factor uniform in `[0.5, 1.5)`.
    pub fn jittered_ms(&self, attempt: u32, random: &dyn Random) -> u64 {
        let wait = self.initial_ms * self.base.powf(f64::from(attempt)) * (0.5 + random.unit());
        wait.min(self.max_ms).round() as u64
    }
}

fn positive(what: &'static str, value: f64) -> Result<(), BackoffError> {
    if value.is_finite() && value > 0.0 { Ok(()) } else { Err(BackoffError::NotPositive(what)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SeededRandom;

    fn platform() -> Backoff {
        Backoff::new(100.0, 2.0, 30_000.0).unwrap()
    }

    #[test]
    fn b_067_doubles_from_attempt_0_and_stops_at_the_cap() {
        for (attempt, expected) in [(0.0, 100), (1.0, 200), (3.0, 800), (10.0, 30_000), (2_000.0, 30_000)] {
            assert_eq!(platform().delay_ms(attempt, 1.0), Ok(expected));
        }
    }

    #[test]
    fn b_067_jitter_is_uniform_between_half_and_one_and_a_half() {
        let random = SeededRandom::new(42);
        let waits: Vec<u64> = (0..10_000).map(|_| platform().jittered_ms(3, &random)).collect();
        assert!(waits.iter().all(|wait| (400..=1200).contains(wait)));
        let mean = waits.iter().sum::<u64>() as f64 / waits.len() as f64;
        assert!((780.0..820.0).contains(&mean), "mean {mean}");
        assert!(waits.iter().any(|wait| *wait < 420) && waits.iter().any(|wait| *wait > 1180));
        assert!(
            (0..1_000).all(|_| platform().jittered_ms(10, &random) <= 30_000),
            "the cap comes after jitter"
        );
    }

    #[test]
    fn b_068_a_constant_jitter_of_one_is_exact() {
        assert_eq!(platform().delay_ms(0.0, 1.0), Ok(100));
    }

    #[test]
    fn b_069_refuses_what_makes_no_sense() {
        for attempt in [-1.0, 0.5, f64::NAN, f64::INFINITY] {
            assert_eq!(platform().delay_ms(attempt, 1.0), Err(BackoffError::BadAttempt));
        }
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Backoff::new(bad, 2.0, 1.0), Err(BackoffError::NotPositive("initial")));
            assert_eq!(Backoff::new(1.0, bad, 1.0), Err(BackoffError::NotPositive("base")));
            assert_eq!(Backoff::new(1.0, 2.0, bad), Err(BackoffError::NotPositive("max")));
            assert_eq!(platform().delay_ms(0.0, bad), Err(BackoffError::NotPositive("jitter")));
        }
    }
}
