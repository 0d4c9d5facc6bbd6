//! When work that failed is carried out again, if at all.
//!
//! A pool's policy counts **executions** (decision C1): with `maxAttempts` 1 nothing is ever repeated, with 3 there are
//! at most three runs. The wait after the n-th execution is `initialBackoffMs × base^(n−1)` with the platform's jitter,
//! so the first one is the initial backoff itself (decision C32).

use crate::backoff::Backoff;
use crate::failure::Failure;
use crate::random::Random;
use serde::{Deserialize, Serialize};

/// How often and how late work is carried out again. Only valid ones exist.
///
/// ```
/// use mainstay_core::{failure::Failure, random::SeededRandom, retry::RetryPolicy};
///
/// let policy = RetryPolicy::new(3, 250, 2.0, 30_000).unwrap();
/// let random = SeededRandom::new(1);
/// let wait = policy.next(1, &Failure::retryable("busy"), &random).unwrap();
/// assert!((125..=375).contains(&wait));
/// assert_eq!(policy.next(3, &Failure::retryable("busy"), &random), None);
/// assert_eq!(policy.next(1, &Failure::permanent("no"), &random), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub struct RetryPolicy {
    max_attempts: u32,
    initial_backoff_ms: u64,
    base: f64,
    max_backoff_ms: u64,
    backoff: Backoff,
}

/// A policy as it is written down; what is left out has its default.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Form {
    max_attempts: u32,
    initial_backoff_ms: u64,
    base: f64,
    max_backoff_ms: u64,
}

/// Why a policy was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RetryPolicyError {
    /// Work that is never carried out.
    #[error("maxAttempts counts executions and must be 1 or more; 1 never repeats")]
    NoAttempts,
    /// A number that must be positive and finite is not.
    #[error("{0} must be a positive number")]
    NotPositive(&'static str),
}

impl RetryPolicy {
    /// A policy of at most `max_attempts` executions, with waits that begin at `initial_backoff_ms`, grow by `base`
    /// and are never longer than `max_backoff_ms`.
    pub fn new(
        max_attempts: u32,
        initial_backoff_ms: u64,
        base: f64,
        max_backoff_ms: u64,
    ) -> Result<Self, RetryPolicyError> {
        if max_attempts == 0 {
            return Err(RetryPolicyError::NoAttempts);
        }
        let positive = |name, holds| if holds { Ok(()) } else { Err(RetryPolicyError::NotPositive(name)) };
        positive("initialBackoffMs", initial_backoff_ms > 0)?;
        positive("base", base.is_finite() && base > 0.0)?;
        positive("maxBackoffMs", max_backoff_ms > 0)?;
        let backoff = Backoff::new(initial_backoff_ms as f64, base, max_backoff_ms as f64)
            .map_err(|_| RetryPolicyError::NotPositive("backoff"))?;
        Ok(Self { max_attempts, initial_backoff_ms, base, max_backoff_ms, backoff })
    }

    /// The wait before the next execution, or nothing when there is none: the failure stays, or the executions are
    /// used up.
    pub fn next(&self, executions: u32, failure: &Failure, random: &dyn Random) -> Option<u64> {
        let again = failure.is_retryable() && executions < self.max_attempts;
        again.then(|| self.delay_ms(executions, failure, random))
    }

    /// The wait after so many executions. What the failing service says replaces what the policy would.
    pub fn delay_ms(&self, executions_so_far: u32, failure: &Failure, random: &dyn Random) -> u64 {
        let own = || self.backoff.jittered_ms(executions_so_far.saturating_sub(1), random);
        failure.retry_after_ms().unwrap_or_else(own)
    }

    /// Most executions.
    pub fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// The wait after the first execution, before jitter.
    pub fn initial_backoff_ms(&self) -> u64 {
        self.initial_backoff_ms
    }

    /// By how much each wait is longer than the one before.
    pub fn base(&self) -> f64 {
        self.base
    }

    /// The longest wait.
    pub fn max_backoff_ms(&self) -> u64 {
        self.max_backoff_ms
    }
}

impl Default for RetryPolicy {
    /// What a pool has when nobody says otherwise: 5 executions, from 250 ms, doubling, at most 30 s.
    fn default() -> Self {
        Self::new(5, 250, 2.0, 30_000).expect("constants that fit")
    }
}

impl Default for Form {
    fn default() -> Self {
        RetryPolicy::default().into()
    }
}

impl TryFrom<Form> for RetryPolicy {
    type Error = RetryPolicyError;

    fn try_from(form: Form) -> Result<Self, RetryPolicyError> {
        Self::new(form.max_attempts, form.initial_backoff_ms, form.base, form.max_backoff_ms)
    }
}

impl From<RetryPolicy> for Form {
    fn from(policy: RetryPolicy) -> Self {
        let RetryPolicy { max_attempts, initial_backoff_ms, base, max_backoff_ms, .. } = policy;
        Self { max_attempts, initial_backoff_ms, base, max_backoff_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Class;
    use crate::random::SeededRandom;
    use proptest::prelude::*;

    /// Draws the middle always, so that the jitter's factor is one.
    struct Middle;

    impl Random for Middle {
        fn next_u64(&self) -> u64 {
            1 << 63
        }
    }

    #[test]
    fn c_001_attempts_count_executions() {
        let busy = Failure::retryable("busy");
        let runs = |max_attempts| {
            let policy = RetryPolicy::new(max_attempts, 1, 2.0, 10).unwrap();
            1 + (1..).take_while(|executions| policy.next(*executions, &busy, &Middle).is_some()).count()
        };
        assert_eq!([runs(1), runs(3), runs(5)], [1, 3, 5]);
        assert_eq!(RetryPolicy::new(0, 1, 2.0, 10), Err(RetryPolicyError::NoAttempts));
    }

    #[test]
    fn c_032_the_first_wait_is_the_initial_one() {
        let policy = RetryPolicy::default();
        let waits: Vec<u64> =
            (1..=9).map(|run| policy.delay_ms(run, &Failure::retryable("busy"), &Middle)).collect();
        assert_eq!(waits, [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
    }

    #[test]
    fn c_003_jitter_is_half_to_one_and_a_half_and_the_cap_comes_after_it() {
        let (policy, random) = (RetryPolicy::default(), SeededRandom::new(7));
        let busy = Failure::retryable("busy");
        let waits = |run| (0..2_000).map(|_| policy.delay_ms(run, &busy, &random)).collect::<Vec<_>>();
        let first = waits(1);
        assert!(first.iter().all(|wait| (125..=375).contains(wait)));
        assert!(first.iter().any(|wait| *wait < 130) && first.iter().any(|wait| *wait > 370));
        assert!(waits(20).iter().all(|wait| *wait == 30_000));
    }

    #[test]
    fn b_084_a_failure_that_stays_is_never_tried_again() {
        for class in Class::ALL {
            let next = RetryPolicy::default().next(1, &Failure::new(*class, "why"), &Middle);
            assert_eq!(next.is_some(), class.is_retryable(), "{class}");
        }
    }

    #[test]
    fn b_091_what_the_service_says_replaces_the_policy() {
        let policy = RetryPolicy::default();
        let limited = Failure::new(Class::RateLimitExceeded, "slow down");
        assert_eq!(policy.next(1, &limited, &Middle), Some(250));
        assert_eq!(
            policy.next(4, &limited.clone().with_retry_after_ms(7), &Middle),
            Some(7),
            "also a shorter one"
        );
        let far = limited.with_retry_after_ms(90_000);
        assert_eq!(policy.next(1, &far, &Middle), Some(90_000), "and one beyond the cap");
        assert_eq!(policy.next(1, &Failure::new(Class::ProviderThrottling, "slow"), &Middle), Some(60_000));
        assert_eq!(policy.next(5, &far, &Middle), None, "but executions are used up all the same");
    }

    #[test]
    fn refuses_what_makes_no_sense_and_says_which() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(RetryPolicy::new(1, 1, bad, 1), Err(RetryPolicyError::NotPositive("base")));
        }
        assert_eq!(RetryPolicy::new(1, 0, 2.0, 1), Err(RetryPolicyError::NotPositive("initialBackoffMs")));
        assert_eq!(RetryPolicy::new(1, 1, 2.0, 0), Err(RetryPolicyError::NotPositive("maxBackoffMs")));
    }

    #[test]
    fn reads_and_writes_the_wire_form() {
        let read = serde_json::from_str::<RetryPolicy>;
        assert_eq!(read("{}").unwrap(), RetryPolicy::default());
        let three = read(r#"{"maxAttempts":3,"initialBackoffMs":250,"base":2}"#).unwrap();
        assert_eq!(three, RetryPolicy::new(3, 250, 2.0, 30_000).unwrap());
        let text = r#"{"maxAttempts":3,"initialBackoffMs":250,"base":2.0,"maxBackoffMs":30000}"#;
        assert_eq!(serde_json::to_string(&three).unwrap(), text);
        for (bad, reason) in [
            (r#"{"maxAttempts":0}"#, "maxAttempts counts executions"),
            (r#"{"base":0}"#, "base must be a positive number"),
            (r#"{"maxRetries":3}"#, "unknown field `maxRetries`"),
            (r#"{"initialBackoffMs":-1}"#, "invalid value"),
        ] {
            let error = read(bad).unwrap_err().to_string();
            assert!(error.contains(reason), "{bad}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_wait_is_beyond_the_cap_and_nothing_overflows(
            attempts in 1_u32.., initial in 1_u64.., base in 0.001_f64..1e300, cap in 1_u64..1 << 53,
            run in any::<u32>(), seed in any::<u64>(),
        ) {
            let policy = RetryPolicy::new(attempts, initial, base, cap).unwrap();
            let busy = Failure::retryable("busy");
            let next = policy.next(run, &busy, &SeededRandom::new(seed));
            prop_assert_eq!(next.is_some(), run < attempts);
            prop_assert!(next.is_none_or(|wait| wait <= cap));
        }
    }
}
