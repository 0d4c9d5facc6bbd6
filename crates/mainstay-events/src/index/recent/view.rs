//! What a lookup sees besides the table.

use super::segment::{Shared, read, within};
use crate::index::kept::Kept;
use crate::index::lookup::Groups;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The table up to a position, and the segments after it.
#[derive(Clone, Default)]
pub(crate) struct View {
    /// Up to here the table is whole; beyond, it must not be believed.
    pub(in crate::index) merged: u64,
    /// Up to here the view is whole.
    pub(crate) head: u64,
    pub(super) segments: Vec<Shared>,
    pub(super) own: Option<Own>,
}

/// What only the writer may rely on, since it is where the log ends.
#[derive(Clone)]
pub(super) struct Own {
    pub(super) epoch: u64,
    pub(super) kept: Arc<Mutex<Kept>>,
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
    pub(in crate::index) fn kept(&self) -> Option<MutexGuard<'_, Kept>> {
        self.own.as_ref().map(|own| lock(&own.kept))
    }

    /// Whether everything is.
    pub(crate) fn is_table(&self) -> bool {
        self.merged == i64::MAX as u64
    }

    /// The newest position of a term in `(after, most]`.
    pub(in crate::index) fn newest(&self, term: i64, after: u64, most: u64) -> Option<u64> {
        self.segments.iter().rev().find_map(|segment| {
            let segment = read(segment);
            let positions = within(segment.positions(term), after.max(self.merged), most);
            positions.last().copied()
        })
    }

    /// The newest position in `(after, most]` that has a term of every group.
    pub(in crate::index) fn newest_in(&self, groups: &Groups, after: u64, most: u64) -> Option<u64> {
        let after = after.max(self.merged);
        self.segments.iter().rev().find_map(|segment| read(segment).last_in(groups, after, most))
    }

    /// The first positions in `(after, most]` that have a term of every group, in order.
    pub(in crate::index) fn first_in(
        &self,
        groups: &Groups,
        after: u64,
        most: u64,
        limit: usize,
    ) -> Vec<u64> {
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

    /// The last positions in `(after, most]` that have a term of every group, the last first.
    pub(in crate::index) fn last_in(
        &self,
        groups: &Groups,
        after: u64,
        mut most: u64,
        limit: usize,
    ) -> Vec<u64> {
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

pub(super) fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}
