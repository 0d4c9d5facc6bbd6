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

use super::kept::Kept;
use super::lookup::Groups;
use mainstay_store::Value;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
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

pub(super) type Shared = Arc<RwLock<Segment>>;

/// Entries of consecutive events.
#[derive(Default)]
pub(crate) struct Segment {
    events: usize,
    last: u64,
    postings: HashMap<i64, Postings, BuildHasherDefault<TermHasher>>,
}

/// Most terms are of one event.
enum Postings {
    One(u64),
    Many(Vec<u64>),
}

impl Postings {
    fn as_slice(&self) -> &[u64] {
        match self {
            Self::One(position) => std::slice::from_ref(position),
            Self::Many(positions) => positions,
        }
    }

    fn push(&mut self, position: u64) {
        match self {
            Self::One(first) => *self = Self::Many(vec![*first, position]),
            Self::Many(positions) => positions.push(position),
        }
    }
}

/// Terms are hashes already.
#[derive(Default)]
pub(crate) struct TermHasher(u64);

impl Hasher for TermHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_i64(&mut self, term: i64) {
        // The kind stands in the first bits, which the map uses most.
        self.0 = (term as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Segment {
    fn with_room_for(terms: usize) -> Self {
        let postings = HashMap::with_capacity_and_hasher(terms, BuildHasherDefault::default());
        Self { postings, ..Self::default() }
    }

    pub(crate) fn add(&mut self, position: u64, terms: &[i64]) {
        for term in terms {
            self.postings
                .entry(*term)
                .and_modify(|postings| postings.push(position))
                .or_insert(Postings::One(position));
        }
        self.events += 1;
        self.last = self.last.max(position);
    }

    pub(crate) fn positions(&self, term: i64) -> &[u64] {
        self.postings.get(&term).map_or(&[], Postings::as_slice)
    }

    /// Every entry, in the order of the table.
    fn sorted(&self) -> Vec<(i64, u64)> {
        let mut entries = Vec::with_capacity(self.postings.len() + self.events);
        for (term, postings) in &self.postings {
            entries.extend(postings.as_slice().iter().map(|position| (*term, *position)));
        }
        entries.sort_unstable();
        entries
    }
}

/// What a lookup sees besides the table.
#[derive(Clone, Default)]
pub(crate) struct View {
    /// Up to here the table is whole; beyond, it must not be believed.
    pub(super) merged: u64,
    /// Up to here the view is whole.
    pub(crate) head: u64,
    segments: Vec<Shared>,
    own: Option<Own>,
}

/// What only the writer may rely on, since it is where the log ends.
#[derive(Clone)]
struct Own {
    epoch: u64,
    kept: Arc<Mutex<Kept>>,
}

impl View {
    /// Everything is in the table.
    pub(crate) fn table() -> Self {
        Self { merged: i64::MAX as u64, head: i64::MAX as u64, segments: Vec::new(), own: None }
    }

    /// Which life of the log it is, where the view is the end of it.
    pub(crate) fn epoch(&self) -> Option<u64> {
        self.own.as_ref().map(|own| own.epoch)
    }

    /// The newest events, where it is sure that nobody changes them meanwhile.
    pub(super) fn kept(&self) -> Option<MutexGuard<'_, Kept>> {
        self.own.as_ref().map(|own| lock(&own.kept))
    }

    /// Whether everything is.
    pub(crate) fn is_table(&self) -> bool {
        self.merged == i64::MAX as u64
    }

    /// The newest position of a term in `(after, most]`.
    pub(super) fn newest(&self, term: i64, after: u64, most: u64) -> Option<u64> {
        self.segments.iter().rev().find_map(|segment| {
            let segment = read(segment);
            let positions = within(segment.positions(term), after.max(self.merged), most);
            positions.last().copied()
        })
    }

    /// The newest position in `(after, most]` that has a term of every group.
    pub(super) fn newest_in(&self, groups: &Groups, after: u64, most: u64) -> Option<u64> {
        let after = after.max(self.merged);
        self.segments.iter().rev().find_map(|segment| read(segment).last_in(groups, after, most))
    }

    /// The first positions in `(after, most]` that have a term of every group, in order.
    pub(super) fn first_in(&self, groups: &Groups, after: u64, most: u64, limit: usize) -> Vec<u64> {
        let mut after = after.max(self.merged);
        let mut found = Vec::new();
        for segment in &self.segments {
            let segment = read(segment);
            while found.len() < limit
                && let Some(position) = segment.next_in(groups, after, most)
            {
                found.push(position);
                after = position;
            }
        }
        found
    }
}

impl View {
    /// The last positions in `(after, most]` that have a term of every group, the last first.
    pub(super) fn last_in(&self, groups: &Groups, after: u64, mut most: u64, limit: usize) -> Vec<u64> {
        let after = after.max(self.merged);
        let mut found = Vec::new();
        for segment in self.segments.iter().rev() {
            let segment = read(segment);
            while found.len() < limit
                && let Some(position) = segment.last_in(groups, after, most)
            {
                found.push(position);
                most = position - 1;
            }
        }
        found
    }
}

/// Groups are intersected by leaping, as in the table: a step costs the logarithm of a list, however many are in it.
impl Segment {
    /// The last position in `(after, most]` that has a term of every group.
    fn last_in(&self, groups: &Groups, after: u64, mut most: u64) -> Option<u64> {
        // Every event is meant then, which is nobody's question to an index.
        if groups.is_everything() {
            return None;
        }
        loop {
            let last = |term: &i64| within(self.positions(*term), after, most).last().copied();
            let (mut nearest, mut farthest) = (0, u64::MAX);
            for group in groups.iter() {
                let place = group.iter().filter_map(last).max()?;
                (nearest, farthest) = (nearest.max(place), farthest.min(place));
            }
            if nearest == farthest {
                return Some(nearest);
            }
            most = farthest;
        }
    }

    /// The first position in `(after, most]` that has a term of every group.
    fn next_in(&self, groups: &Groups, mut after: u64, most: u64) -> Option<u64> {
        // Every event is meant then, which is nobody's question to an index.
        if groups.is_everything() {
            return None;
        }
        loop {
            let first = |term: &i64| within(self.positions(*term), after, most).first().copied();
            let (mut nearest, mut farthest) = (u64::MAX, 0);
            for group in groups.iter() {
                let place = group.iter().filter_map(first).min()?;
                (nearest, farthest) = (nearest.min(place), farthest.max(place));
            }
            if nearest == farthest {
                return Some(nearest);
            }
            after = farthest - 1;
        }
    }
}

/// The part of a sorted list that lies in `(after, most]`.
fn within(positions: &[u64], after: u64, most: u64) -> &[u64] {
    let from = positions.partition_point(|position| *position <= after);
    let to = positions.partition_point(|position| *position <= most);
    positions.get(from..to).unwrap_or_default()
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
            let next = Segment::with_room_for(read(&self.active).postings.len());
            let full = std::mem::replace(&mut self.active, Arc::new(RwLock::new(next)));
            self.sealed.push_back(full);
        }
    }
}

/// The last position of a segment.
pub(super) fn last_of(segment: &Shared) -> u64 {
    read(segment).last
}

/// The entries of a segment, in the order of the table.
pub(super) fn sorted(segment: &Shared) -> Vec<(i64, u64)> {
    read(segment).sorted()
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn groups(all_of: &[&[i64]]) -> Groups {
        all_of.iter().fold(Groups::default(), |groups, any_of| groups.and(any_of.to_vec()))
    }

    fn end(head: u64) -> End {
        End { head, last_ms: 0 }
    }

    #[test]
    fn what_is_pending_is_seen_by_its_transaction_only_and_forgotten_with_it() {
        let recent = Recent::new(0, 1, SEGMENT_EVENTS);
        let (view, _) = recent.writing(7);
        assert_eq!(view.newest(1, 0, 99), None);
        recent.note(7, vec![(1, vec![1, 2])], Vec::new(), end(1));
        assert_eq!(recent.writing(7).0.newest(1, 0, 99), Some(1));
        assert_eq!(recent.view().newest(1, 0, 99), None, "not committed");
        // The next transaction begins without a commit of the one before.
        assert_eq!(recent.writing(8).0.newest(1, 0, 99), None);
        recent.promote(7);
        assert_eq!(recent.view().newest(1, 0, 99), None, "undone");
        recent.note(8, vec![(1, vec![3])], Vec::new(), end(1));
        recent.promote(8);
        recent.promote(8);
        assert_eq!((recent.view().newest(3, 0, 99), recent.view().head), (Some(1), 1));
    }

    #[test]
    fn groups_are_intersected() {
        let recent = Recent::new(10, 1, SEGMENT_EVENTS);
        for position in 11..=40 {
            let terms = [position as i64 % 2, 10 + position as i64 % 3, 100];
            recent.restore(position, &terms, end(position));
        }
        let view = recent.view();
        assert_eq!(view.first_in(&groups(&[&[0], &[10]]), 0, 99, 3), [12, 18, 24]);
        assert_eq!(view.newest_in(&groups(&[&[0], &[10]]), 0, 35), Some(30));
        assert_eq!(view.newest_in(&groups(&[&[0, 1], &[10]]), 30, 99), Some(39));
        assert_eq!(view.newest_in(&groups(&[&[0], &[77]]), 0, 99), None);
        assert_eq!(view.newest(100, 0, 99), Some(40));
        assert_eq!(view.first_in(&groups(&[&[100]]), 38, 99, 9), [39, 40]);
    }

    #[test]
    fn a_full_segment_is_sealed_and_leaves_when_it_is_merged() {
        let recent = Recent::new(0, 1, SEGMENT_EVENTS);
        let count = SEGMENT_EVENTS as u64 + 5;
        for position in 1..=count {
            recent.restore(position, &[7, -(position as i64)], end(position));
        }
        let before = recent.view();
        assert!(recent.is_merge_due());
        let segment = recent.begin_merge().unwrap();
        assert!(recent.begin_merge().is_none() && !recent.is_merge_due(), "one merger at a time");
        let entries = sorted(&segment);
        assert!(entries.is_sorted() && entries.len() == 2 * SEGMENT_EVENTS);
        recent.merged(last_of(&segment));
        recent.end_merge();
        assert_eq!(recent.view().first_in(&groups(&[&[7]]), 0, count, 2), [count - 4, count - 3]);
        // Who looked before goes on seeing what was there.
        assert_eq!(before.first_in(&groups(&[&[7]]), 0, count, 2), [1, 2]);
    }

    proptest! {
        #[test]
        fn leaping_finds_what_a_scan_finds(
            events in proptest::collection::vec(proptest::collection::btree_set(0_i64..6, 0..5), 1..60),
            wanted in proptest::collection::vec(proptest::collection::vec(0_i64..7, 1..3), 1..4),
            after in 0_u64..60, most in 0_u64..70,
        ) {
            let recent = Recent::new(0, 1, 16);
            for (position, terms) in (1..).zip(&events) {
                recent.restore(position, &terms.iter().copied().collect::<Vec<_>>(), end(position));
            }
            let groups = wanted.iter().fold(Groups::default(), |groups, any_of| groups.and(any_of.clone()));
            let is_meant = |terms: &std::collections::BTreeSet<i64>| {
                wanted.iter().all(|any_of| any_of.iter().any(|term| terms.contains(term)))
            };
            let scanned: Vec<u64> = (1..).zip(&events)
                .filter(|(position, terms)| *position > after && *position <= most && is_meant(terms))
                .map(|(position, _)| position)
                .collect();
            let view = recent.view();
            prop_assert_eq!(view.first_in(&groups, after, most, 100), scanned.clone());
            prop_assert_eq!(view.newest_in(&groups, after, most), scanned.last().copied());
        }
    }
}
