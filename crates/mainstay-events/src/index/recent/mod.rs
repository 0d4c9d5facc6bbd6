//! The newest entries of the index, in memory.
//!
//! A tag that nobody had before lands at a random place of the table, and costs a page of it at every commit. So where
//! one process owns the log, a commit writes only the events; their terms are kept here, and a whole segment of them at
//! a time is merged into the table in its order (`merge`). What is here is derived from the log: after a crash it is
//! read again from its tail.
//!
//! ```text
//! 1 … merged │ merged+1 … head            │ what the running transaction adds
//! the table  │ sealed segments and active │ pending
//! ```
//! Pending entries belong to one transaction of the writer, known by its serial: they become active when it commits,
//! and are forgotten when the next one begins without that.

//!
//! - `segment`: entries of consecutive events, and what has terms of all groups among them
//! - `view`: what a lookup sees besides the table

mod segment;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use segment::Segment;
pub(super) use segment::{Shared, last_of, sorted};
pub(crate) use view::View;

use self::segment::{read, write};
use self::view::{Own, lock};
use super::kept::Kept;
use mainstay_store::Value;
use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, RwLock, RwLockWriteGuard};
use tokio::sync::Notify;

/// Events of a segment: enough for a merge to find many entries for each page of the table, few enough to be read again
/// in a moment after a crash.
pub(crate) const SEGMENT_EVENTS: usize = 131_072;

/// Where the log ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) head: u64,
    /// When the last event was committed.
    pub(crate) last_ms: i64,
}

/// The newest entries. Clones are the same.
#[derive(Clone)]
pub(crate) struct Recent {
    state: Arc<RwLock<State>>,
    merge_ended: Arc<Notify>,
}

#[derive(Default)]
struct State {
    merged: u64,
    sealed: VecDeque<Shared>,
    active: Shared,
    end: End,
    /// Which life of the log it is.
    epoch: u64,
    kept: Arc<Mutex<Kept>>,
    pending: Pending,
    is_merging: bool,
    segment_events: usize,
}

#[derive(Default)]
struct Pending {
    serial: u64,
    entries: Vec<(u64, Vec<i64>)>,
    /// The entries, once somebody else of the same transaction looks for them, and how many of them are in it.
    segment: Shared,
    findable: usize,
    /// The rows of the events.
    rows: Vec<Value>,
    end: End,
}

impl Pending {
    /// Makes all entries findable.
    fn index(&mut self) {
        let mut segment = write(&self.segment);
        for (position, terms) in &self.entries[self.findable..] {
            segment.add(*position, terms);
        }
        self.findable = self.entries.len();
    }
}

impl Recent {
    /// Begins with everything up to `merged` in the table, in segments of so many events.
    pub(crate) fn new(merged: u64, epoch: u64, segment_events: usize) -> Self {
        let end = End { head: merged, last_ms: 0 };
        let state = RwLock::new(State { merged, end, epoch, segment_events, ..State::default() });
        Self { state: Arc::new(state), merge_ended: Arc::default() }
    }

    /// Takes up an event that is committed.
    pub(crate) fn restore(&self, position: u64, terms: &[i64], end: End) {
        let mut state = self.write();
        write(&state.active).add(position, terms);
        state.end = end;
        state.seal_if_full();
    }

    /// Knows when the last event was committed.
    pub(crate) fn end_at(&self, end: End) {
        self.write().end = end;
    }

    /// Another life of the log has begun.
    pub(crate) fn begin_epoch(&self, epoch: u64) {
        self.write().epoch = epoch;
    }

    /// Forgets events that are about to be erased.
    pub(crate) fn forget(&self, positions: &[u64]) {
        lock(&read(&self.state).kept).forget(positions);
    }

    /// What is committed at this moment.
    pub(crate) fn view(&self) -> View {
        let state = read(&self.state);
        let segments = state.sealed.iter().chain([&state.active]).cloned().collect();
        View { merged: state.merged, head: state.end.head, segments, own: None }
    }

    /// What the writer's transaction `serial` sees, and where the log ends for it.
    pub(crate) fn writing(&self, serial: u64) -> (View, End) {
        let mut state = self.write();
        if state.pending.serial != serial {
            state.pending = Pending { serial, end: state.end, ..Pending::default() };
        }
        state.pending.index();
        let own = (!state.pending.entries.is_empty()).then_some(&state.pending.segment);
        let segments = state.sealed.iter().chain([&state.active]).chain(own).cloned().collect();
        let own = Some(Own { epoch: state.epoch, kept: state.kept.clone() });
        (View { merged: state.merged, head: state.pending.end.head, segments, own }, state.pending.end)
    }

    /// Notes what the writer's transaction `serial` has added.
    pub(crate) fn note(&self, serial: u64, entries: Vec<(u64, Vec<i64>)>, rows: Vec<Value>, end: End) {
        let mut state = self.write();
        if state.pending.serial == serial {
            state.pending.entries.extend(entries);
            state.pending.rows.extend(rows);
            state.pending.end = end;
        }
    }

    /// The transaction `serial` has committed.
    pub(crate) fn promote(&self, serial: u64) {
        let mut state = self.write();
        if state.pending.serial != serial || state.pending.entries.is_empty() {
            return;
        }
        let pending = std::mem::take(&mut state.pending);
        state.end = pending.end;
        {
            let mut active = write(&state.active);
            pending.entries.iter().for_each(|(position, terms)| active.add(*position, terms));
            lock(&state.kept).keep(&pending.rows);
        }
        state.seal_if_full();
    }

    /// The oldest segment that is to be merged, for one merger at a time.
    pub(super) fn begin_merge(&self) -> Option<Shared> {
        let mut state = self.write();
        if state.is_merging {
            return None;
        }
        let oldest = state.sealed.front().cloned();
        state.is_merging = oldest.is_some();
        oldest
    }

    /// Whether there is something to merge, and nobody does it.
    pub(crate) fn is_merge_due(&self) -> bool {
        let state = read(&self.state);
        !state.is_merging && !state.sealed.is_empty()
    }

    /// The oldest segment is in the table.
    pub(super) fn merged(&self, up_to: u64) {
        let mut state = self.write();
        state.merged = state.merged.max(up_to);
        while state.sealed.front().is_some_and(|oldest| read(oldest).last <= up_to) {
            state.sealed.pop_front();
        }
    }

    /// The merger is gone, done or not.
    pub(super) fn end_merge(&self) {
        self.write().is_merging = false;
        self.merge_ended.notify_waiters();
    }

    /// Ready when the merger that is at work, if there is one, is gone.
    pub(super) fn merge_ended(&self) -> impl Future<Output = ()> + use<> {
        self.merge_ended.clone().notified_owned()
    }

    /// Whether somebody merges.
    pub(super) fn is_merge_under_way(&self) -> bool {
        read(&self.state).is_merging
    }

    /// Makes everything that is committed ready to be merged.
    pub(super) fn seal(&self) {
        let mut state = self.write();
        if read(&state.active).events > 0 {
            let active = std::mem::take(&mut state.active);
            state.sealed.push_back(active);
        }
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        write(&self.state)
    }
}

impl State {
    fn seal_if_full(&mut self) {
        if read(&self.active).events >= self.segment_events {
            // The next one will be about as large; growing would copy it again and again.
            let next = Segment::with_room_for(read(&self.active).terms());
            let full = std::mem::replace(&mut self.active, Arc::new(RwLock::new(next)));
            self.sealed.push_back(full);
        }
    }
}
