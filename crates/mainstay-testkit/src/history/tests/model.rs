//! A log with one writer, histories made with it, and a search for an order that explains a history.

use std::collections::HashSet;

use proptest::prelude::*;

use super::super::{Condition, Event, Operation, Outcome, Recorded};
use super::{query, recorded};

/// What one generated operation wants; numbers are taken modulo what there is.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    events: Vec<usize>,
    condition: Option<(usize, Option<u64>)>,
    witness: usize,
    is_unknown: bool,
    early: u64,
    late: u64,
}

const TAGS: [&[&str]; 4] = [&["a"], &["b"], &["a", "b"], &[]];
const TYPES: [&str; 2] = ["T", "U"];

pub(super) fn wishes(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Wish>> {
    let condition = prop::option::weighted(0.8, (0..12usize, prop::option::of(any::<u64>())));
    let time = (0..35u64, 0..35u64);
    let wish =
        (prop::collection::vec(0..8usize, 1..3), condition, any::<usize>(), prop::bool::weighted(0.2), time);
    let wish = wish.prop_map(|(events, condition, witness, is_unknown, (early, late))| Wish {
        events,
        condition,
        witness,
        is_unknown,
        early,
        late,
    });
    prop::collection::vec(wish, count)
}

fn means(condition: &Condition, recorded: &Recorded) -> bool {
    let Recorded { position, event, .. } = recorded;
    *position > condition.after.unwrap_or(0) && condition.query.matches(&event.event_type, &event.tags)
}

/// Applies wishes one after another, each at its own moment within the time between its beginning and its end.
pub(super) fn simulate(wishes: &[Wish]) -> (Vec<Recorded>, Vec<Operation>) {
    let (mut log, mut operations) = (Vec::<Recorded>::new(), Vec::new());
    for (id, wish) in (1..).zip(wishes) {
        let events: Vec<Event> =
            wish.events.iter().map(|at| Event::new(TYPES[at % 2], TAGS[at / 2].iter().copied())).collect();
        let condition = wish.condition.map(|(at, after)| Condition {
            query: query([&["T"][..], &["U"], &[]][at % 3], TAGS[at / 3]),
            after: after.map(|after| after % (log.len() as u64 + 1)),
        });
        let in_the_way: Vec<u64> = condition
            .iter()
            .flat_map(|condition| {
                log.iter().filter(|recorded| means(condition, recorded)).map(|recorded| recorded.position)
            })
            .collect();
        let outcome = if in_the_way.is_empty() {
            let first = log.len() as u64 + 1;
            log.extend((first..).zip(&events).map(|(at, event)| recorded(at, id, event.clone())));
            Outcome::Appended { positions: (first..).take(events.len()).collect() }
        } else {
            Outcome::Refused { witness: in_the_way[wish.witness % in_the_way.len()] }
        };
        let moment = 10 * id + 50;
        let (ended, outcome) =
            if wish.is_unknown { (u64::MAX, Outcome::Unknown) } else { (moment + wish.late, outcome) };
        operations.push(Operation { id, began: moment - wish.early, ended, condition, events, outcome });
    }
    (log, operations)
}

/// Whether the operations have an order that keeps real time and in which a log with one writer answers and ends
/// like this. Written from that sentence and nothing else; takes exponential time.
pub(super) fn is_explained(log: &[Recorded], operations: &[Operation]) -> bool {
    let ids: HashSet<_> = log.iter().map(|recorded| &recorded.id).collect();
    let is_log = ids.len() == log.len() && (1..).zip(log).all(|(at, recorded)| recorded.position == at);
    let begun: HashSet<_> = operations.iter().map(|operation| operation.id).collect();
    let is_record = begun.len() == operations.len() && operations.iter().all(|one| one.began <= one.ended);
    is_log && is_record && search(log, 0, operations, (1 << operations.len()) - 1, &mut HashSet::new())
}

/// `length` events are explained; the operations in `rest` have yet to happen.
fn search(
    log: &[Recorded],
    length: usize,
    operations: &[Operation],
    rest: u32,
    dead_ends: &mut HashSet<(usize, u32)>,
) -> bool {
    if rest == 0 {
        return length == log.len();
    }
    if !dead_ends.insert((length, rest)) {
        return false;
    }
    let left = |at: &usize| rest & (1 << at) != 0;
    let has_ended = |one: &Operation, time: u64| one.outcome != Outcome::Unknown && one.ended < time;
    (0..operations.len()).filter(left).any(|next| {
        let operation = &operations[next];
        let must_wait =
            (0..operations.len()).filter(left).any(|other| has_ended(&operations[other], operation.began));
        let mut lengths = apply(&log[..length], &log[length..], operation).into_iter();
        !must_wait
            && lengths.any(|more| search(log, length + more, operations, rest & !(1 << next), dead_ends))
    })
}

/// By how many events the log may have grown if this operation happened now, with the answer that it got.
fn apply(before: &[Recorded], behind: &[Recorded], operation: &Operation) -> Vec<usize> {
    let Operation { id, condition, events, outcome, .. } = operation;
    let is_in_the_way =
        |recorded: &&Recorded| condition.as_ref().is_some_and(|condition| means(condition, recorded));
    let count = events.len();
    let is_next = behind.len() >= count
        && behind.iter().zip(events).all(|(found, event)| found.operation == *id && found.event == *event);
    let may_append = is_next && !before.iter().any(|recorded| is_in_the_way(&recorded));
    match outcome {
        Outcome::Refused { witness } => {
            let is_witness = |recorded: &&Recorded| recorded.position == *witness && is_in_the_way(recorded);
            if before.iter().any(|recorded| is_witness(&recorded)) { vec![0] } else { vec![] }
        }
        Outcome::Appended { positions } => {
            let is_told = behind.iter().take(count).map(|found| &found.position).eq(positions);
            if may_append && is_told { vec![count] } else { vec![] }
        }
        Outcome::Unknown if may_append => vec![count, 0],
        Outcome::Unknown => vec![0],
    }
}
