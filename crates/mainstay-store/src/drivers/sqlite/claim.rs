//! Who decides the fate of a queued call: the one that runs it or the one that gives up waiting.
//!
//! ```text
//! waiting ──claim──▶ running     the result will be delivered; giving up is too late
//! waiting ──abandon▶ abandoned   it will never run; the caller may say "nothing was done"
//! running ──desert─▶ deserted    nobody wants the result any more; a read may stop
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const WAITING: u8 = 0;
const RUNNING: u8 = 1;
const ABANDONED: u8 = 2;
const DESERTED: u8 = 3;

/// The state of one queued call, shared by both sides.
#[derive(Debug, Clone, Default)]
pub(super) struct Claim(Arc<AtomicU8>);

impl Claim {
    /// Takes the call for running; false when its caller is gone.
    pub(super) fn claim(&self) -> bool {
        self.change(WAITING, RUNNING)
    }

    /// Gives the call up; false when it is too late.
    pub(super) fn abandon(&self) -> bool {
        self.change(WAITING, ABANDONED)
    }

    /// Whether the caller went away while the call was running.
    pub(super) fn is_deserted(&self) -> bool {
        self.0.load(Ordering::Acquire) == DESERTED
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Gives the call up, in whatever state it is, when the caller's future is dropped.
#[derive(Debug)]
pub(super) struct AbandonOnDrop(pub(super) Claim);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        if !self.0.abandon() {
            self.0.change(RUNNING, DESERTED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_side_wins() {
        let claim = Claim::default();
        assert!(claim.claim() && !claim.abandon() && !claim.claim());
        let claim = Claim::default();
        drop(AbandonOnDrop(claim.clone()));
        assert!(!claim.claim() && !claim.is_deserted());
    }

    #[test]
    fn a_running_call_can_be_deserted() {
        let claim = Claim::default();
        assert!(claim.claim());
        drop(AbandonOnDrop(claim.clone()));
        assert!(claim.is_deserted());
    }
}
