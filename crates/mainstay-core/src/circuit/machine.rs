//! The states of a circuit, and what moves it from one to another.
//!
//! | state | event | becomes | effect |
//! |---|---|---|---|
//! | closed | success | closed, nothing counted | |
//! | closed | failure below the threshold | closed, one more counted | |
//! | closed | failure that reaches the threshold | open since now | schedule_timeout |
//! | closed | tripped: a window of calls says so | open since now | schedule_timeout |
//! | open | timeout that was set when it opened | half_open | |
//! | half_open | probe_claimed, none is out | half_open, this probe is out until its lease ends | probe_started |
//! | half_open | probe_success below the threshold | half_open, one more success, none is out | |
//! | half_open | probe_success that reaches the threshold | closed, nothing counted | |
//! | half_open | probe_failure | open since now, failures kept, successes forgotten | schedule_timeout |
//! | half_open | probe_given_up | half_open, none is out | |
//! | any | forced open or closed | stands still until it is released or its time is over | |
//! | forced open | released | half_open: one probe decides | |
//! | forced closed | released | closed, nothing counted | |
//! | any | reset | closed, nothing counted, not forced | |
//! | any other pair | | unchanged | |
//!
//! In a circuit that only measures nobody asks for a probe: while it is half open, any call is one.

use super::settings::{Settings, Trip};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How long whoever is refused because a probe is out is told to wait: most calls are over by then.
const PROBE_WAIT_MS: u64 = 1_000;

/// Where a circuit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Calls are let through.
    #[default]
    Closed,
    /// Calls are refused.
    Open,
    /// One call at a time is let through, to see.
    HalfOpen,
}

impl State {
    /// The stable name: `half_open`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// What happens to a circuit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A call succeeded.
    Success,
    /// A call failed.
    Failure,
    /// Too many of the last calls failed or were slow.
    Tripped,
    /// The time of an open circuit is over.
    Timeout {
        /// When the circuit opened for which the timer was set.
        opened_at: i64,
    },
    /// Somebody wants to make the one call that is let through.
    ProbeClaimed {
        /// By which its end is recognised.
        run_id: String,
    },
    /// The probe succeeded.
    ProbeSuccess {
        /// Which probe.
        run_id: String,
    },
    /// The probe failed.
    ProbeFailure {
        /// Which probe.
        run_id: String,
    },
    /// Nobody will know how the probe would have ended.
    ProbeGivenUp {
        /// Which probe.
        run_id: String,
    },
    /// An operator decides.
    Forced(Forced),
    /// An operator lets the circuit decide again.
    Released,
    /// An operator lets it begin anew.
    Reset,
}

/// What is to be done about a transition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// A one-shot timer is needed.
    ScheduleTimeout {
        /// When it fires.
        at_ms: i64,
        /// What it must find unchanged.
        opened_at: i64,
    },
    /// The probe may be made.
    ProbeStarted {
        /// Which probe.
        run_id: String,
    },
}

/// What an operator decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Forced {
    /// Open or closed; nothing else is forced.
    pub is_open: bool,
    /// Who decided.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// Since when.
    pub at_ms: i64,
    /// Until when, if not until it is released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<i64>,
}

/// A probe that is out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// By which its end is recognised.
    pub run_id: String,
    /// When another one may be made, because this one is lost.
    pub until_ms: i64,
}

/// All that is known of a circuit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    /// Where it is.
    pub state: State,
    /// Failures since the last success.
    pub failure_count: u32,
    /// Probes that succeeded one after another.
    pub success_count: u32,
    /// When a call failed last.
    pub last_failure_at: Option<i64>,
    /// When it opened; kept while it is half open.
    pub opened_at: Option<i64>,
    /// When an open circuit becomes half open.
    pub probe_scheduled_at: Option<i64>,
    /// The probe that is out.
    pub probe: Option<Probe>,
    /// What an operator decided.
    pub forced: Option<Forced>,
}

/// Whether a call may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It may.
    Admit,
    /// It may if it claims the probe.
    Probe,
    /// It may not.
    Refuse {
        /// When to ask again.
        retry_after_ms: u64,
    },
}

/// What an event led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Next {
    /// What is known now.
    pub standing: Standing,
    /// What is to be done.
    pub effect: Option<Effect>,
}

/// Applies an event. Whatever the table does not name changes nothing.
pub fn next(current: &Standing, event: Event, settings: &Settings, now_ms: i64) -> Next {
    let mut standing = current.at(now_ms);
    let effect = match event {
        Event::Forced(forced) => {
            standing.forced = Some(forced);
            standing.probe = None;
            None
        }
        Event::Released => {
            standing.release();
            None
        }
        Event::Reset => {
            standing = Standing { last_failure_at: standing.last_failure_at, ..Standing::default() };
            None
        }
        _ if standing.forced.is_some() => None,
        event => standing.meet(event, settings, now_ms),
    };
    Next { standing, effect }
}

impl Standing {
    /// As it is at a moment: what was forced until then is over.
    #[must_use]
    pub fn at(&self, now_ms: i64) -> Self {
        let mut standing = self.clone();
        let until = standing.forced.as_ref().and_then(|forced| forced.until_ms);
        if until.is_some_and(|until| until <= now_ms) {
            standing.release();
        }
        standing
    }

    /// Where it acts as being, whoever decided it.
    pub fn effective(&self, now_ms: i64) -> State {
        let standing = self.at(now_ms);
        match &standing.forced {
            Some(forced) if forced.is_open => State::Open,
            Some(_) => State::Closed,
            None => standing.state,
        }
    }

    /// Whether a call may be made at this moment.
    pub fn answer(&self, settings: &Settings, now_ms: i64) -> Answer {
        let standing = self.at(now_ms);
        if let Some(forced) = &standing.forced {
            let left = forced.until_ms.map_or(settings.reset_timeout_ms, |until| left_ms(until, now_ms));
            return if forced.is_open { Answer::Refuse { retry_after_ms: left } } else { Answer::Admit };
        }
        if settings.metrics_only {
            return Answer::Admit;
        }
        match (standing.state, &standing.probe) {
            (State::Closed, _) => Answer::Admit,
            (State::Open, _) => match standing.probe_scheduled_at.map_or(0, |at| left_ms(at, now_ms)) {
                0 => Answer::Probe,
                // A clock that went back does not make anybody wait longer than was agreed.
                left => Answer::Refuse { retry_after_ms: left.min(settings.reset_timeout_ms) },
            },
            (State::HalfOpen, Some(probe)) if probe.until_ms > now_ms => {
                Answer::Refuse { retry_after_ms: left_ms(probe.until_ms, now_ms).min(PROBE_WAIT_MS) }
            }
            (State::HalfOpen, _) => Answer::Probe,
        }
    }

    fn meet(&mut self, event: Event, settings: &Settings, now_ms: i64) -> Option<Effect> {
        let event = match (self.state, event) {
            (State::HalfOpen, Event::Success) if settings.metrics_only => {
                return self.probe_succeeded(settings);
            }
            (State::HalfOpen, Event::Failure) if settings.metrics_only => {
                self.last_failure_at = Some(now_ms);
                return Some(self.open(settings, now_ms));
            }
            (_, event) => event,
        };
        match (self.state, event) {
            (State::Closed, Event::Success) => self.failure_count = 0,
            (State::Closed, Event::Failure) => {
                self.failure_count = self.failure_count.saturating_add(1);
                self.last_failure_at = Some(now_ms);
                if let Trip::Consecutive { failure_threshold } = settings.trip
                    && self.failure_count >= failure_threshold
                {
                    return Some(self.open(settings, now_ms));
                }
            }
            (State::Closed, Event::Tripped) => return Some(self.open(settings, now_ms)),
            (State::Open, Event::Timeout { opened_at }) if self.opened_at == Some(opened_at) => {
                self.half_open();
            }
            (State::HalfOpen, Event::ProbeClaimed { run_id }) => {
                if self.probe.as_ref().is_some_and(|probe| probe.until_ms > now_ms) {
                    return None;
                }
                let until_ms = later(now_ms, settings.probe_timeout_ms);
                self.probe = Some(Probe { run_id: run_id.clone(), until_ms });
                return Some(Effect::ProbeStarted { run_id });
            }
            (State::HalfOpen, Event::ProbeSuccess { run_id }) if self.is_out(&run_id) => {
                return self.probe_succeeded(settings);
            }
            (State::HalfOpen, Event::ProbeFailure { run_id }) if self.is_out(&run_id) => {
                self.last_failure_at = Some(now_ms);
                return Some(self.open(settings, now_ms));
            }
            (State::HalfOpen, Event::ProbeGivenUp { run_id }) if self.is_out(&run_id) => self.probe = None,
            _ => {}
        }
        None
    }

    fn is_out(&self, run_id: &str) -> bool {
        self.probe.as_ref().is_some_and(|probe| probe.run_id == run_id)
    }

    fn probe_succeeded(&mut self, settings: &Settings) -> Option<Effect> {
        self.probe = None;
        self.success_count = self.success_count.saturating_add(1);
        if self.success_count >= settings.success_threshold {
            *self = Self { last_failure_at: self.last_failure_at, ..Self::default() };
        }
        None
    }

    fn open(&mut self, settings: &Settings, now_ms: i64) -> Effect {
        let at_ms = later(now_ms, settings.reset_timeout_ms);
        self.state = State::Open;
        self.opened_at = Some(now_ms);
        self.probe_scheduled_at = Some(at_ms);
        self.probe = None;
        self.success_count = 0;
        Effect::ScheduleTimeout { at_ms, opened_at: now_ms }
    }

    fn half_open(&mut self) {
        self.state = State::HalfOpen;
        self.probe_scheduled_at = None;
        self.success_count = 0;
        self.probe = None;
    }

    fn release(&mut self) {
        let Some(forced) = self.forced.take() else { return };
        if forced.is_open {
            self.opened_at = self.opened_at.or(Some(forced.at_ms));
            self.half_open();
        } else {
            *self = Self { last_failure_at: self.last_failure_at, ..Self::default() };
        }
    }
}

fn later(now_ms: i64, by_ms: u64) -> i64 {
    now_ms.saturating_add(i64::try_from(by_ms).unwrap_or(i64::MAX))
}

fn left_ms(at_ms: i64, now_ms: i64) -> u64 {
    u64::try_from(at_ms.saturating_sub(now_ms)).unwrap_or(0)
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
