//! The log by position, tag and type.

use std::collections::HashMap;

use mainstay_core::query::Item;

use super::{Operation, Recorded};

/// A log and its operations, made ready to be asked.
pub(super) struct Index<'a> {
    /// By position, also if the log was read in another order.
    pub(super) log: Vec<&'a Recorded>,
    /// Where the events of an operation are, in order.
    found: HashMap<u64, Vec<u64>>,
    by_id: HashMap<u64, &'a Operation>,
    by_tag: HashMap<&'a str, Vec<u32>>,
    by_type: HashMap<&'a str, Vec<u32>>,
}

impl<'a> Index<'a> {
    pub(super) fn new(log: &'a [Recorded], operations: &'a [Operation]) -> Self {
        let mut log: Vec<&Recorded> = log.iter().collect();
        log.sort_by_key(|event| event.position);
        let mut found: HashMap<u64, Vec<u64>> = HashMap::new();
        let mut by_tag: HashMap<&str, Vec<u32>> = HashMap::new();
        let mut by_type: HashMap<&str, Vec<u32>> = HashMap::new();
        for (at, recorded) in (0..).zip(&log) {
            found.entry(recorded.operation).or_default().push(recorded.position);
            by_type.entry(&recorded.event.event_type).or_default().push(at);
            for tag in &recorded.event.tags {
                by_tag.entry(tag).or_default().push(at);
            }
        }
        let by_id = operations.iter().map(|operation| (operation.id, operation)).collect();
        Self { log, found, by_id, by_tag, by_type }
    }

    pub(super) fn operation(&self, id: u64) -> Option<&'a Operation> {
        self.by_id.get(&id).copied()
    }

    /// Where the events of an operation are, in order.
    pub(super) fn found(&self, operation: u64) -> &[u64] {
        self.found.get(&operation).map_or(&[], Vec::as_slice)
    }

    /// The number of events before a position.
    pub(super) fn before(&self, position: u64) -> usize {
        self.log.partition_point(|event| event.position < position)
    }

    pub(super) fn at(&self, position: u64) -> Option<&'a Recorded> {
        self.log.get(self.before(position)).copied().filter(|event| event.position == position)
    }

    /// The positions of all events that an item means, after one position and before another, in order.
    ///
    /// Asks the rarest of the item's tags, or its types if these are rarer.
    pub(super) fn matching(&self, item: &Item, after: u64, before: u64) -> Vec<u64> {
        let range = (self.before(after.saturating_add(1)), self.before(before));
        let tags = item.tags.iter().map(|tag| vec![within(self.by_tag.get(tag.as_str()), range)]);
        let types = item.types.iter().map(|name| within(self.by_type.get(name.as_str()), range)).collect();
        let types = (!item.types.is_empty()).then_some(types);
        let rarest = tags.chain(types).min_by_key(|lists: &Vec<&[u32]>| size(lists));
        let mut positions: Vec<u64> = match rarest {
            Some(lists) => {
                let candidates = lists.into_iter().flatten().map(|at| self.log[*at as usize]);
                candidates.filter(|event| means(item, event)).map(|event| event.position).collect()
            }
            None => self
                .log
                .get(range.0..range.1)
                .unwrap_or_default()
                .iter()
                .map(|event| event.position)
                .collect(),
        };
        positions.sort_unstable();
        positions
    }
}

fn means(item: &Item, recorded: &Recorded) -> bool {
    item.matches(&recorded.event.event_type, &recorded.event.tags)
}

fn size(lists: &[&[u32]]) -> usize {
    lists.iter().map(|list| list.len()).sum()
}

/// The part of a sorted list that is in a range.
fn within(list: Option<&Vec<u32>>, (start, end): (usize, usize)) -> &[u32] {
    let list = list.map_or(&[][..], Vec::as_slice);
    let from = list.partition_point(|at| (*at as usize) < start);
    let to = list.partition_point(|at| (*at as usize) < end);
    list.get(from..to).unwrap_or_default()
}
