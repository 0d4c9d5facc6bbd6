//! Real time against the order of positions.
//!
//! Positions are given out densely and in order, so whoever is told a position knows that everything up to it is
//! decided: every operation up to there has begun by then. That holds for acknowledgements and for the witnesses of
//! refusals alike.

use super::index::Index;
use super::{Operation, Outcome, Violation};

pub(super) fn check(index: &Index<'_>, operations: &[Operation], violations: &mut Vec<Violation>) {
    let latest = latest_beginnings(index);
    // Of all operations up to and including a position, the last to begin, if that was after a time.
    let begun_after = |position: u64, time: u64| {
        let count = index.before(position.saturating_add(1));
        let (began, operation) = *latest.get(count.checked_sub(1)?)?;
        (began > time).then_some(operation)
    };
    for Operation { id, ended, outcome, .. } in operations {
        match outcome {
            // Nobody was told anything, and the events may come after the end.
            Outcome::Unknown => {}
            Outcome::Appended { .. } => {
                let Some(last) = index.found(*id).last() else { continue };
                let later = begun_after(*last, *ended);
                violations.extend(later.map(|later| Violation::OutOfOrder { earlier: *id, later }));
            }
            Outcome::Refused { witness } => {
                let (operation, witness) = (*id, *witness);
                let later = index.at(witness).and_then(|_| begun_after(witness, *ended));
                violations.extend(later.map(|later| Violation::WitnessTooLate { operation, witness, later }));
            }
        }
    }
}

/// For each event in order: of the operations up to it, the one that began last, and when.
fn latest_beginnings(index: &Index<'_>) -> Vec<(u64, u64)> {
    let mut latest = (0, 0);
    let mut beginnings = Vec::with_capacity(index.log.len());
    for event in &index.log {
        if let Some(operation) = index.operation(event.operation) {
            latest = latest.max((operation.began, operation.id));
        }
        beginnings.push(latest);
    }
    beginnings
}
