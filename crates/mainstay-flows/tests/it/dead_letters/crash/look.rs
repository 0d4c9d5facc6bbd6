//! What is wrong after everything that was begun has ended.

use super::super::bench::Bench;
use super::super::kinds::KINDS;
use super::made::letters;
use crate::projections::support::noted;
use mainstay_events::Selection;
use mainstay_flows::dead_letters::{Listed, Operation, Status};
use std::collections::{BTreeMap, BTreeSet};

pub(in super::super) struct Wrong(pub(in super::super) Vec<String>);

impl Wrong {
    pub(super) fn unless(&mut self, holds: bool, what: impl Into<String>) {
        if !holds {
            self.0.push(what.into());
        }
    }

    /// The letters of a batch are those that there were, each once.
    pub(in super::super) fn same(&mut self, before: &BTreeMap<i64, Listed>, after: &BTreeMap<i64, Listed>) {
        let which = |letters: &BTreeMap<i64, Listed>| {
            letters.values().map(|one| (one.number, one.kind.clone())).collect::<BTreeSet<_>>()
        };
        self.unless(which(before) == which(after), "a letter is lost or doubled");
    }

    /// An operation's counts are those of its letters.
    pub(in super::super) fn counted(&mut self, operation: &Operation, done: usize) {
        let Operation { total, done: counted, skipped, failed, left, .. } = *operation;
        self.unless(
            (counted, skipped, failed, left) == (done as u64, 0, 0, 0) && counted <= total,
            format!("the counts of {}: {done} of {operation:?}", operation.action.as_str()),
        );
    }

    /// A letter that was tried again once is resolved, or fails for a reason that is still there: its stream, or its node.
    pub(in super::super) fn tried_again(&mut self, letter: &Listed) {
        let is_append = letter.kind == "append" && letter.status == Status::Pending;
        let may_fail = ["VERSION_CONFLICT", "lease expired"].iter().any(|why| letter.error.contains(why));
        let is_valid = letter.status == Status::Resolved || is_append && may_fail;
        self.unless(letter.retry_count == 1 && is_valid, format!("tried again once: {letter:?}"));
    }
}

/// What the letters of some batches have come to, against what there is in the read model, the log and the effects.
pub(in super::super) async fn effects(bench: &Bench, batches: &[&str], wrong: &mut Wrong) {
    let mut resolved: BTreeMap<&str, usize> = KINDS.iter().map(|kind| (*kind, 0)).collect();
    let noted = noted(&bench.store, "orders").await;
    for batch in batches {
        for letter in letters(bench, batch).await.into_values() {
            let is_resolved = letter.status == Status::Resolved;
            *resolved.get_mut(letter.kind.as_str()).unwrap() += usize::from(is_resolved);
            if letter.kind == "projection" {
                let position = bench.log.find(&letter.reference).await.unwrap().unwrap().position();
                let times = noted.iter().filter(|noted| **noted == position).count();
                wrong.unless(times == usize::from(is_resolved), "an event is not in the read model once");
            }
        }
    }
    let effects = bench.effects().await;
    wrong.unless(effects.values().all(|count| *count == 1), "an effect was had twice");
    let had = |prefix: &str| effects.keys().filter(|what| what.starts_with(prefix)).count();
    let (told, delivered) = (had("told "), had("delivered "));
    let found = [effects.len() - told - delivered, told, delivered];
    let expected = [resolved["work"], resolved["onComplete"], resolved["publication"]];
    wrong.unless(found == expected, format!("an effect is lost or nobody's: {found:?} for {expected:?}"));
    let events = bench.log.read(&Selection::all(), 1_000).await.unwrap().events;
    let paid: Vec<String> = events
        .iter()
        .filter(|event| event.event_type() == "Paid")
        .map(|event| event.data_as().unwrap())
        .collect();
    let once: BTreeSet<&String> = paid.iter().collect();
    wrong
        .unless(once.len() == paid.len() && paid.len() >= resolved["append"], "an append is lost or doubled");
}
