//! Big histories: with a look at the whole log for each operation, these tests would take hours.

use super::super::{Violation, check};
use super::*;

const OPERATIONS: u64 = 100_000;

/// All share one tag and one type, and one condition that asks for both with another that is just as common.
fn hot() -> (Vec<Recorded>, Vec<Operation>) {
    let tags = |id: u64| if id.is_multiple_of(2) { ["all", "even"] } else { ["all", "odd"] };
    let never = query(&["T"], &["even", "odd"]);
    (1..=OPERATIONS)
        .map(|id| {
            let operation = appended(id, vec![event(&tags(id))], &[id]);
            (recorded(id, id, event(&tags(id))), operation.when(Condition::none(never.clone())))
        })
        .unzip()
}

#[test]
fn a_popular_condition_is_looked_up_once() {
    let (log, operations) = hot();
    assert_eq!(check(&log, &operations).unwrap().conditional, OPERATIONS as usize);
}

#[test]
fn a_rare_tag_is_looked_up_instead_of_a_common_one() {
    let (mut log, mut operations) = hot();
    for (recorded, operation) in log.iter_mut().zip(&mut operations) {
        let own = format!("order:{}", operation.id);
        recorded.event.tags.push(own.clone());
        operation.events[0].tags.push(own.clone());
        operation.condition = Some(Condition::none(query(&["T"], &["all", &own])));
    }
    assert!(check(&log, &operations).is_ok());
    let last = operations.last_mut().unwrap();
    last.condition = Some(Condition::none(query(&["T"], &["all", "order:7"])));
    let conflict = Violation::Conflict { operation: OPERATIONS, position: OPERATIONS, conflict: 7 };
    assert_eq!(check(&log, &operations), Err(vec![conflict]));
}
