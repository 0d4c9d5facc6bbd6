//! Every kind of violation, planted alone into a history that is otherwise clean.

use super::super::{Report, Violation, check};
use super::*;

/// ```text
/// position   1        2        3        4        5
/// operation  1 (x)    2 (y,    2  y)    4 (x)    5 (z, never answered)
/// ```
/// Operation 3 was refused because of 1; 4 had seen 1; 6 was never answered and never happened.
fn clean() -> (Vec<Recorded>, Vec<Operation>) {
    let log = vec![
        recorded(1, 1, event(&["x"])),
        recorded(2, 2, event(&["y"])),
        recorded(3, 2, Event::new("U", ["y"])),
        recorded(4, 4, event(&["x"])),
        recorded(5, 5, event(&["z"])),
    ];
    let operations = vec![
        appended(1, vec![event(&["x"])], &[1]),
        appended(2, vec![event(&["y"]), Event::new("U", ["y"])], &[2, 3])
            .when(Condition::none(query(&[], &["y"]))),
        appended(3, vec![event(&["x"])], &[]).when(Condition::none(query(&["T"], &["x"]))).refused(1),
        appended(4, vec![event(&["x"])], &[4]).when(Condition::none_after(query(&[], &["x"]), 1)),
        appended(5, vec![event(&["z"])], &[]).when(Condition::none(query(&["T"], &["z"]))).unknown(),
        appended(6, vec![event(&["x"]), event(&["y"])], &[]).unknown(),
    ];
    (log, operations)
}

/// The clean history with a change.
fn with(change: impl FnOnce(&mut Vec<Recorded>, &mut Vec<Operation>)) -> Vec<Violation> {
    let (mut log, mut operations) = clean();
    change(&mut log, &mut operations);
    check(&log, &operations).unwrap_err()
}

#[test]
fn a_clean_history_passes_and_is_counted() {
    let (log, operations) = clean();
    let report =
        Report { events: 5, appended: 3, refused: 1, unknown_found: 1, unknown_absent: 1, conditional: 3 };
    assert_eq!(check(&log, &operations), Ok(report));
    assert_eq!(check(&[], &[]), Ok(Report::default()));
}

#[test]
fn tags_in_another_order_are_the_same() {
    let log = [recorded(1, 1, event(&["a", "b"]))];
    assert!(check(&log, &[appended(1, vec![event(&["b", "a", "b"])], &[1])]).is_ok());
    assert!(check(&log, &[appended(1, vec![event(&["b"])], &[1])]).is_err());
}

#[test]
fn positions_that_are_not_dense() {
    let gap = with(|log, _| log[4].position = 6);
    assert_eq!(gap, [Violation::NotDense { expected: 5, found: 6 }]);
    let swapped = with(|log, _| log.swap(0, 1));
    let pairs = [(1, 2), (3, 1), (2, 3)];
    assert_eq!(swapped, pairs.map(|(expected, found)| Violation::NotDense { expected, found }));
    let from_zero = check(&[recorded(0, 1, event(&["x"]))], &[appended(1, vec![event(&["x"])], &[0])]);
    assert_eq!(from_zero, Err(vec![Violation::NotDense { expected: 1, found: 0 }]));
}

#[test]
fn ids_and_records_that_are_there_twice() {
    let id = with(|log, _| log[4].id = "event_1".to_owned());
    assert_eq!(id, [Violation::SameId { id: "event_1".to_owned(), first: 1, again: 5 }]);
    let operation = with(|_, operations| operations.push(operations[5].clone()));
    assert_eq!(operation, [Violation::SameOperation { operation: 6 }]);
    let clock = with(|_, operations| operations[2].began = 100);
    assert_eq!(clock, [Violation::EndedBeforeItBegan { operation: 3 }]);
}

#[test]
fn events_of_nobody_and_of_the_refused() {
    let nobody = with(|log, _| log.push(recorded(6, 77, event(&["q"]))));
    assert_eq!(nobody, [Violation::OfNobody { position: 6, operation: 77 }]);
    let refused = with(|log, operations| {
        log.push(recorded(6, 7, event(&["x"])));
        let late = appended(7, vec![event(&["x"])], &[]);
        operations.push(late.when(Condition::none_after(query(&[], &["x"]), 4)).refused(6));
    });
    let conflict = Violation::OfRefused { position: 6, operation: 7 };
    assert_eq!(refused, [conflict]);
}

#[test]
fn acknowledged_events_that_are_missing_or_torn() {
    let missing = with(|_, operations| operations[5].outcome = Outcome::Appended { positions: vec![6, 7] });
    assert_eq!(missing, [Violation::Missing { operation: 6, events: 2, found: vec![] }]);
    let half = with(|log, operations| {
        log.push(recorded(6, 7, event(&["q"])));
        operations.push(appended(7, vec![event(&["q"]), event(&["q"])], &[6, 7]));
    });
    assert_eq!(half, [Violation::Missing { operation: 7, events: 2, found: vec![6] }]);
    let torn = with(|log, _| log.push(recorded(6, 6, event(&["x"]))));
    assert_eq!(torn, [Violation::Torn { operation: 6, events: 2, found: vec![6] }]);
}

#[test]
fn events_that_were_applied_twice() {
    let acknowledged = with(|log, _| log.push(recorded(6, 1, event(&["x"]))));
    let twice = Violation::Twice { operation: 1, events: 1, found: vec![1, 6] };
    assert!(acknowledged.contains(&twice), "{acknowledged:?}");
    let unknown = with(|log, _| log.push(recorded(6, 5, event(&["z"]))));
    assert_eq!(unknown, [Violation::Twice { operation: 5, events: 1, found: vec![5, 6] }]);
}

#[test]
fn events_at_other_places_or_with_other_content() {
    let elsewhere = with(|_, operations| operations[0].outcome = Outcome::Appended { positions: vec![2] });
    assert_eq!(elsewhere, [Violation::Elsewhere { operation: 1, told: vec![2], found: vec![1] }]);
    let count = with(|_, operations| operations[0].outcome = Outcome::Appended { positions: vec![1, 2] });
    assert_eq!(count, [Violation::Elsewhere { operation: 1, told: vec![1, 2], found: vec![1] }]);
    let content = with(|log, _| log[4].event = Event::new("V", ["z"]));
    assert_eq!(content, [Violation::Different { operation: 5, position: 5 }]);
    let reversed = with(|_, operations| operations[1].events.reverse());
    assert_eq!(reversed, [Violation::Different { operation: 2, position: 2 }]);
}

#[test]
fn events_with_others_in_between() {
    let log = [1, 2, 1].iter().zip(1..).map(|(operation, at)| recorded(at, *operation, event(&["x"])));
    let log: Vec<_> = log.collect();
    let mut other = appended(2, vec![event(&["x"])], &[2]);
    other.began = 12;
    for first in
        [appended(1, vec![event(&["x"]); 2], &[1, 3]), appended(1, vec![event(&["x"]); 2], &[]).unknown()]
    {
        let found = vec![1, 3];
        assert_eq!(
            check(&log, &[first, other.clone()]),
            Err(vec![Violation::NotContiguous { operation: 1, found }])
        );
    }
}

#[test]
fn conditions_that_did_not_hold() {
    let unseen = with(|_, operations| operations[3].condition = Some(Condition::none(query(&["T"], &["x"]))));
    assert_eq!(unseen, [Violation::Conflict { operation: 4, position: 4, conflict: 1 }]);
    let unknown =
        with(|_, operations| operations[4].condition = Some(Condition::none_after(query(&["T"], &[]), 3)));
    assert_eq!(unknown, [Violation::Conflict { operation: 5, position: 5, conflict: 4 }]);
    let everything = with(|_, operations| operations[1].condition = Some(Condition::none(query(&[], &[]))));
    assert_eq!(everything, [Violation::Conflict { operation: 2, position: 2, conflict: 1 }]);
    let two_items = [query(&["U"], &[]), query(&[], &["x"])].map(|query| query.items()[0].clone());
    let either = Condition::none(Query::new(two_items.to_vec()).unwrap());
    let either = with(|_, operations| operations[4].condition = Some(either));
    assert_eq!(either, [Violation::Conflict { operation: 5, position: 5, conflict: 4 }]);
}

#[test]
fn operations_with_one_condition_are_each_held_to_their_own_position() {
    let of_x = |after| Some(Condition { query: query(&[], &["x"]), after });
    for (fourth, fifth, operation, position, conflict) in [(None, Some(4), 4, 4, 1), (Some(1), None, 5, 5, 4)]
    {
        let violations = with(|_, operations| {
            operations[3].condition = of_x(fourth);
            operations[4].condition = of_x(fifth);
        });
        assert_eq!(violations, [Violation::Conflict { operation, position, conflict }]);
    }
}

#[test]
fn refusals_without_a_witness() {
    let unconditional = with(|_, operations| operations[2].condition = None);
    assert_eq!(unconditional, [Violation::RefusedWithoutCondition { operation: 3 }]);
    let witness = |witness| with(|_, operations| operations[2].outcome = Outcome::Refused { witness });
    assert_eq!(witness(0), [Violation::WitnessMissing { operation: 3, witness: 0 }]);
    assert_eq!(witness(9), [Violation::WitnessMissing { operation: 3, witness: 9 }]);
    assert_eq!(witness(2), [Violation::WitnessAllowed { operation: 3, witness: 2 }]);
    let seen = Condition::none_after(query(&["T"], &["x"]), 1);
    let seen = with(|_, operations| operations[2].condition = Some(seen));
    assert_eq!(seen, [Violation::WitnessAllowed { operation: 3, witness: 1 }]);
}

#[test]
fn refusals_by_what_was_not_yet_there() {
    let future = with(|_, operations| operations[2].outcome = Outcome::Refused { witness: 4 });
    assert_eq!(future, [Violation::WitnessTooLate { operation: 3, witness: 4, later: 4 }]);
    // The witness had begun in time, but stands behind an operation that had not.
    let behind = with(|_, operations| {
        operations[2].condition = Some(Condition::none(query(&["T"], &["z"])));
        operations[2].outcome = Outcome::Refused { witness: 5 };
        operations[4].began = 1;
    });
    assert_eq!(behind, [Violation::WitnessTooLate { operation: 3, witness: 5, later: 4 }]);
}

#[test]
fn an_order_against_real_time() {
    let late = with(|_, operations| (operations[0].began, operations[0].ended) = (30, 31));
    let expected = Violation::OutOfOrder { earlier: 2, later: 1 };
    assert_eq!(late, [expected]);
    let unanswered = with(|_, operations| {
        operations[0] = operations[0].clone().unknown();
        operations[0].began = 46;
    });
    assert!(unanswered.contains(&Violation::OutOfOrder { earlier: 4, later: 1 }), "{unanswered:?}");
    // Touching is not after: a clock may give the same time twice.
    let (log, mut operations) = clean();
    (operations[0].began, operations[0].ended) = (25, 25);
    assert!(check(&log, &operations).is_ok());
}
