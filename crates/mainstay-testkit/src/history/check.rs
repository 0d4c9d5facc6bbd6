//! The verdict on a whole history.

use std::collections::{HashMap, HashSet};

use super::index::Index;
use super::{Operation, Outcome, Recorded, Violation, conditions, order};

/// What a correct history consisted of: a test asserts on it that it has tested something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Events in the log.
    pub events: usize,
    /// Operations that were acknowledged.
    pub appended: usize,
    /// Operations that were refused, each with a witness.
    pub refused: usize,
    /// Operations without an answer whose events are in the log.
    pub unknown_found: usize,
    /// Operations without an answer whose events are not in the log.
    pub unknown_absent: usize,
    /// Operations in the log that had a condition.
    pub conditional: usize,
}

/// Checks the log, as read from its beginning to its end, against everything that was asked of it.
///
/// Takes about n log n for n operations, unless most of them have conditions that no other has and whose rarest tag
/// or type is common.
pub fn check(log: &[Recorded], operations: &[Operation]) -> Result<Report, Vec<Violation>> {
    let index = Index::new(log, operations);
    let mut violations = Vec::new();
    positions(log, &mut violations);
    ids(&index, operations, &mut violations);
    owners(&index, &mut violations);
    for operation in operations {
        violations.extend(events(&index, operation));
    }
    conditions::check(&index, operations, &mut violations);
    order::check(&index, operations, &mut violations);
    if violations.is_empty() { Ok(report(&index, operations)) } else { Err(violations) }
}

/// In the order in which the log gave them, so that a log that reads out of order is caught as well.
fn positions(log: &[Recorded], violations: &mut Vec<Violation>) {
    let mut expected = 1;
    for Recorded { position, .. } in log {
        if *position != expected {
            violations.push(Violation::NotDense { expected, found: *position });
        }
        expected = position.saturating_add(1);
    }
}

fn ids(index: &Index<'_>, operations: &[Operation], violations: &mut Vec<Violation>) {
    let mut seen = HashMap::new();
    for Recorded { id, position, .. } in &index.log {
        let first = *seen.entry(id.as_str()).or_insert(*position);
        if first != *position {
            violations.push(Violation::SameId { id: id.clone(), first, again: *position });
        }
    }
    let mut seen = HashSet::new();
    for operation in operations {
        if !seen.insert(operation.id) {
            violations.push(Violation::SameOperation { operation: operation.id });
        }
        if operation.ended < operation.began {
            violations.push(Violation::EndedBeforeItBegan { operation: operation.id });
        }
    }
}

fn owners(index: &Index<'_>, violations: &mut Vec<Violation>) {
    for Recorded { position, operation, .. } in index.log.iter().copied() {
        let (position, operation) = (*position, *operation);
        match index.operation(operation).map(|owner| &owner.outcome) {
            None => violations.push(Violation::OfNobody { position, operation }),
            Some(Outcome::Refused { .. }) => violations.push(Violation::OfRefused { position, operation }),
            Some(Outcome::Appended { .. } | Outcome::Unknown) => {}
        }
    }
}

/// An operation's own events: all of them or, if nobody was told, none; once, side by side, as they were given.
fn events(index: &Index<'_>, operation: &Operation) -> Option<Violation> {
    let Operation { id, events: given, outcome, .. } = operation;
    let (found, id, events) = (index.found(*id), *id, given.len());
    let told = match outcome {
        Outcome::Refused { .. } => return None,
        Outcome::Unknown if found.is_empty() => return None,
        Outcome::Unknown => None,
        Outcome::Appended { positions } => Some(positions),
    };
    if found.len() > events {
        return Some(Violation::Twice { operation: id, events, found: found.to_vec() });
    }
    if found.len() < events {
        let found = found.to_vec();
        return Some(match told {
            Some(_) => Violation::Missing { operation: id, events, found },
            None => Violation::Torn { operation: id, events, found },
        });
    }
    if found.windows(2).any(|pair| pair[1] - pair[0] != 1) {
        return Some(Violation::NotContiguous { operation: id, found: found.to_vec() });
    }
    if let Some(told) = told.filter(|told| *told != found) {
        return Some(Violation::Elsewhere { operation: id, told: told.clone(), found: found.to_vec() });
    }
    let is_same = |position: u64, event| index.at(position).is_some_and(|at| at.event.says_the_same(event));
    let different = found.iter().zip(given).find(|(position, event)| !is_same(**position, event));
    different.map(|(position, _)| Violation::Different { operation: id, position: *position })
}

fn report(index: &Index<'_>, operations: &[Operation]) -> Report {
    let mut report = Report { events: index.log.len(), ..Report::default() };
    for operation in operations {
        let is_found = !index.found(operation.id).is_empty();
        report.conditional += usize::from(is_found && operation.condition.is_some());
        let count = match operation.outcome {
            Outcome::Appended { .. } => &mut report.appended,
            Outcome::Refused { .. } => &mut report.refused,
            Outcome::Unknown if is_found => &mut report.unknown_found,
            Outcome::Unknown => &mut report.unknown_absent,
        };
        *count += 1;
    }
    report
}
