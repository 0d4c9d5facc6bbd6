//! Policies of the executor: whether a call is tried again, and after which wait.
//!
//! They count **retries** (decision C1): with `max_retries` 3 there are at most four calls. `attempt` is counted from 0
//! when it is asked whether to try again, and is the number of the retry, from 1, when it is asked how long to wait.

use crate::failure::Failure;
use crate::random::Random;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Whether and when a call is made again. One may be shared by many callers.
pub trait Policy: Send + Sync {
    /// Whether call number `attempt`, from 0, that failed so is made again.
    fn should_retry(&self, attempt: u32, failure: &Failure) -> bool;

    /// How long to wait before retry number `attempt`, from 1.
    fn delay_duration(&self, attempt: u32) -> Duration;

    /// A call succeeded.
    fn on_success(&self) {}

    /// Call number `attempt`, from 0, failed. It is told after having been asked.
    fn on_failure(&self, attempt: u32, failure: &Failure) {
        let _ = (attempt, failure);
    }
}

/// Spreads waits by a fifth to either side, so that those who failed together do not come back together.
#[derive(Clone)]
pub struct Jitter(Arc<dyn Random>);

impl Jitter {
    /// Jitter from a source of randomness.
    pub fn new(random: Arc<dyn Random>) -> Self {
        Self(random)
    }

    fn factor(&self) -> f64 {
        0.8 + 0.4 * self.0.unit()
    }
}

impl fmt::Debug for Jitter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Jitter")
    }
}

/// The wait in milliseconds with its jitter, never above the cap.
fn wait(ms: f64, jitter: Option<&Jitter>, max: Duration) -> Duration {
    let ms = ms * jitter.map_or(1.0, Jitter::factor);
    Duration::try_from_secs_f64(ms / 1_000.0).map_or(max, |wait| wait.min(max))
}

fn may_retry(attempt: u32, max_retries: u32, failure: &Failure) -> bool {
    failure.is_retryable() && attempt < max_retries
}

/// Every wait is longer than the one before: `initial × multiplier^n`.
#[derive(Debug, Clone)]
pub struct ExponentialBackoff {
    /// What is multiplied.
    pub initial_delay: Duration,
    /// The longest wait.
    pub max_delay: Duration,
    /// What it is multiplied with.
    pub multiplier: f64,
    /// Most retries.
    pub max_retries: u32,
    /// Whether waits are spread.
    pub jitter: Option<Jitter>,
}

impl Default for ExponentialBackoff {
    /// From 100 ms, doubling, at most 5 minutes, 5 retries; not spread.
    fn default() -> Self {
        Self {
            initial_delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(300),
            multiplier: 2.0,
            max_retries: 5,
            jitter: None,
        }
    }
}

impl Policy for ExponentialBackoff {
    fn should_retry(&self, attempt: u32, failure: &Failure) -> bool {
        may_retry(attempt, self.max_retries, failure)
    }

    fn delay_duration(&self, attempt: u32) -> Duration {
        let ms = self.initial_delay.as_secs_f64() * 1_000.0 * self.multiplier.powf(attempt.into());
        wait(ms, self.jitter.as_ref(), self.max_delay)
    }
}

/// Every wait is longer than the one before by the same time.
#[derive(Debug, Clone)]
pub struct LinearBackoff {
    /// The first wait.
    pub initial_delay: Duration,
    /// What each later one adds; as long as the first one unless given.
    pub increment: Option<Duration>,
    /// The longest wait.
    pub max_delay: Duration,
    /// Most retries.
    pub max_retries: u32,
    /// Whether waits are spread.
    pub jitter: Option<Jitter>,
}

impl Policy for LinearBackoff {
    fn should_retry(&self, attempt: u32, failure: &Failure) -> bool {
        may_retry(attempt, self.max_retries, failure)
    }

    fn delay_duration(&self, attempt: u32) -> Duration {
        let (initial, increment) = (self.initial_delay, self.increment.unwrap_or(self.initial_delay));
        let later = f64::from(attempt.saturating_sub(1));
        let ms = (initial.as_secs_f64() + later * increment.as_secs_f64()) * 1_000.0;
        wait(ms, self.jitter.as_ref(), self.max_delay)
    }
}

/// Every wait is the same.
#[derive(Debug, Clone)]
pub struct FixedInterval {
    /// The wait.
    pub delay: Duration,
    /// Most retries.
    pub max_retries: u32,
    /// Whether waits are spread.
    pub jitter: Option<Jitter>,
}

impl Policy for FixedInterval {
    fn should_retry(&self, attempt: u32, failure: &Failure) -> bool {
        may_retry(attempt, self.max_retries, failure)
    }

    fn delay_duration(&self, _attempt: u32) -> Duration {
        // Spread to both sides: the wait itself is no cap here.
        let jitter = self.jitter.as_ref();
        wait(self.delay.as_secs_f64() * 1_000.0, jitter, Duration::MAX)
    }
}

/// Nothing is tried again.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoRetry;

impl Policy for NoRetry {
    fn should_retry(&self, _attempt: u32, _failure: &Failure) -> bool {
        false
    }

    fn delay_duration(&self, _attempt: u32) -> Duration {
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Class;
    use crate::random::SeededRandom;

    fn ms(policy: &dyn Policy, attempts: impl IntoIterator<Item = u32>) -> Vec<u128> {
        attempts.into_iter().map(|attempt| policy.delay_duration(attempt).as_millis()).collect()
    }

    fn linear(increment: Option<Duration>) -> LinearBackoff {
        let (initial_delay, max_delay) = (Duration::from_secs(1), Duration::from_secs(4));
        LinearBackoff { initial_delay, increment, max_delay, max_retries: 4, jitter: None }
    }

    fn fixed(jitter: Option<Jitter>) -> FixedInterval {
        FixedInterval { delay: Duration::from_millis(500), max_retries: 3, jitter }
    }

    #[test]
    fn b_077_a_policy_is_asked_and_told_by_any_thread() {
        fn any_thread<T: Send + Sync + ?Sized>(_: &T) {}
        let policies: [Box<dyn Policy>; 3] =
            [Box::new(ExponentialBackoff::default()), Box::new(linear(None)), Box::new(fixed(None))];
        for policy in policies {
            any_thread(&*policy);
            let failure = Failure::retryable("busy");
            assert!(policy.should_retry(1, &failure));
            assert!(policy.delay_duration(1) > Duration::ZERO);
            policy.on_failure(1, &failure);
            policy.on_success();
            assert!(!policy.should_retry(1, &Failure::permanent("no")));
        }
    }

    #[test]
    fn b_078_exponential_defaults() {
        let ExponentialBackoff { initial_delay, max_delay, multiplier, max_retries, jitter } =
            Default::default();
        assert_eq!(
            (initial_delay.as_millis(), max_delay.as_secs(), multiplier, max_retries),
            (100, 300, 2.0, 5)
        );
        assert!(jitter.is_none());
    }

    #[test]
    fn b_079_exponential_waits_double() {
        let policy = ExponentialBackoff::default();
        assert_eq!(ms(&policy, [1, 2, 3]), [200, 400, 800]);
        assert_eq!(ms(&policy, [12, 2_000, u32::MAX]), [300_000; 3]);
    }

    #[test]
    fn b_080_jitter_is_a_fifth_to_either_side_and_below_the_cap() {
        let jitter = Some(Jitter::new(Arc::new(SeededRandom::new(3))));
        let policy = ExponentialBackoff { jitter: jitter.clone(), ..Default::default() };
        let waits = ms(&policy, [1; 2_000]);
        assert!(waits.iter().all(|wait| (160..=240).contains(wait)));
        assert!(waits.iter().any(|wait| *wait < 164) && waits.iter().any(|wait| *wait > 236));
        assert!(ms(&policy, [40; 500]).iter().all(|wait| *wait <= 300_000));
        let spread = ms(&fixed(jitter), [1; 500]);
        assert!(spread.iter().any(|wait| *wait > 500) && spread.iter().any(|wait| *wait < 500));
    }

    #[test]
    fn b_081_linear_waits_grow_by_the_same_time() {
        assert_eq!(ms(&linear(Some(Duration::from_millis(250))), [1, 2, 3]), [1_000, 1_250, 1_500]);
        assert_eq!(ms(&linear(None), [1, 2, 3, 9, u32::MAX]), [1_000, 2_000, 3_000, 4_000, 4_000]);
    }

    #[test]
    fn b_082_fixed_waits_are_the_same() {
        assert_eq!(ms(&fixed(None), [1, 2, 30]), [500, 500, 500]);
    }

    #[test]
    fn b_083_nothing_is_tried_again_without_retries() {
        assert!(!NoRetry.should_retry(0, &Failure::retryable("busy")));
    }

    #[test]
    fn b_084_what_stays_wrong_and_what_was_tried_often_enough_is_left() {
        let policies: [(&dyn Policy, u32); 3] =
            [(&ExponentialBackoff::default(), 5), (&linear(None), 4), (&fixed(None), 3)];
        for (policy, most) in policies {
            for class in Class::ALL {
                let failure = Failure::new(*class, "why");
                let allowed: Vec<bool> =
                    (0..7).map(|attempt| policy.should_retry(attempt, &failure)).collect();
                let expected: Vec<bool> =
                    (0..7).map(|attempt| class.is_retryable() && attempt < most).collect();
                assert_eq!(allowed, expected, "{class}");
            }
        }
    }

    #[test]
    fn b_085_many_threads_share_one_policy() {
        let jitter = Some(Jitter::new(Arc::new(SeededRandom::new(3))));
        let policy: Arc<dyn Policy> = Arc::new(ExponentialBackoff { jitter, ..Default::default() });
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    (0..1_000).for_each(|_| assert!(policy.delay_duration(1) <= Duration::from_millis(240)));
                });
            }
        });
    }
}
