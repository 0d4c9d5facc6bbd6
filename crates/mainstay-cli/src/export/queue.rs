//! Where spans wait to be sent: never more than so many, and nobody waits to put one in.

use super::finished::Finished;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most spans that wait: some megabytes, and seconds of a busy server.
pub(super) const MAX_WAITING: usize = 8_192;
/// Most spans of a request.
pub(super) const BATCH: usize = 512;
/// How long a span waits for others.
const LINGER: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Finished>,
    dropped: u64,
    is_stopping: bool,
    /// Whether nobody sends any more.
    is_over: bool,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a span in, or drops it.
    pub(super) fn offer(&self, span: Finished) {
        let mut state = self.state();
        if state.waiting.len() >= MAX_WAITING || state.is_over {
            state.dropped += 1;
            return;
        }
        state.waiting.push_back(span);
        // The sender sleeps until there is one, and then until there are enough.
        let is_to_wake = matches!(state.waiting.len(), 1 | BATCH);
        drop(state);
        if is_to_wake {
            self.changed.notify_all();
        }
    }

    /// Waits for spans; nothing means that there are none and none will come.
    pub(super) fn take(&self) -> Vec<Finished> {
        let mut state = self.state();
        while state.waiting.is_empty() && !state.is_stopping {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let until = Instant::now() + LINGER;
        while state.waiting.len() < BATCH && !state.is_stopping {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let count = state.waiting.len().min(BATCH);
        state.waiting.drain(..count).collect()
    }

    /// Waits before a request is repeated; whether it may be, which it may not once there is no time left.
    pub(super) fn pause(&self, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        let mut state = self.state();
        while !state.is_stopping {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    /// These were not sent.
    pub(super) fn drop_spans(&self, count: usize) {
        self.state().dropped += count as u64;
    }

    pub(super) fn dropped(&self) -> u64 {
        self.state().dropped
    }

    /// Nobody sends any more: what waits is dropped.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.dropped += state.waiting.len() as u64;
        state.waiting.clear();
        state.is_over = true;
        drop(state);
        self.changed.notify_all();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.state().is_stopping
    }

    /// Lets everything be sent, and waits for that for so long.
    pub(super) fn stop(&self, within: Duration) {
        let until = Instant::now() + within;
        let mut state = self.state();
        state.is_stopping = true;
        self.changed.notify_all();
        while !state.is_over {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.dropped += std::mem::take(&mut state.waiting).len() as u64;
        state.is_over = true;
    }
}
