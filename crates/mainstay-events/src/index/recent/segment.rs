//! Entries of consecutive events, and what has terms of all groups among them.

use crate::index::lookup::Groups;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub(in crate::index) type Shared = Arc<RwLock<Segment>>;

/// Entries of consecutive events.
#[derive(Default)]
pub(crate) struct Segment {
    pub(super) events: usize,
    pub(super) last: u64,
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
    pub(super) fn with_room_for(terms: usize) -> Self {
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

    /// How many terms it has.
    pub(super) fn terms(&self) -> usize {
        self.postings.len()
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

/// Groups are intersected by leaping, as in the table: a step costs the logarithm of a list, however many are in it.
impl Segment {
    /// The last position in `(after, most]` that has a term of every group.
    pub(super) fn last_in(&self, groups: &Groups, after: u64, mut most: u64) -> Option<u64> {
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
    pub(super) fn next_in(&self, groups: &Groups, mut after: u64, most: u64) -> Option<u64> {
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
pub(super) fn within(positions: &[u64], after: u64, most: u64) -> &[u64] {
    let from = positions.partition_point(|position| *position <= after);
    let to = positions.partition_point(|position| *position <= most);
    positions.get(from..to).unwrap_or_default()
}

/// The last position of a segment.
pub(in crate::index) fn last_of(segment: &Shared) -> u64 {
    read(segment).last
}

/// The entries of a segment, in the order of the table.
pub(in crate::index) fn sorted(segment: &Shared) -> Vec<(i64, u64)> {
    read(segment).sorted()
}

pub(super) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
