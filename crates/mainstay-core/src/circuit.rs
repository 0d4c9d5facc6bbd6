//! A circuit as those see it who call through it.
//!
//! The states, thresholds and timers of a circuit live above; whoever makes calls needs only two questions answered,
//! and is given them as this trait.

use crate::failure::Failure;

/// Something that lets calls to a service through while the service is well.
pub trait Circuit: Send + Sync {
    /// Asks before a call. An admitted call is followed by exactly one [`record`](Self::record), however it ends: it
    /// may be the one probe that decides whether others are let through again.
    fn admit(&self) -> Result<(), Rejected>;

    /// Tells how an admitted call ended.
    fn record(&self, ended: Result<(), &Failure>);
}

/// A call that was not let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the circuit is open; it may be tried again in {retry_after_ms} ms")]
pub struct Rejected {
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
        let failure = Failure::from(Rejected { retry_after_ms: 30_000 });
        assert!(failure.is_retryable());
        assert_eq!(failure.retry_after_ms(), Some(30_000));
        assert_eq!(failure.message(), "the circuit is open; it may be tried again in 30000 ms");
    }
}
