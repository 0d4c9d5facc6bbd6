//! What is written down only so often: the same read of the same person, and calls that are refused. Otherwise whoever can
//! reach the server could fill its disk.
//!
//! Everybody has a count of their own, so that nobody is hidden by what others do.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(60);
/// Most questions that are remembered at once. Beyond that they are forgotten, and written down again: up to what each may.
const MAX_QUESTIONS: usize = 10_000;

/// What was written down lately.
#[derive(Default)]
pub(super) struct Seldom {
    state: Mutex<State>,
    hasher: RandomState,
}

#[derive(Default)]
struct State {
    began: Option<Instant>,
    /// What everybody has asked, as hashes: a question may be long.
    questions: HashSet<u64>,
    /// How much there was of each.
    counts: HashMap<String, u32>,
}

/// Whether something is to be written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// It is.
    Now,
    /// It was, a moment ago.
    Already,
    /// There was too much, from here on for the rest of the minute.
    NoMore,
    /// There was too much before, which is written down.
    StillNoMore,
}

impl Seldom {
    /// Whether something that `who` does is to be written down: the first `most` of a minute are, and each `question` once.
    pub(super) fn ask(&self, who: &str, question: Option<&str>, most: u32, now: Instant) -> Due {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.began.is_none_or(|began| now.duration_since(began) >= WINDOW) {
            *state = State { began: Some(now), ..State::default() };
        }
        if let Some(question) = question {
            let question = self.hasher.hash_one((who, question));
            if state.questions.contains(&question) {
                return Due::Already;
            }
            if state.questions.len() >= MAX_QUESTIONS {
                state.questions.clear();
            }
            state.questions.insert(question);
        }
        // There are as many of these as there are tokens, and strangers, who are one.
        let count = state.counts.entry(who.to_owned()).or_default();
        *count = count.saturating_add(1);
        match *count {
            count if count <= most => Due::Now,
            count if count == most + 1 => Due::NoMore,
            _ => Due::StillNoMore,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Due::{Already, NoMore, Now, StillNoMore};
    use super::*;

    #[test]
    fn so_many_of_a_minute_are_due_and_the_first_that_is_not_is_told() {
        let (seldom, begin) = (Seldom::default(), Instant::now());
        let due = |who: &str, after_s| seldom.ask(who, None, 2, begin + Duration::from_secs(after_s));
        assert_eq!(
            [due("a", 0), due("a", 1), due("a", 2), due("a", 3), due("b", 3)],
            [Now, Now, NoMore, StillNoMore, Now]
        );
        assert_eq!(due("a", 60), Now, "a new minute");
    }

    #[test]
    fn a_question_is_due_once_and_one_who_asks_much_hides_nobody() {
        let (seldom, now) = (Seldom::default(), Instant::now());
        let ask = |who: &str, number: usize| seldom.ask(who, Some(&number.to_string()), 300, now);
        assert_eq!([ask("a", 1), ask("a", 1), ask("b", 1)], [Now, Already, Now]);
        let due = (2..3 * MAX_QUESTIONS).filter(|number| ask("a", *number) == Now).count();
        assert_eq!(due, 299);
        assert_eq!(ask("c", 1), Now);
        assert!(seldom.state.lock().unwrap().questions.len() <= MAX_QUESTIONS);
    }
}
