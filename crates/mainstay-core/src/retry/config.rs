//! A policy as it is written down.

use super::breaker::{Breaker, BreakerSettings};
use super::policy::{ExponentialBackoff, FixedInterval, Jitter, LinearBackoff, NoRetry, Policy};
use crate::circuit::SettingsError;
use crate::clock::Clock;
use crate::random::Random;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Longest wait that can be written down: a day.
const MOST_DELAY_MS: u64 = 24 * 3_600_000;
/// Most retries that can be written down.
const MOST_RETRIES: u32 = 1_000;

/// The kind of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PolicyType {
    /// [`ExponentialBackoff`].
    Exponential,
    /// [`LinearBackoff`].
    Linear,
    /// [`FixedInterval`].
    Fixed,
    /// Exponential, behind a circuit: [`Breaker`].
    CircuitBreaker,
    /// [`NoRetry`].
    NoRetry,
}

impl PolicyType {
    /// The stable name, for metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exponential => "exponential",
            Self::Linear => "linear",
            Self::Fixed => "fixed",
            Self::CircuitBreaker => "circuitBreaker",
            Self::NoRetry => "noRetry",
        }
    }
}

/// How failing calls are tried again, as it is written down.
///
/// `maxRetries` counts retries after the first try; `maxAttempts` and `max_attempts` are read as the same (decision C1).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RetryConfig {
    /// The kind.
    #[serde(alias = "policy_type")]
    pub policy_type: PolicyType,
    /// Most retries.
    #[serde(alias = "maxAttempts", alias = "max_attempts")]
    pub max_retries: u32,
    /// What the waits begin with.
    pub initial_delay_ms: u64,
    /// What each wait of a linear policy adds; as long as the first one unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub increment_ms: Option<u64>,
    /// The longest wait.
    pub max_delay_ms: u64,
    /// What each wait of an exponential policy is multiplied with; 2 unless given.
    pub multiplier: Option<f64>,
    /// Whether waits are spread by a fifth.
    pub jitter_enabled: bool,
    /// Whether what is given up becomes a dead letter.
    pub dead_letter_enabled: bool,
    /// The circuit before the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub circuit_breaker: Option<BreakerSettings>,
}

/// Why a policy cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RetryConfigError {
    /// A number is outside of its range.
    #[error("{name} must be {least} to {most}")]
    OutOfRange {
        /// Which one.
        name: &'static str,
        /// Its smallest value.
        least: u64,
        /// Its largest value.
        most: u64,
    },
    /// A factor that is none.
    #[error("multiplier must be a number of 1 or more")]
    BadMultiplier,
    /// A circuit that is asked for and not described.
    #[error("policyType circuitBreaker needs circuitBreaker to say when it opens")]
    NoBreaker,
    /// The circuit's settings.
    #[error("circuitBreaker: {0}")]
    BadBreaker(#[from] SettingsError),
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            policy_type: PolicyType::Exponential,
            max_retries: 3,
            initial_delay_ms: 100,
            increment_ms: None,
            max_delay_ms: 60_000,
            multiplier: Some(2.0),
            jitter_enabled: true,
            dead_letter_enabled: true,
            circuit_breaker: None,
        }
    }
}

impl RetryConfig {
    /// For work that may take its time.
    pub fn task_tactician() -> Self {
        Self { max_retries: 5, initial_delay_ms: 200, max_delay_ms: 300_000, ..Self::default() }
    }

    /// For a service that is left alone when it is not well.
    pub fn merge_warden() -> Self {
        let breaker =
            BreakerSettings { failure_threshold: 10, recovery_timeout_ms: 300_000, success_threshold: 3 };
        Self {
            max_delay_ms: 120_000,
            multiplier: Some(1.5),
            circuit_breaker: Some(breaker),
            ..Self::default()
        }
    }

    /// For steady waits.
    pub fn spec_sentinel() -> Self {
        Self {
            policy_type: PolicyType::Linear,
            max_retries: 4,
            initial_delay_ms: 1_000,
            max_delay_ms: 600_000,
            multiplier: None,
            jitter_enabled: false,
            ..Self::default()
        }
    }

    /// Makes the policy. The clock is the circuit's.
    pub fn policy(
        &self,
        random: Arc<dyn Random>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<dyn Policy>, RetryConfigError> {
        let in_range = |name, value: u64, least, most| match (least..=most).contains(&value) {
            true => Ok(Duration::from_millis(value)),
            false => Err(RetryConfigError::OutOfRange { name, least, most }),
        };
        in_range("maxRetries", self.max_retries.into(), 0, MOST_RETRIES.into())?;
        let initial_delay = in_range("initialDelayMs", self.initial_delay_ms, 0, MOST_DELAY_MS)?;
        let max_delay = in_range("maxDelayMs", self.max_delay_ms, 0, MOST_DELAY_MS)?;
        let increment =
            self.increment_ms.map(|ms| in_range("incrementMs", ms, 0, MOST_DELAY_MS)).transpose()?;
        let multiplier = self.multiplier.unwrap_or(2.0);
        if !(multiplier.is_finite() && multiplier >= 1.0) {
            return Err(RetryConfigError::BadMultiplier);
        }
        let (max_retries, jitter) = (self.max_retries, self.jitter_enabled.then(|| Jitter::new(random)));
        let policy: Arc<dyn Policy> = match self.policy_type {
            PolicyType::Exponential | PolicyType::CircuitBreaker => {
                Arc::new(ExponentialBackoff { initial_delay, max_delay, multiplier, max_retries, jitter })
            }
            PolicyType::Linear => {
                Arc::new(LinearBackoff { initial_delay, increment, max_delay, max_retries, jitter })
            }
            PolicyType::Fixed => {
                Arc::new(FixedInterval { delay: initial_delay.min(max_delay), max_retries, jitter })
            }
            PolicyType::NoRetry => Arc::new(NoRetry),
        };
        match self.circuit_breaker {
            Some(breaker) => Ok(Arc::new(Breaker::new(policy, breaker, clock)?)),
            None if self.policy_type == PolicyType::CircuitBreaker => Err(RetryConfigError::NoBreaker),
            None => Ok(policy),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::failure::Failure;
    use crate::random::SeededRandom;

    fn made(config: &RetryConfig) -> Result<Arc<dyn Policy>, RetryConfigError> {
        config.policy(Arc::new(SeededRandom::new(1)), Arc::new(ManualClock::at(0)))
    }

    fn shape(config: &RetryConfig) -> (PolicyType, u32, u64, u64, Option<f64>, bool, bool) {
        let RetryConfig { policy_type, max_retries, initial_delay_ms, max_delay_ms, multiplier, .. } =
            *config;
        let flags = (config.jitter_enabled, config.dead_letter_enabled);
        (policy_type, max_retries, initial_delay_ms, max_delay_ms, multiplier, flags.0, flags.1)
    }

    #[test]
    fn b_093_what_is_left_out_has_its_default() {
        let config: RetryConfig = serde_json::from_str("{}").unwrap();
        assert_eq!(shape(&config), (PolicyType::Exponential, 3, 100, 60_000, Some(2.0), true, true));
        assert_eq!(config.circuit_breaker, None);
    }

    #[test]
    fn b_094_presets() {
        use PolicyType::{Exponential, Linear};
        let shape = |config: RetryConfig| shape(&config);
        assert_eq!(
            shape(RetryConfig::task_tactician()),
            (Exponential, 5, 200, 300_000, Some(2.0), true, true)
        );
        assert_eq!(shape(RetryConfig::merge_warden()), (Exponential, 3, 100, 120_000, Some(1.5), true, true));
        assert_eq!(shape(RetryConfig::spec_sentinel()), (Linear, 4, 1_000, 600_000, None, false, true));
        let breaker = RetryConfig::merge_warden().circuit_breaker.unwrap();
        assert_eq!(
            (breaker.failure_threshold, breaker.recovery_timeout_ms, breaker.success_threshold),
            (10, 300_000, 3)
        );
    }

    #[test]
    fn b_076_every_kind_becomes_a_policy() {
        let busy = Failure::retryable("busy");
        let plain = RetryConfig { jitter_enabled: false, ..RetryConfig::default() };
        for (policy_type, waits) in [
            (PolicyType::Exponential, [200, 400]),
            (PolicyType::Linear, [100, 200]),
            (PolicyType::Fixed, [100, 100]),
            (PolicyType::NoRetry, [0, 0]),
        ] {
            let policy = made(&RetryConfig { policy_type, ..plain }).unwrap();
            assert_eq!(
                [1, 2].map(|attempt| policy.delay_duration(attempt).as_millis()),
                waits,
                "{policy_type:?}"
            );
            assert_eq!(policy.should_retry(2, &busy), policy_type != PolicyType::NoRetry);
            assert!(!policy.should_retry(3, &busy));
        }
        let breaker = BreakerSettings { failure_threshold: 1, recovery_timeout_ms: 1, success_threshold: 1 };
        let behind =
            RetryConfig { policy_type: PolicyType::CircuitBreaker, circuit_breaker: Some(breaker), ..plain };
        let policy = made(&behind).unwrap();
        policy.on_failure(0, &busy);
        assert!(!policy.should_retry(1, &busy));
        let none = RetryConfig { circuit_breaker: None, ..behind };
        assert_eq!(made(&none).err(), Some(RetryConfigError::NoBreaker));
    }

    #[test]
    fn b_092_what_is_written_reads_back_under_both_names() {
        for config in [RetryConfig::default(), RetryConfig::merge_warden(), RetryConfig::spec_sentinel()] {
            let text = serde_json::to_string(&config).unwrap();
            assert_eq!(serde_json::from_str::<RetryConfig>(&text).unwrap(), config);
        }
        for name in ["maxRetries", "maxAttempts", "max_attempts"] {
            let config: RetryConfig = serde_json::from_str(&format!("{{\"{name}\":7}}")).unwrap();
            assert_eq!(config.max_retries, 7);
        }
    }

    #[test]
    fn refuses_what_makes_no_sense_and_says_which() {
        let usual = RetryConfig::default();
        for (config, reason) in [
            (RetryConfig { max_retries: 1_001, ..usual }, "maxRetries must be 0 to 1000"),
            (RetryConfig { initial_delay_ms: u64::MAX, ..usual }, "initialDelayMs must be 0 to 86400000"),
            (RetryConfig { max_delay_ms: u64::MAX, ..usual }, "maxDelayMs must be 0 to 86400000"),
            (RetryConfig { increment_ms: Some(u64::MAX), ..usual }, "incrementMs must be 0 to 86400000"),
            (RetryConfig { multiplier: Some(f64::NAN), ..usual }, "multiplier must be a number of 1 or more"),
            (RetryConfig { multiplier: Some(0.5), ..usual }, "multiplier must be a number of 1 or more"),
        ] {
            assert_eq!(made(&config).map(drop).unwrap_err().to_string(), reason);
        }
        let breaker = BreakerSettings { failure_threshold: 0, recovery_timeout_ms: 1, success_threshold: 1 };
        let refused = made(&RetryConfig { circuit_breaker: Some(breaker), ..usual }).map(drop).unwrap_err();
        assert_eq!(refused.to_string(), "circuitBreaker: failureThreshold must be 1 to 10000");
    }
}
