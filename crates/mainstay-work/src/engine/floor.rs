//! What runs on this node, each execution with its time.
//!
//! An execution ends once: by itself, because it is to stop, or because its time is up. The last is seen to by a thread of
//! its own, the watchman: a function that blocks its thread is never asked again, so nothing of its own can end it. What
//! such a function returns later is dropped; that it still holds a thread is told until it returns.
//!
//! A thread that is held may be the one that looked after the network and the timers of all others, and nobody takes its
//! place before something comes in from outside of the runtime. So while a thread is held, the watchman comes in.

use super::settler::Done;
use crate::claim::Taken;
use crate::figures::Figures;
use crate::functions::Cancel;
use crate::next::Outcome;
use crate::settle::{Ending, Plan};
use mainstay_core::failure::{Class, Failure};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

/// A function that waits stops at once when it is told to. One that has not after this long holds its thread, and as often
/// is looked whether it has returned.
const LEAVE_WITHIN: Duration = Duration::from_millis(250);
/// How often is looked for threads that are held, while anything runs.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// One execution of an item.
pub(super) struct Execution {
    pub(super) cancel: Cancel,
    /// How long it may take, and until when that is. A mutation's time is its transaction's.
    limit: Option<(Duration, Instant)>,
    /// What its end is told with, until somebody has told it.
    ticket: Mutex<Option<Ticket>>,
    /// How often its function was entered and left: odd while it has a thread.
    turns: AtomicU64,
    /// As the watchman saw it last.
    turns_seen: AtomicU64,
    has_left: AtomicBool,
}

/// Who is told of an execution's end, and what of.
pub(super) struct Ticket {
    pub(super) batch: i64,
    pub(super) taken: Taken,
    pub(super) done: UnboundedSender<Done>,
}

impl Execution {
    /// One that is ended by whoever settles it.
    pub(super) fn of_mutation(cancel: Cancel) -> Self {
        Self::new(cancel, None, None)
    }

    /// One that begins now and may take so long.
    pub(super) fn of_action(cancel: Cancel, ticket: Ticket, timeout: Duration) -> Self {
        let until = Instant::now().checked_add(timeout);
        Self::new(cancel, Some(ticket), until.map(|until| (timeout, until)))
    }

    fn new(cancel: Cancel, ticket: Option<Ticket>, limit: Option<(Duration, Instant)>) -> Self {
        let (turns, turns_seen) = (AtomicU64::new(0), AtomicU64::new(0));
        Self {
            cancel,
            limit,
            ticket: Mutex::new(ticket),
            turns,
            turns_seen,
            has_left: AtomicBool::new(false),
        }
    }

    /// Gives a thread to its function.
    pub(super) fn turn<T>(&self, run: impl FnOnce() -> T) -> T {
        self.turns.fetch_add(1, Ordering::Relaxed);
        let came = run();
        self.turns.fetch_add(1, Ordering::Relaxed);
        came
    }

    /// Whether it has not given its thread back since it was asked last.
    fn holds_thread(&self) -> bool {
        let turns = self.turns.load(Ordering::Relaxed);
        self.turns_seen.swap(turns, Ordering::Relaxed) == turns && turns % 2 == 1
    }

    fn take_ticket(&self) -> Option<Ticket> {
        self.ticket.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Tells its end, unless somebody has.
    pub(super) fn end(&self, outcome: Outcome) {
        if let Some(ticket) = self.take_ticket() {
            ticket.tell(self.cancel.clone(), outcome);
        }
    }

    /// Its function is gone.
    pub(super) fn leave(&self) {
        self.has_left.store(true, Ordering::Release);
    }

    /// It is not this node's any more: whatever comes of it here does not count.
    fn lose(&self) {
        self.cancel.lose();
        self.end(Outcome::Lost);
    }
}

impl Ticket {
    fn tell(self, cancel: Cancel, outcome: Outcome) {
        let Self { batch, taken, done } = self;
        let ending = Ending::new(taken, Plan::Ended(outcome), cancel).prepared();
        // Nobody to tell means that the engine is gone, and others will find out.
        let _ = done.send((batch, ending));
    }
}

/// What runs here. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Floor(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    running: HashMap<Uuid, Arc<Execution>>,
    /// When the time of the first is up; nothing while there is none.
    look_at: Option<Instant>,
    is_closed: bool,
}

impl Floor {
    /// Lets the watchman begin; it ends when the floor is closed.
    pub(super) fn watch(&self, figures: Arc<Figures>) -> std::io::Result<()> {
        let runtime = Handle::current();
        let watchman = Watchman { floor: self.clone(), runtime, figures, late: Vec::new(), stuck: 0 };
        let thread = std::thread::Builder::new().name("mainstay-watchman".to_owned());
        thread.spawn(move || watchman.watch()).map(drop)
    }

    /// Nobody leaves before all who come together are in.
    pub(super) fn enter(&self) -> Entrance<'_> {
        let state = self.state();
        Entrance { look_at: state.look_at, state, changed: &self.0.1 }
    }

    /// These executions are over. The next one of the same item may have begun here already.
    pub(super) fn forget(&self, over: &[(Uuid, Cancel)]) {
        let mut state = self.state();
        for (id, cancel) in over {
            if state.running.get(id).is_some_and(|current| current.cancel.is_same(cancel)) {
                state.running.remove(id);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state().running.is_empty()
    }

    /// Tells those of these that run here that they are to stop.
    pub(super) fn ask<'a>(&self, ids: impl IntoIterator<Item = &'a Uuid>) {
        let state = self.state();
        ids.into_iter().filter_map(|id| state.running.get(id)).for_each(|one| one.cancel.ask());
    }

    /// Nothing of it is this node's any more.
    pub(super) fn lose_all(&self) {
        let lost = std::mem::take(&mut self.state().running);
        lost.into_values().for_each(|execution| execution.lose());
    }

    /// Ends the watchman, and drops what runs.
    pub(super) fn close(&self) {
        self.lose_all();
        self.state().is_closed = true;
        self.0.1.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The floor while executions begin.
pub(super) struct Entrance<'a> {
    state: MutexGuard<'a, State>,
    changed: &'a Condvar,
    /// As it was before.
    look_at: Option<Instant>,
}

impl Entrance<'_> {
    pub(super) fn add(&mut self, id: Uuid, execution: Arc<Execution>) {
        if let Some((_, until)) = execution.limit {
            self.state.look_at = Some(self.state.look_at.map_or(until, |at| at.min(until)));
        }
        self.state.running.insert(id, execution);
    }
}

impl Drop for Entrance<'_> {
    fn drop(&mut self) {
        if self.state.look_at != self.look_at {
            self.changed.notify_one();
        }
    }
}

struct Watchman {
    floor: Floor,
    runtime: Handle,
    figures: Arc<Figures>,
    /// What was ended because its time was up, and has not left.
    late: Vec<Late>,
    /// How many of them are counted as stuck.
    stuck: i64,
}

struct Late {
    execution: Arc<Execution>,
    id: Uuid,
    function: String,
    since: Instant,
    is_told: bool,
}

impl Watchman {
    fn watch(mut self) {
        let floor = self.floor.clone();
        let mut state = floor.state();
        while !state.is_closed {
            let now = Instant::now();
            let (due, is_any_held) = state.look_over(now);
            let look_at = state.look_at;
            drop(state);
            if is_any_held {
                self.runtime.spawn(std::future::ready(()));
            }
            due.into_iter().for_each(|execution| self.end(execution, now));
            self.look_after_late(now);
            let look_again = (!self.late.is_empty()).then(|| now + LEAVE_WITHIN);
            let look_at_soon = look_at.map(|at| at.min(now + LOOK_EVERY));
            let until = [look_at_soon, look_again].into_iter().flatten().min();
            state = floor.state();
            if state.is_closed || state.look_at != look_at {
                continue;
            }
            let changed = &floor.0.1;
            state = match until {
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        self.late.clear();
        self.count_stuck();
    }

    fn end(&mut self, execution: Arc<Execution>, now: Instant) {
        let (Some(ticket), Some((timeout, _))) = (execution.take_ticket(), execution.limit) else { return };
        let (id, function) = (ticket.taken.id, ticket.taken.item.function.clone());
        let outcome = match execution.cancel.is_canceled() {
            true => Outcome::Canceled,
            false => {
                let within = format!("it did not return within {} ms", timeout.as_millis());
                Outcome::Failed(Failure::new(Class::NetworkTimeout, within))
            }
        };
        execution.cancel.expire();
        ticket.tell(execution.cancel.clone(), outcome);
        self.late.push(Late { execution, id, function, since: now, is_told: false });
    }

    /// Forgets those that have left, and tells of those that do not.
    fn look_after_late(&mut self, now: Instant) {
        self.late.retain(|late| !late.execution.has_left.load(Ordering::Acquire));
        for late in self.late.iter_mut().filter(|late| !late.is_told && now >= late.since + LEAVE_WITHIN) {
            late.is_told = true;
            tracing::error!(
                work = %late.id, function = late.function,
                "a function was ended because its time is up, but it holds its thread; until it returns, that thread \
                 does nothing else"
            );
        }
        self.count_stuck();
    }

    fn count_stuck(&mut self) {
        let stuck = self.late.iter().filter(|late| late.is_told).count() as i64;
        // Other engines of this process count theirs.
        self.figures.stuck.add(stuck - self.stuck);
        self.stuck = stuck;
    }
}

impl State {
    /// Those whose time is up, and whether any has held its thread for a while; notes when the time of the next one is up.
    fn look_over(&mut self, now: Instant) -> (Vec<Arc<Execution>>, bool) {
        let (mut due, mut next, mut is_any_held) = (Vec::new(), None, false);
        if self.look_at.is_none() {
            return (due, is_any_held);
        }
        for execution in self.running.values() {
            let Some((_, until)) = execution.limit else { continue };
            is_any_held |= execution.holds_thread();
            if until <= now {
                due.push(execution.clone());
            } else {
                next = Some(next.map_or(until, |at: Instant| at.min(until)));
            }
        }
        self.look_at = next;
        (due, is_any_held)
    }
}
