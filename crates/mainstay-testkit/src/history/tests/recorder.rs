//! The notes of concurrent writers, and of followers.

use std::collections::HashSet;

use super::super::subscription::{Follower, Violation};
use super::super::{Recorder, check};
use super::*;

#[test]
fn threads_share_one_recorder() {
    let recorder = Recorder::new();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let recorder = recorder.clone();
            scope.spawn(move || {
                for _ in 0..100 {
                    let pending = recorder.begin(None, vec![event(&["x"])]);
                    let positions = vec![pending.id()];
                    pending.finish(Outcome::Appended { positions });
                }
            });
        }
    });
    let operations = recorder.operations();
    assert_eq!(operations.iter().map(|operation| operation.id).collect::<HashSet<_>>().len(), 800);
    assert!(operations.iter().all(|operation| operation.began <= operation.ended));
    // Ids are given out as operations begin, so as positions they keep real time.
    let log: Vec<_> = (1..=800).map(|id| recorded(id, id, event(&["x"]))).collect();
    assert_eq!(check(&log, &operations).unwrap().appended, 800);
}

#[test]
fn what_is_never_answered_is_unknown_and_has_no_end() {
    let recorder = Recorder::new();
    drop(recorder.begin(None, vec![event(&["x"])]));
    recorder.begin(None, vec![event(&["x"])]).finish(Outcome::Unknown);
    let _open = recorder.begin(None, vec![event(&["x"])]);
    let operations = recorder.operations();
    assert_eq!(operations.len(), 3);
    for operation in operations {
        assert_eq!((operation.outcome, operation.ended), (Outcome::Unknown, u64::MAX));
    }
}

fn seen(mut follower: Follower, positions: &[u64]) -> Result<usize, Vec<Violation>> {
    let tags = [["x"], ["y"], ["x"], ["y"], ["x"]];
    let log: Vec<_> = (1..).zip(tags).map(|(position, tags)| recorded(position, 1, event(&tags))).collect();
    let id_of = |position: u64| log.get(position as usize - 1).map_or("none", |event| event.id.as_str());
    positions.iter().for_each(|position| follower.saw(*position, id_of(*position)));
    assert!(follower.seen().iter().map(|(position, _)| position).eq(positions));
    assert_eq!(follower.last(), *positions.last().unwrap());
    follower.check(&log)
}

#[test]
fn a_follower_sees_everything_once_and_in_order() {
    let all = |positions| seen(Follower::of_all(), positions);
    assert_eq!(all(&[1, 2, 3, 4, 5]), Ok(5));
    assert_eq!(all(&[1, 2, 4, 5]), Err(vec![Violation::Missed { position: 3 }]));
    assert_eq!(all(&[1, 2, 3, 4]), Err(vec![Violation::Missed { position: 5 }]));
    assert_eq!(all(&[1, 2, 2, 3, 4, 5]), Err(vec![Violation::Again { position: 2 }]));
    assert_eq!(all(&[1, 3, 2, 4, 5]), Err(vec![Violation::OutOfOrder { position: 2, after: 3 }]));
    assert_eq!(all(&[1, 2, 3, 4, 5, 6]), Err(vec![Violation::NotInLog { position: 6 }]));
}

#[test]
fn a_follower_sees_the_events_that_are_in_the_log_and_no_others() {
    let log = [recorded(1, 1, event(&["x"])), recorded(2, 1, event(&["x"]))];
    let mut follower = Follower::of_all();
    follower.saw(1, log[0].id.as_str());
    follower.saw(2, "undone");
    let (seen, found) = ("undone".to_owned(), log[1].id.clone());
    assert_eq!(follower.check(&log), Err(vec![Violation::Another { position: 2, seen, found }]));
}

#[test]
fn a_follower_of_a_query_sees_what_it_means() {
    let of_x = |positions| seen(Follower::of(query(&[], &["x"])), positions);
    assert_eq!(of_x(&[1, 3, 5]), Ok(3));
    assert_eq!(of_x(&[1, 2, 3, 5]), Err(vec![Violation::NotFollowed { position: 2 }]));
    assert_eq!(of_x(&[1, 5]), Err(vec![Violation::Missed { position: 3 }]));
    assert_eq!(seen(Follower::of(query(&[], &["x"])).after(1), &[3, 5]), Ok(2));
    let too_early = seen(Follower::of_all().after(3), &[3, 4, 5]);
    assert_eq!(too_early, Err(vec![Violation::NotFollowed { position: 3 }]));
}
