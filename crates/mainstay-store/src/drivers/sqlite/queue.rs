//! Where jobs wait for a thread.

use super::job::Job;
use crate::{Error, Result};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A queue of jobs. Its length is bounded by the gate that callers pass first.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Box<dyn Job>>,
    /// Threads asleep; waking costs a system call that is saved when there are none.
    sleepers: usize,
    is_closed: bool,
}

impl Queue {
    pub(super) fn push(&self, job: Box<dyn Job>) -> Result<()> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(Error::Closed);
        }
        state.jobs.push_back(job);
        if state.sleepers > 0 {
            self.ready.notify_one();
        }
        Ok(())
    }

    /// The next job, or nothing once the queue is closed and empty.
    pub(super) fn wait(&self) -> Option<Box<dyn Job>> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.is_closed {
                return None;
            }
            state.sleepers += 1;
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.sleepers -= 1;
        }
    }

    /// The next job, if one is there now.
    pub(super) fn next(&self) -> Option<Box<dyn Job>> {
        self.lock().jobs.pop_front()
    }

    pub(super) fn len(&self) -> usize {
        self.lock().jobs.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().jobs.is_empty()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Accepts no more; what is there is still handed out.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.ready.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
