//! What is pending, committed, sealed and merged, and what is found in it.

use super::*;
use crate::index::lookup::Groups;
use proptest::prelude::*;

fn groups(all_of: &[&[i64]]) -> Groups {
    all_of.iter().fold(Groups::default(), |groups, any_of| groups.and(any_of.to_vec()))
}

fn end(head: u64) -> End {
    End { head, last_ms: 0 }
}

#[test]
fn what_is_pending_is_seen_by_its_transaction_only_and_forgotten_with_it() {
    let recent = Recent::new(0, 1, SEGMENT_EVENTS);
    let (view, _) = recent.writing(7);
    assert_eq!(view.newest(1, 0, 99), None);
    recent.note(7, vec![(1, vec![1, 2])], Vec::new(), end(1));
    assert_eq!(recent.writing(7).0.newest(1, 0, 99), Some(1));
    assert_eq!(recent.view().newest(1, 0, 99), None, "not committed");
    // The next transaction begins without a commit of the one before.
    assert_eq!(recent.writing(8).0.newest(1, 0, 99), None);
    recent.promote(7);
    assert_eq!(recent.view().newest(1, 0, 99), None, "undone");
    recent.note(8, vec![(1, vec![3])], Vec::new(), end(1));
    recent.promote(8);
    recent.promote(8);
    assert_eq!((recent.view().newest(3, 0, 99), recent.view().head), (Some(1), 1));
}

#[test]
fn groups_are_intersected() {
    let recent = Recent::new(10, 1, SEGMENT_EVENTS);
    for position in 11..=40 {
        let terms = [position as i64 % 2, 10 + position as i64 % 3, 100];
        recent.restore(position, &terms, end(position));
    }
    let view = recent.view();
    assert_eq!(view.first_in(&groups(&[&[0], &[10]]), 0, 99, 3), [12, 18, 24]);
    assert_eq!(view.newest_in(&groups(&[&[0], &[10]]), 0, 35), Some(30));
    assert_eq!(view.newest_in(&groups(&[&[0, 1], &[10]]), 30, 99), Some(39));
    assert_eq!(view.newest_in(&groups(&[&[0], &[77]]), 0, 99), None);
    assert_eq!(view.newest(100, 0, 99), Some(40));
    assert_eq!(view.first_in(&groups(&[&[100]]), 38, 99, 9), [39, 40]);
}

#[test]
fn a_full_segment_is_sealed_and_leaves_when_it_is_merged() {
    let recent = Recent::new(0, 1, SEGMENT_EVENTS);
    let count = SEGMENT_EVENTS as u64 + 5;
    for position in 1..=count {
        recent.restore(position, &[7, -(position as i64)], end(position));
    }
    let before = recent.view();
    assert!(recent.is_merge_due());
    let segment = recent.begin_merge().unwrap();
    assert!(recent.begin_merge().is_none() && !recent.is_merge_due(), "one merger at a time");
    let entries = sorted(&segment);
    assert!(entries.is_sorted() && entries.len() == 2 * SEGMENT_EVENTS);
    recent.merged(last_of(&segment));
    recent.end_merge();
    assert_eq!(recent.view().first_in(&groups(&[&[7]]), 0, count, 2), [count - 4, count - 3]);
    // Who looked before goes on seeing what was there.
    assert_eq!(before.first_in(&groups(&[&[7]]), 0, count, 2), [1, 2]);
}

proptest! {
    #[test]
    fn leaping_finds_what_a_scan_finds(
        events in proptest::collection::vec(proptest::collection::btree_set(0_i64..6, 0..5), 1..60),
        wanted in proptest::collection::vec(proptest::collection::vec(0_i64..7, 1..3), 1..4),
        after in 0_u64..60, most in 0_u64..70,
    ) {
        let recent = Recent::new(0, 1, 16);
        for (position, terms) in (1..).zip(&events) {
            recent.restore(position, &terms.iter().copied().collect::<Vec<_>>(), end(position));
        }
        let groups = wanted.iter().fold(Groups::default(), |groups, any_of| groups.and(any_of.clone()));
        let is_meant = |terms: &std::collections::BTreeSet<i64>| {
            wanted.iter().all(|any_of| any_of.iter().any(|term| terms.contains(term)))
        };
        let scanned: Vec<u64> = (1..).zip(&events)
            .filter(|(position, terms)| *position > after && *position <= most && is_meant(terms))
            .map(|(position, _)| position)
            .collect();
        let view = recent.view();
        prop_assert_eq!(view.first_in(&groups, after, most, 100), scanned.clone());
        prop_assert_eq!(view.newest_in(&groups, after, most), scanned.last().copied());
    }
}
