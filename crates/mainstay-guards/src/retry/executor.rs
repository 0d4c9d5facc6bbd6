//! The executor of calls that may be made again.

use super::budget::Budget;
use mainstay_core::circuit::{Admitted, Circuit, Rejected};
use mainstay_core::failure::{Class, Failure};
use mainstay_core::retry::Policy;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::Instrument;

/// How long all tries and waits together may take unless somebody says otherwise.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Makes calls as a policy says. Cheap to clone; dropping the future of a call ends it wherever it is, and counts neither as
/// a success nor as a failure.
///
/// ```
/// use mainstay_core::failure::Failure;
/// use mainstay_guards::retry::{ExponentialBackoff, RetryExecutor};
/// use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// let executor = RetryExecutor::new(Arc::new(ExponentialBackoff::default()));
/// let calls = AtomicU32::new(0);
/// let value = executor
///     .execute(async |_attempt| match calls.fetch_add(1, Ordering::Relaxed) {
///         0 | 1 => Err(Failure::retryable("busy")),
///         _ => Ok("done"),
///     })
///     .await;
/// assert_eq!((value.unwrap(), calls.into_inner()), ("done", 3));
/// # });
/// ```
#[derive(Clone)]
pub struct RetryExecutor {
    policy: Arc<dyn Policy>,
    timeout: Duration,
    budget: Option<Budget>,
    circuit: Option<Arc<dyn Circuit>>,
}

/// Why a call was given up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RetryError {
    /// The time for all tries and waits is over, or would be before the next try.
    #[error("no success within {timeout_ms} ms, after {attempts} tries")]
    Timeout {
        /// The time that there was.
        timeout_ms: u64,
        /// How many tries had begun.
        attempts: u32,
        /// What the last one failed with.
        last_error: Option<Failure>,
    },
    /// The policy does not try again: often enough, or in vain.
    #[error("given up after {attempts} tries: {last_error}")]
    MaxAttemptsExceeded {
        /// How many tries there were.
        attempts: u32,
        /// What the last one failed with.
        last_error: Failure,
    },
    /// The policy would try again, and there is no budget for it.
    #[error("given up after {attempts} tries, with no budget for retries left: {last_error}")]
    BudgetExhausted {
        /// How many tries there were.
        attempts: u32,
        /// What the last one failed with.
        last_error: Failure,
    },
    /// The circuit did not let the call through, and trying again is not for the policy to say.
    #[error("given up after {attempts} tries: {rejected}")]
    CircuitOpen {
        /// How many tries there were.
        attempts: u32,
        /// What the circuit said.
        rejected: Rejected,
    },
}

impl RetryError {
    /// How many tries there were.
    pub fn attempts(&self) -> u32 {
        match self {
            Self::Timeout { attempts, .. }
            | Self::MaxAttemptsExceeded { attempts, .. }
            | Self::BudgetExhausted { attempts, .. }
            | Self::CircuitOpen { attempts, .. } => *attempts,
        }
    }

    /// The stable name of the outcome, for metrics and logs.
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::Timeout { .. } => "timeout",
            Self::MaxAttemptsExceeded { .. } => "max_attempts_exceeded",
            Self::BudgetExhausted { .. } => "budget_exhausted",
            Self::CircuitOpen { .. } => "circuit_open",
        }
    }
}

impl From<RetryError> for Failure {
    /// What the last try failed with, or what stood in the way.
    fn from(error: RetryError) -> Self {
        match error {
            RetryError::MaxAttemptsExceeded { last_error, .. }
            | RetryError::BudgetExhausted { last_error, .. } => last_error,
            RetryError::CircuitOpen { rejected, .. } => rejected.into(),
            RetryError::Timeout { .. } => Self::new(Class::NetworkTimeout, error.to_string()),
        }
    }
}

impl RetryExecutor {
    /// An executor of this policy, with five minutes for everything.
    pub fn new(policy: Arc<dyn Policy>) -> Self {
        Self { policy, timeout: TIMEOUT, budget: None, circuit: None }
    }

    /// The same with another time for all tries and waits together.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The same with a budget that retries are paid from.
    #[must_use]
    pub fn with_budget(self, budget: Budget) -> Self {
        Self { budget: Some(budget), ..self }
    }

    /// The same behind a circuit. It is asked before every try and hears how each one ended; while it refuses, nothing is
    /// tried and nothing is waited for.
    #[must_use]
    pub fn behind(self, circuit: Arc<dyn Circuit>) -> Self {
        Self { circuit: Some(circuit), ..self }
    }

    /// Makes a call until it succeeds, the policy, the budget or the circuit says no, or the time is over. `operation` is
    /// given the number of the try, from 0.
    pub async fn execute<T, Fut>(&self, mut operation: impl FnMut(u32) -> Fut) -> Result<T, RetryError>
    where
        Fut: Future<Output = Result<T, Failure>>,
    {
        let deadline = Instant::now() + self.timeout;
        let (mut attempt, mut cost) = (0, 0);
        loop {
            let span = tracing::info_span!("attempt", attempt, delay_ms = tracing::field::Empty);
            tracing::info!(parent: &span, "calling");
            let failure = match self.once(&mut operation, attempt, deadline).instrument(span.clone()).await {
                Ok(Ok(value)) => {
                    self.policy.on_success();
                    if let Some(budget) = &self.budget {
                        budget.succeed(cost);
                    }
                    return Ok(value);
                }
                Ok(Err(failure)) => failure,
                Err(rejected) => {
                    return Err(give_up(RetryError::CircuitOpen { attempts: attempt, rejected }));
                }
            };
            let again = self.policy.should_retry(attempt, &failure);
            self.policy.on_failure(attempt, &failure);
            tracing::warn!(parent: &span, error = %failure, "the call failed");
            let attempts = attempt + 1;
            if Instant::now() >= deadline {
                return Err(self.too_late(attempts, Some(failure)));
            }
            if !again {
                return Err(give_up(RetryError::MaxAttemptsExceeded { attempts, last_error: failure }));
            }
            let own = || self.policy.delay_duration(attempts);
            let delay = failure.retry_after_ms().map_or_else(own, Duration::from_millis);
            span.record("delay_ms", u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
            let Some(until) = Instant::now().checked_add(delay).filter(|until| *until < deadline) else {
                // Whoever would only wake up to find the time over need not sleep.
                return Err(self.too_late(attempts, Some(failure)));
            };
            if let Some(budget) = &self.budget {
                let Some(spent) = budget.spend(&failure) else {
                    return Err(give_up(RetryError::BudgetExhausted { attempts, last_error: failure }));
                };
                cost = spent;
            }
            tracing::info!(parent: &span, delay_ms = delay.as_millis() as u64, "waiting before the next call");
            sleep_until(until).await;
            attempt = attempts;
        }
    }

    /// One try, if the circuit lets it.
    async fn once<T, Fut>(
        &self,
        operation: &mut impl FnMut(u32) -> Fut,
        attempt: u32,
        deadline: Instant,
    ) -> Result<Result<T, Failure>, Rejected>
    where
        Fut: Future<Output = Result<T, Failure>>,
    {
        let admitted = match self.circuit.as_deref() {
            Some(circuit) => Some(Admitted::by(circuit).await?),
            None => None,
        };
        let ended = timeout_at(deadline, operation(attempt)).await;
        let ended = ended.unwrap_or_else(|_elapsed| {
            Err(Failure::new(Class::NetworkTimeout, "it did not end before the deadline of all tries"))
        });
        if let Some(admitted) = admitted {
            admitted.record((&ended).into());
        }
        Ok(ended)
    }

    fn too_late(&self, attempts: u32, last_error: Option<Failure>) -> RetryError {
        let timeout_ms = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
        give_up(RetryError::Timeout { timeout_ms, attempts, last_error })
    }
}

fn give_up(error: RetryError) -> RetryError {
    tracing::error!(attempts = error.attempts(), outcome = error.outcome(), %error, "given up");
    error
}

impl fmt::Debug for RetryExecutor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RetryExecutor")
            .field("timeout", &self.timeout)
            .field("budget", &self.budget)
            .field("circuit", &self.circuit.is_some())
            .finish_non_exhaustive()
    }
}
