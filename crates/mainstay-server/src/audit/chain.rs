//! Every entry holds a hash of itself and of the one before, so that none can be changed, left out or moved unseen.
//!
//! Whoever can write to the database can write a whole new chain. Against that, keep the head elsewhere: it is told by
//! `/admin/audit/head` and by `mainstay audit verify`, which also takes it to compare.

use super::entry::Entry;
use super::table::Head;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// What the first entry follows.
pub(super) const BEGINNING: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The hash of an entry that follows one with the hash `before`.
pub(super) fn hash(before: &str, entry: &Entry) -> String {
    let said = json!([
        entry.number,
        entry.timestamp,
        entry.action,
        entry.args,
        entry.user_id,
        entry.role,
        entry.tenant_id,
        entry.outcome.as_str(),
        entry.code,
        entry.trace_id,
    ]);
    let mut hasher = Sha256::new();
    hasher.update(before);
    hasher.update(said.to_string());
    let mut text = String::with_capacity(64);
    for byte in hasher.finalize() {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Where a chain is broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Break {
    /// The number of the entry.
    pub number: u64,
    /// What is wrong with it.
    pub reason: String,
}

/// Follows a chain from its beginning.
#[derive(Debug)]
pub struct Chain {
    number: u64,
    hash: String,
    /// A head that was kept elsewhere, until the chain has passed it.
    kept: Option<Head>,
}

impl Chain {
    /// Before the first entry. `kept` is a head that somebody kept elsewhere.
    pub fn begin(kept: Option<Head>) -> Self {
        Self { number: 0, hash: BEGINNING.to_owned(), kept }
    }

    /// The last number that was followed.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Goes on to the next entry.
    pub fn follow(&mut self, entry: &Entry) -> Result<(), Break> {
        let expected = self.number + 1;
        let broken = |number, reason: &str| Err(Break { number, reason: reason.to_owned() });
        if entry.number > expected {
            return broken(expected, "it is missing");
        }
        if entry.number < expected {
            return broken(entry.number, "it is there twice, or out of order");
        }
        if hash(&self.hash, entry) != entry.hash {
            return broken(expected, "it is not what was written, or does not follow the one before");
        }
        if self.kept.as_ref().is_some_and(|kept| kept.number == expected && kept.hash != entry.hash) {
            return broken(expected, "it is another one than was kept elsewhere");
        }
        (self.number, self.hash) = (expected, entry.hash.clone());
        Ok(())
    }

    /// Ends where the head says that the chain ends. The head is asked for after the entries: it moves with each of them, so that
    /// one that is behind an entry was put back.
    pub fn end(self, head: &Head) -> Result<Head, Break> {
        let last = Head { number: self.number, hash: self.hash };
        let kept = self.kept.map_or(0, |kept| kept.number);
        if last.number < head.number.max(kept) {
            let reason = format!("the end is cut off: there were entries up to {}", head.number.max(kept));
            return Err(Break { number: last.number + 1, reason });
        }
        if last.number > head.number {
            let reason = format!("the head was put back, and says that entry {} is the last", head.number);
            return Err(Break { number: head.number + 1, reason });
        }
        if last != *head {
            return Err(Break { number: last.number, reason: "the head says something else".to_owned() });
        }
        Ok(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Outcome;
    use proptest::prelude::*;

    fn entries(count: u64) -> Vec<Entry> {
        let mut before = BEGINNING.to_owned();
        let made = (1..=count).map(|number| {
            let mut entry = Entry {
                number,
                timestamp: 1_000 + number as i64,
                action: "POST /admin/projections/{projection}/rebuild".to_owned(),
                args: json!({"path": "/admin/projections/orders/rebuild"}),
                user_id: "ada".to_owned(),
                role: Some("admin".to_owned()),
                tenant_id: None,
                outcome: Outcome::Done,
                code: None,
                trace_id: None,
                hash: String::new(),
            };
            entry.hash = hash(&before, &entry);
            before.clone_from(&entry.hash);
            entry
        });
        made.collect()
    }

    fn head(entries: &[Entry]) -> Head {
        let begin = Head { number: 0, hash: BEGINNING.to_owned() };
        entries.last().map_or(begin, |last| Head { number: last.number, hash: last.hash.clone() })
    }

    fn verify(entries: &[Entry], head: &Head, kept: Option<Head>) -> Result<Head, Break> {
        let mut chain = Chain::begin(kept);
        entries.iter().try_for_each(|entry| chain.follow(entry))?;
        chain.end(head)
    }

    #[test]
    fn a_chain_that_nobody_touched_is_whole() {
        for count in [0, 1, 20] {
            let all = entries(count);
            assert_eq!(verify(&all, &head(&all), None), Ok(head(&all)));
            assert_eq!(verify(&all, &head(&all), Some(head(&all[..all.len() / 2]))), Ok(head(&all)));
        }
    }

    #[test]
    fn an_edit_a_deletion_a_reordering_and_a_truncation_show() {
        let all = entries(9);
        let told = head(&all);
        let mut edited = all.clone();
        edited[4].user_id = "bob".to_owned();
        let mut deleted = all.clone();
        deleted.remove(4);
        let mut swapped = all.clone();
        swapped.swap(4, 5);
        let mut renumbered = swapped.clone();
        (renumbered[4].number, renumbered[5].number) = (5, 6);
        for (what, changed) in [edited, deleted, swapped, renumbered].iter().enumerate() {
            assert_eq!(verify(changed, &told, None).unwrap_err().number, 5, "{what}");
        }
        assert_eq!(verify(&all[..7], &told, None).unwrap_err().number, 8, "the head knows of more");
        assert_eq!(verify(&all, &head(&all[..7]), None).unwrap_err().number, 8, "the head was put back");
        // With its head cut off too, only who kept it elsewhere can tell.
        let cut = &all[..7];
        assert!(verify(cut, &head(cut), None).is_ok());
        assert_eq!(verify(cut, &head(cut), Some(told)).unwrap_err().number, 8);
    }

    #[test]
    fn a_chain_that_was_written_anew_is_not_the_one_that_was_kept() {
        let all = entries(9);
        let kept = Some(Head { number: 3, hash: "f".repeat(64) });
        assert_eq!(verify(&all, &head(&all), kept).unwrap_err().number, 3);
    }

    proptest! {
        #[test]
        fn whatever_is_changed_in_any_entry_shows(at in 0_usize..9, what in 0_usize..8) {
            let (mut all, told) = (entries(9), head(&entries(9)));
            let entry = &mut all[at];
            match what {
                0 => entry.timestamp += 1,
                1 => entry.action.push('x'),
                2 => entry.args = json!({}),
                3 => entry.user_id.push('x'),
                4 => entry.role = None,
                5 => entry.tenant_id = Some("acme".to_owned()),
                6 => entry.outcome = Outcome::Failed,
                _ => entry.code = Some("X".to_owned()),
            }
            prop_assert_eq!(verify(&all, &told, None).unwrap_err().number, at as u64 + 1);
        }
    }
}
