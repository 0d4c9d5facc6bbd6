//! Conditional appends had nothing in their way, and refusals had something.

use std::collections::HashMap;

use mainstay_core::query::Item;

use super::index::Index;
use super::{Condition, Operation, Outcome, Violation};

/// Something that must not be: an event that an item means, after one position and before an operation's first.
struct Gap {
    operation: u64,
    after: u64,
    first: u64,
}

/// An item and all that must hold for it. The key is its types and tags.
type Gaps<'a> = HashMap<(&'a [String], &'a [String]), (&'a Item, Vec<Gap>)>;

pub(super) fn check(index: &Index<'_>, operations: &[Operation], violations: &mut Vec<Violation>) {
    conflicts(index, operations, violations);
    for operation in operations {
        if let Outcome::Refused { witness } = operation.outcome {
            violations.extend(refusal(index, operation, witness));
        }
    }
}

/// Every item is looked up once for all operations that share it: a popular condition would else be looked up in
/// the whole log by each of them.
fn conflicts(index: &Index<'_>, operations: &[Operation], violations: &mut Vec<Violation>) {
    let mut gaps = Gaps::new();
    for operation in operations {
        let Operation { id, condition: Some(Condition { query, after }), .. } = operation else { continue };
        let Some(first) = index.found(*id).first().copied() else { continue };
        for item in query.items() {
            let (_, gaps) = gaps.entry((&item.types, &item.tags)).or_insert_with(|| (item, Vec::new()));
            gaps.push(Gap { operation: *id, after: after.unwrap_or(0), first });
        }
    }
    // The last conflict of each operation, whichever item it is of.
    let mut found: HashMap<u64, (u64, u64)> = HashMap::new();
    for (item, gaps) in gaps.into_values() {
        let after = gaps.iter().map(|gap| gap.after).min().unwrap_or(0);
        let before = gaps.iter().map(|gap| gap.first).max().unwrap_or(0);
        let matching = index.matching(item, after, before);
        for Gap { operation, after, first } in gaps {
            let earlier = matching.partition_point(|position| *position < first);
            let last = earlier.checked_sub(1).map_or(0, |at| matching[at]);
            if last > after {
                let worst = found.entry(operation).or_insert((first, last));
                worst.1 = worst.1.max(last);
            }
        }
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_unstable_by_key(|(operation, (position, _))| (*position, *operation));
    violations.extend(found.into_iter().map(|(operation, (position, conflict))| Violation::Conflict {
        operation,
        position,
        conflict,
    }));
}

/// That the witness was there in time is looked at in [`super::order`].
fn refusal(index: &Index<'_>, refused: &Operation, witness: u64) -> Option<Violation> {
    let operation = refused.id;
    let Some(Condition { query, after }) = &refused.condition else {
        return Some(Violation::RefusedWithoutCondition { operation });
    };
    let Some(found) = index.at(witness) else {
        return Some(Violation::WitnessMissing { operation, witness });
    };
    let is_in_the_way =
        witness > after.unwrap_or(0) && query.matches(&found.event.event_type, &found.event.tags);
    (!is_in_the_way).then_some(Violation::WitnessAllowed { operation, witness })
}
