//! What is written down only so often: the same read of the same person, and calls of people that nobody knows. Otherwise
//! whoever can reach the server could fill its disk.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(60);
/// Most that is remembered at once; beyond that nothing new is written down until the window is over.
const MAX_REMEMBERED: usize = 10_000;

/// What was written down lately.
#[derive(Default)]
pub(super) struct Seldom(Mutex<State>);

#[derive(Default)]
struct State {
    began: Option<Instant>,
    seen: HashMap<String, u32>,
}

impl Seldom {
    /// Whether this is to be written down: the first `most` of a minute are.
    pub(super) fn is_due(&self, what: &str, most: u32, now: Instant) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.began.is_none_or(|began| now.duration_since(began) >= WINDOW) {
            *state = State { began: Some(now), seen: HashMap::new() };
        }
        if state.seen.len() >= MAX_REMEMBERED && !state.seen.contains_key(what) {
            return false;
        }
        let count = state.seen.entry(what.to_owned()).or_default();
        *count = count.saturating_add(1);
        *count <= most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_of_a_minute_are_due() {
        let (seldom, begin) = (Seldom::default(), Instant::now());
        let due = |what: &str, after_s| seldom.is_due(what, 2, begin + Duration::from_secs(after_s));
        assert_eq!([due("a", 0), due("a", 1), due("a", 2), due("b", 2)], [true, true, false, true]);
        assert!(due("a", 60), "a new minute");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (seldom, now) = (Seldom::default(), Instant::now());
        let due = (0..MAX_REMEMBERED + 5).filter(|number| seldom.is_due(&number.to_string(), 1, now)).count();
        assert_eq!(due, MAX_REMEMBERED);
    }
}
