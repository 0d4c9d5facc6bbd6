//! Correct histories pass; with one change, the checker and the search for an order come to the same verdict.

use proptest::prelude::*;

use super::super::check;
use super::model::{is_explained, simulate, wishes};
use super::*;

/// One change; numbers are taken modulo what there is.
#[derive(Debug, Clone)]
enum Mutation {
    DropEvent { at: usize, closes_gap: bool },
    DropOperation { at: usize },
    SwapEvents { at: usize, other: usize, keeps_positions: bool },
    SwapTimes { at: usize, other: usize },
    RepeatEvent { at: usize, to: usize, has_new_id: bool },
    Told { at: usize, position: u64 },
    Refuse { at: usize, witness: u64 },
    Forget { at: usize },
    After { at: usize, after: Option<u64> },
    Change { at: usize, tag: bool },
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let (at, other, flag) = (any::<usize>(), any::<usize>(), any::<bool>());
    prop_oneof![
        (at, flag).prop_map(|(at, closes_gap)| Mutation::DropEvent { at, closes_gap }),
        at.prop_map(|at| Mutation::DropOperation { at }),
        (at, other, flag).prop_map(|(at, other, keeps_positions)| Mutation::SwapEvents {
            at,
            other,
            keeps_positions
        }),
        (at, other).prop_map(|(at, other)| Mutation::SwapTimes { at, other }),
        (at, other, flag).prop_map(|(at, to, has_new_id)| Mutation::RepeatEvent { at, to, has_new_id }),
        (at, 0..9u64).prop_map(|(at, position)| Mutation::Told { at, position }),
        (at, 0..9u64).prop_map(|(at, witness)| Mutation::Refuse { at, witness }),
        at.prop_map(|at| Mutation::Forget { at }),
        (at, prop::option::of(0..9u64)).prop_map(|(at, after)| Mutation::After { at, after }),
        (at, flag).prop_map(|(at, tag)| Mutation::Change { at, tag }),
    ]
}

fn renumber(log: &mut [Recorded]) {
    (1..).zip(log).for_each(|(position, recorded)| recorded.position = position);
}

fn mutate(mutation: &Mutation, log: &mut Vec<Recorded>, operations: &mut Vec<Operation>) {
    let (events, count) = (log.len(), operations.len());
    match *mutation {
        Mutation::DropOperation { at } => drop(operations.remove(at % count)),
        Mutation::SwapTimes { at, other } => {
            let [at, other] = [at % count, other % count];
            let times = |one: &Operation| (one.began, one.ended);
            let (one, two) = (times(&operations[at]), times(&operations[other]));
            (operations[at].began, operations[at].ended) = two;
            (operations[other].began, operations[other].ended) = one;
        }
        Mutation::Told { at, position } => {
            let operation = &mut operations[at % count];
            let positions = (position..).take(operation.events.len()).collect();
            operation.outcome = Outcome::Appended { positions };
        }
        Mutation::Refuse { at, witness } => operations[at % count].outcome = Outcome::Refused { witness },
        Mutation::Forget { at } => operations[at % count].outcome = Outcome::Unknown,
        Mutation::After { at, after } => {
            if let Some(condition) = &mut operations[at % count].condition {
                condition.after = after;
            }
        }
        _ if events == 0 => {}
        Mutation::DropEvent { at, closes_gap } => {
            log.remove(at % events);
            if closes_gap {
                renumber(log);
            }
        }
        Mutation::SwapEvents { at, other, keeps_positions } => {
            log.swap(at % events, other % events);
            if keeps_positions {
                renumber(log);
            }
        }
        Mutation::RepeatEvent { at, to, has_new_id } => {
            let mut copy = log[at % events].clone();
            if has_new_id {
                copy.id.push_str("_copy");
            }
            log.insert(to % (events + 1), copy);
            renumber(log);
        }
        Mutation::Change { at, tag: true } => log[at % events].event.tags.push("c".to_owned()),
        Mutation::Change { at, tag: false } => log[at % events].event.event_type.push('2'),
    }
}

/// Changes after which the history cannot be explained, whatever it was.
fn is_always_wrong(mutation: &Mutation, log: &[Recorded], operations: &[Operation]) -> bool {
    let owner = |at: usize| operations.iter().find(|one| one.id == log[at % log.len()].operation);
    let is_told = |at: usize| owner(at).is_some_and(|one| one.outcome != Outcome::Unknown);
    match *mutation {
        Mutation::DropEvent { at, .. } => !log.is_empty() && is_told(at),
        Mutation::RepeatEvent { .. } | Mutation::Change { .. } => !log.is_empty(),
        Mutation::DropOperation { at } => {
            log.iter().any(|recorded| recorded.operation == operations[at % operations.len()].id)
        }
        Mutation::SwapEvents { at, other, keeps_positions } => {
            !log.is_empty() && at % log.len() != other % log.len() && !keeps_positions
        }
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn one_change_is_caught_or_legal(wishes in wishes(1..7), mutation in mutation()) {
        let (mut log, mut operations) = simulate(&wishes);
        prop_assert!(is_explained(&log, &operations));
        prop_assert_eq!(check(&log, &operations).err(), None);
        let must_be_caught = is_always_wrong(&mutation, &log, &operations);
        mutate(&mutation, &mut log, &mut operations);
        let verdict = check(&log, &operations);
        let is_legal = is_explained(&log, &operations);
        prop_assert!(!(must_be_caught && is_legal), "the search is wrong: {:?}\n{:?}", log, operations);
        prop_assert_eq!(verdict.is_ok(), is_legal, "{:?}\n{:?}\n{:?}", verdict, log, operations);
    }

    #[test]
    fn two_changes_are_caught_or_legal(wishes in wishes(1..7), one in mutation(), two in mutation()) {
        let (mut log, mut operations) = simulate(&wishes);
        mutate(&one, &mut log, &mut operations);
        if !operations.is_empty() {
            mutate(&two, &mut log, &mut operations);
        }
        let verdict = check(&log, &operations);
        prop_assert_eq!(verdict.is_ok(), is_explained(&log, &operations), "{:?}\n{:?}\n{:?}", verdict, log, operations);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn long_correct_histories_pass(wishes in wishes(200..300)) {
        let (log, operations) = simulate(&wishes);
        prop_assert_eq!(check(&log, &operations).err(), None);
    }
}
