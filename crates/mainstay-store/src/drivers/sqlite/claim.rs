//! Who decides the fate of a queued call: the one that runs it or the one that gives up waiting.
//!
//! ```text
//! waiting ──claim──▶ running     the result will be delivered; giving up is too late
//! waiting ──abandon▶ abandoned   it will never run; the caller may say "nothing was done"
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const WAITING: u8 = 0;
const RUNNING: u8 = 1;
const ABANDONED: u8 = 2;

/// The state of one queued call, shared by both sides.
#[derive(Debug, Clone, Default)]
pub(super) struct Claim(Arc<AtomicU8>);

impl Claim {
    /// Takes the call for running; false when its caller is gone.
    pub(super) fn claim(&self) -> bool {
        self.leave_waiting_for(RUNNING)
    }

    /// Gives the call up; false when it is too late.
    pub(super) fn abandon(&self) -> bool {
        self.leave_waiting_for(ABANDONED)
    }

    fn leave_waiting_for(&self, next: u8) -> bool {
        self.0.compare_exchange(WAITING, next, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Abandons the call when the caller's future is dropped.
#[derive(Debug)]
pub(super) struct AbandonOnDrop(pub(super) Claim);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
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
        assert!(!claim.claim());
    }
}
