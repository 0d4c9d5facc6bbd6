//! Where jobs wait for a thread.

use super::job::Job;
use crate::figures::Figures;
use crate::{Error, Result};
use mainstay_core::measure::Gauge;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A queue of jobs. Its length is bounded by the gate that callers pass first.
pub(super) struct Queue {
    /// Tells how many wait.
    length: fn(&Figures) -> &Gauge,
    figures: Arc<Figures>,
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Threads asleep; waking costs a system call that is saved when there are none.
    sleepers: usize,
    is_closed: bool,
}

impl Queue {
    pub(super) fn new(figures: &Arc<Figures>, length: fn(&Figures) -> &Gauge) -> Self {
        Self { length, figures: figures.clone(), state: Mutex::default(), ready: Condvar::new() }
    }

    pub(super) fn push(&self, job: Job) -> Result<()> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(Error::Closed);
        }
        state.jobs.push_back(job);
        self.tell(&state);
        if state.sleepers > 0 {
            self.ready.notify_one();
        }
        Ok(())
    }

    /// The next job, or nothing once the queue is closed and empty.
    pub(super) fn wait(&self) -> Option<Job> {
        let mut state = self.wait_for_job();
        let job = state.jobs.pop_front();
        self.tell(&state);
        job
    }

    /// Waits for a job without taking it; false once the queue is closed and empty. Before it sleeps it looks out for
    /// one for a moment, since falling asleep and being woken takes longer than that.
    pub(super) fn is_filled(&self, moment: Duration) -> bool {
        let began = Instant::now();
        while (self.length)(&self.figures).get() == 0 && began.elapsed() < moment {
            std::thread::yield_now();
        }
        !self.wait_for_job().jobs.is_empty()
    }

    fn wait_for_job(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while state.jobs.is_empty() && !state.is_closed {
            state.sleepers += 1;
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.sleepers -= 1;
        }
        state
    }

    /// The next job, if one is there now.
    pub(super) fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        let job = state.jobs.pop_front();
        self.tell(&state);
        job
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

    fn tell(&self, state: &State) {
        (self.length)(&self.figures).set(state.jobs.len() as i64);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
