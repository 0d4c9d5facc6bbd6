//! A circuit as a policy: nothing is tried again while too much fails.
//!
//! It is the [machine](crate::circuit::machine) of circuits, in memory and for whoever shares the policy. Whoever asks
//! while it is half open makes the probe with the retry that follows; so the failure that it asked about, and that is told
//! right afterwards, is not the probe's.

use super::policy::Policy;
use crate::circuit::{Answer, Event, Settings, SettingsError, Standing, State, next};
use crate::clock::Clock;
use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// When such a circuit opens and closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BreakerSettings {
    /// So many failures one after another open it.
    pub failure_threshold: u32,
    /// How long it is open.
    pub recovery_timeout_ms: u64,
    /// So many probes that succeed close it.
    pub success_threshold: u32,
}

/// Another policy behind a circuit.
pub struct Breaker {
    inner: Arc<dyn Policy>,
    settings: Settings,
    clock: Arc<dyn Clock>,
    state: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    standing: Standing,
    /// The number of the call that is the probe.
    probe_attempt: u32,
}

/// One circuit has one probe at a time, so it needs no other name.
const PROBE: &str = "probe";

impl Breaker {
    /// Puts a circuit before a policy.
    pub fn new(
        inner: Arc<dyn Policy>,
        settings: BreakerSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SettingsError> {
        let BreakerSettings { failure_threshold, recovery_timeout_ms, success_threshold } = settings;
        let settings = Settings::consecutive(failure_threshold, recovery_timeout_ms, success_threshold)?;
        Ok(Self { inner, settings, clock, state: Mutex::default() })
    }

    /// Where the circuit is.
    pub fn state(&self) -> State {
        self.memory().standing.state
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, memory: &mut Memory, event: Event) {
        memory.standing = next(&memory.standing, event, &self.settings, self.clock.now_ms()).standing;
    }
}

impl Policy for Breaker {
    fn should_retry(&self, attempt: u32, failure: &Failure) -> bool {
        if !self.inner.should_retry(attempt, failure) {
            return false;
        }
        let mut memory = self.memory();
        match memory.standing.answer(&self.settings, self.clock.now_ms()) {
            Answer::Admit => true,
            Answer::Refuse { .. } => false,
            Answer::Probe => {
                if let Some(opened_at) = memory.standing.opened_at {
                    self.apply(&mut memory, Event::Timeout { opened_at });
                }
                self.apply(&mut memory, Event::ProbeClaimed { run_id: PROBE.into() });
                memory.probe_attempt = attempt.saturating_add(1);
                true
            }
        }
    }

    fn delay_duration(&self, attempt: u32) -> Duration {
        self.inner.delay_duration(attempt)
    }

    fn on_success(&self) {
        self.inner.on_success();
        let mut memory = self.memory();
        let event = match memory.standing.probe {
            Some(_) => Event::ProbeSuccess { run_id: PROBE.into() },
            None => Event::Success,
        };
        self.apply(&mut memory, event);
    }

    fn on_failure(&self, attempt: u32, failure: &Failure) {
        self.inner.on_failure(attempt, failure);
        if !failure.is_retryable() {
            // An answer of the service, if not a welcome one.
            return;
        }
        let mut memory = self.memory();
        let event = match memory.standing.probe {
            Some(_) if memory.probe_attempt != attempt => return,
            Some(_) => Event::ProbeFailure { run_id: PROBE.into() },
            None => Event::Failure,
        };
        self.apply(&mut memory, event);
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Breaker").field("settings", &self.settings).field("state", &self.state()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::retry::ExponentialBackoff;

    fn breaker(success_threshold: u32) -> (Breaker, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(0));
        let settings =
            BreakerSettings { failure_threshold: 3, recovery_timeout_ms: 1_000, success_threshold };
        let inner = ExponentialBackoff { max_retries: 100, ..Default::default() };
        (Breaker::new(Arc::new(inner), settings, clock.clone()).unwrap(), clock)
    }

    /// Asked and told of a failure, as the executor does.
    fn fail(breaker: &Breaker, attempt: u32) -> bool {
        let busy = Failure::retryable("busy");
        let again = breaker.should_retry(attempt, &busy);
        breaker.on_failure(attempt, &busy);
        again
    }

    #[test]
    fn b_101_the_state_is_read_before_the_failure_is_counted() {
        let (breaker, _) = breaker(1);
        assert_eq!([0, 1, 2, 3].map(|attempt| fail(&breaker, attempt)), [true, true, true, false]);
        assert_eq!(breaker.state(), State::Open);
    }

    #[test]
    fn b_137_it_refuses_until_its_time_and_closes_after_enough_successes() {
        let (breaker, clock) = breaker(2);
        (0..3).for_each(|attempt| _ = fail(&breaker, attempt));
        clock.advance(999);
        assert!(!fail(&breaker, 0));
        clock.advance(1);
        assert!(fail(&breaker, 0), "the retry is the probe, and the failure before it is not its own");
        assert_eq!(breaker.state(), State::HalfOpen);
        assert!(!fail(&breaker, 7), "one at a time");
        breaker.on_success();
        assert_eq!(breaker.state(), State::HalfOpen);
        assert!(fail(&breaker, 0));
        breaker.on_success();
        assert_eq!(breaker.state(), State::Closed);
        assert_eq!([0, 1].map(|attempt| fail(&breaker, attempt)), [true; 2]);
        assert_eq!(breaker.state(), State::Closed, "counted anew");
    }

    #[test]
    fn b_137_a_probe_that_fails_opens_it_again() {
        let (breaker, clock) = breaker(1);
        (0..3).for_each(|attempt| _ = fail(&breaker, attempt));
        clock.advance(1_000);
        assert!(fail(&breaker, 0));
        assert!(!fail(&breaker, 1));
        assert_eq!(breaker.state(), State::Open);
        clock.advance(999);
        assert!(!fail(&breaker, 0));
    }

    #[test]
    fn what_stays_wrong_does_not_count() {
        let (breaker, _) = breaker(1);
        for attempt in 0..10 {
            let wrong = Failure::permanent("wrong");
            assert!(!breaker.should_retry(attempt, &wrong));
            breaker.on_failure(attempt, &wrong);
        }
        assert_eq!(breaker.state(), State::Closed);
    }
}
