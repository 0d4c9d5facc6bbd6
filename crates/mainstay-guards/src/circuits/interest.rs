//! When the keeper may rest, and who wakes it.

use std::sync::atomic::{AtomicU8, Ordering};

/// Whether anybody asks circuits here. While nobody does, the database need not be asked every second.
#[derive(Default)]
pub(super) struct Interest(AtomicU8);

/// Somebody has asked since the last look.
const ASKED: u8 = 1;
/// Nobody has, and the keeper rests.
const RESTING: u8 = 2;

impl Interest {
    #[inline]
    pub(super) fn is_known(&self) -> bool {
        self.0.load(Ordering::Relaxed) == ASKED
    }

    /// Whether the keeper rests, and does no more.
    pub(super) fn show(&self) -> bool {
        self.0.swap(ASKED, Ordering::Relaxed) == RESTING
    }

    /// Whether somebody has asked since this was last called.
    pub(super) fn take(&self) -> bool {
        self.0.swap(0, Ordering::Relaxed) == ASKED
    }

    /// Lets the keeper rest, unless somebody has asked meanwhile; whether it may.
    pub(super) fn rest(&self) -> bool {
        self.0.compare_exchange(0, RESTING, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_is_heard_at_every_moment_before_and_during_a_rest() {
        let interest = Interest::default();
        assert!(!interest.show() && interest.is_known());
        assert!(interest.take() && !interest.take());
        // Just before the keeper lies down: it must not, since nobody would wake it.
        assert!(!interest.show() && !interest.rest() && interest.take());
        assert!(interest.rest() && !interest.is_known());
        assert!(interest.show(), "whoever asks a keeper that rests wakes it");
        assert!(!interest.show() && interest.is_known(), "and does so once");
    }
}
