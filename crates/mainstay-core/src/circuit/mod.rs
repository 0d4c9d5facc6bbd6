//! Circuits: how calls to a service that is not well are kept from being made.
//!
//! - [`machine`]: the states of a circuit and what moves it, as a pure function
//! - [`window`]: the last calls, and how many of them were bad
//! - [`settings`]: what opens a circuit and what closes it
//! - [`Circuit`]: a circuit as those see it who call through it
//!
//! Where the states are kept, and how nodes hear of them, is not known here.

pub mod machine;
pub mod settings;
pub mod window;

pub use machine::{Answer, Effect, Event, Forced, Next, Probe, Standing, State, next};
pub use settings::{Rate, Settings, SettingsError, Slow, Span, Trip};

use crate::failure::Failure;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Something that lets calls to a service through while the service is well.
pub trait Circuit: Send + Sync {
    /// Whether calls would be let through at this moment, as far as is known here.
    fn gate(&self) -> Gate;

    /// Asks before a call. An admitted call is followed by exactly one [`record`](Self::record), however it ends: it
    /// may be the one probe that decides whether others are let through again.
    fn admit(&self) -> Admission<'_>;

    /// Tells how an admitted call ended.
    fn record(&self, permit: Permit, ended: Ended<'_>);

    /// Calls `hook` whenever the gate may have changed, until it returns false. It must be quick.
    fn on_change(&self, hook: Hook);
}

/// What is called when a gate may have changed; false when that is of no interest any more.
pub type Hook = Arc<dyn Fn() -> bool + Send + Sync>;

/// Whether calls are let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// All of them.
    Open,
    /// One, if it is the first to ask.
    OneProbe,
    /// None.
    Shut,
}

/// How an admitted call ended.
#[derive(Debug, Clone, Copy)]
pub enum Ended<'a> {
    /// It returned.
    Success,
    /// It failed. A failure that stays whatever is tried is an answer of the service, and does not count against it.
    Failed(&'a Failure),
    /// Nobody waited for its end, so nothing is known of the service.
    GivenUp,
}

impl<'a, T> From<&'a Result<T, Failure>> for Ended<'a> {
    fn from(ended: &'a Result<T, Failure>) -> Self {
        match ended {
            Ok(_) => Self::Success,
            Err(failure) => Self::Failed(failure),
        }
    }
}

/// That a call was let through. Two words: it is made for every call, and most say nothing more.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Permit(Terms);

/// What is known of a call that was let through.
#[derive(Debug, Default, PartialEq, Eq)]
enum Terms {
    #[default]
    Plain,
    Measured {
        began_ms: u64,
    },
    Probe {
        run_id: Box<Box<str>>,
    },
}

impl Permit {
    /// The call is the probe.
    pub fn of_probe(run_id: Box<str>) -> Self {
        Self(Terms::Probe { run_id: Box::new(run_id) })
    }

    /// It is measured how long the call takes, on whatever clock the circuit has.
    pub fn measured_from(began_ms: u64) -> Self {
        Self(Terms::Measured { began_ms })
    }

    /// The probe that the call is, if it is one.
    pub fn probe(&self) -> Option<&str> {
        match &self.0 {
            Terms::Probe { run_id } => Some(run_id),
            _ => None,
        }
    }

    /// When it began, if that is measured.
    pub fn began_ms(&self) -> Option<u64> {
        match self.0 {
            Terms::Measured { began_ms } => Some(began_ms),
            _ => None,
        }
    }

    /// The same as [`probe`](Self::probe), to keep.
    pub fn into_probe(self) -> Option<Box<str>> {
        match self.0 {
            Terms::Probe { run_id } => Some(*run_id),
            _ => None,
        }
    }
}

/// The answer to a call: at once nearly always, and after asking others when the call may be the probe.
pub enum Admission<'a> {
    /// It is known.
    Now(Option<Result<Permit, Rejected>>),
    /// It is being asked for.
    Later(Pin<Box<dyn Future<Output = Result<Permit, Rejected>> + Send + 'a>>),
}

impl Admission<'_> {
    /// An answer that is known.
    #[inline]
    pub fn now(answer: Result<Permit, Rejected>) -> Self {
        Self::Now(Some(answer))
    }
}

impl Future for Admission<'_> {
    type Output = Result<Permit, Rejected>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Now(answer) => {
                Poll::Ready(answer.take().expect("an admission is not polled after its end"))
            }
            Self::Later(asking) => asking.as_mut().poll(context),
        }
    }
}

/// A call that was let through. It tells its circuit how it ended, also when it is dropped before: a probe that is never
/// answered for would keep the circuit waiting.
pub struct Admitted<'a> {
    circuit: &'a dyn Circuit,
    permit: Option<Permit>,
}

impl<'a> Admitted<'a> {
    /// Asks.
    pub async fn by(circuit: &'a dyn Circuit) -> Result<Self, Rejected> {
        Ok(Self::with(circuit, circuit.admit().await?))
    }

    /// A call that has its permit.
    pub fn with(circuit: &'a dyn Circuit, permit: Permit) -> Self {
        Self { circuit, permit: Some(permit) }
    }

    /// The call ended.
    pub fn record(mut self, ended: Ended<'_>) {
        if let Some(permit) = self.permit.take() {
            self.circuit.record(permit, ended);
        }
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            self.circuit.record(permit, Ended::GivenUp);
        }
    }
}

/// A call that was not let through.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("CIRCUIT_OPEN:{name}")]
pub struct Rejected {
    /// The circuit.
    pub name: Arc<str>,
    /// When calls may be let through again.
    pub retry_after_ms: u64,
}

impl From<Rejected> for Failure {
    /// A rejected call fails for now, and says for how long.
    fn from(rejected: Rejected) -> Self {
        Self::retryable(rejected.to_string()).with_retry_after_ms(rejected.retry_after_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejected_call_may_be_made_again_when_the_circuit_says() {
        let failure = Failure::from(Rejected { name: "sendgrid".into(), retry_after_ms: 30_000 });
        assert!(failure.is_retryable());
        assert_eq!(failure.retry_after_ms(), Some(30_000));
        assert_eq!(failure.message(), "CIRCUIT_OPEN:sendgrid");
    }
}
