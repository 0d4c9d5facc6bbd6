//! What a follower of the log has seen: everything that it follows, in order, each once.

use std::collections::{HashMap, HashSet};

use mainstay_core::query::Query;

use super::Recorded;

/// The notes of one subscriber.
///
/// ```
/// # use mainstay_testkit::history::subscription::{Follower, Violation};
/// # use mainstay_testkit::history::{Event, Recorded};
/// # let event = |position| Recorded {
/// #     position, id: position.to_string(), event: Event::new("T", ["x"]), operation: 1 };
/// # let log = [event(1), event(2)];
/// let mut follower = Follower::of_all();
/// follower.saw(2, "2");
/// assert_eq!(follower.check(&log), Err(vec![Violation::Missed { position: 1 }]));
/// ```
#[derive(Debug, Clone)]
pub struct Follower {
    query: Option<Query>,
    after: u64,
    seen: Vec<(u64, String)>,
}

/// What a correct subscription could not have shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// An event was never shown.
    #[error("the event at {position} was never seen")]
    Missed {
        /// Where it is.
        position: u64,
    },
    /// An event was shown more than once.
    #[error("the event at {position} was seen again")]
    Again {
        /// Where it is.
        position: u64,
    },
    /// An event was shown after a later one.
    #[error("the event at {position} was seen after the one at {after}")]
    OutOfOrder {
        /// Where it is.
        position: u64,
        /// The latest position shown before.
        after: u64,
    },
    /// An event was shown that is not in the log.
    #[error("an event at {position} was seen, and the log has none there")]
    NotInLog {
        /// Where it was said to be.
        position: u64,
    },
    /// Another event was shown than the log has there: one that was never committed, or was lost and replaced.
    #[error("event {seen} was seen at {position}, where the log has {found}")]
    Another {
        /// Where it was said to be.
        position: u64,
        /// The event that was shown.
        seen: String,
        /// The event that is there.
        found: String,
    },
    /// An event was shown that the subscriber does not follow.
    #[error("the event at {position} was seen, and is not one of those that are followed")]
    NotFollowed {
        /// Where it is.
        position: u64,
    },
}

impl Follower {
    /// Follows every event from the first on.
    pub fn of_all() -> Self {
        Self { query: None, after: 0, seen: Vec::new() }
    }

    /// Follows the events that a query means.
    pub fn of(query: Query) -> Self {
        Self { query: Some(query), ..Self::of_all() }
    }

    /// Starts behind a position instead of at the beginning.
    pub fn after(mut self, position: u64) -> Self {
        self.after = position;
        self
    }

    /// Notes that the event with this id was shown at a position.
    pub fn saw(&mut self, position: u64, id: impl Into<String>) {
        self.seen.push((position, id.into()));
    }

    /// The positions and ids noted so far.
    pub fn seen(&self) -> &[(u64, String)] {
        &self.seen
    }

    /// The position noted last; where it begins when nothing was.
    pub fn last(&self) -> u64 {
        self.seen.last().map_or(self.after, |(position, _)| *position)
    }

    /// Checks the notes against the log, or against a beginning of it if the follower has only got so far; returns
    /// how many events it saw.
    pub fn check(&self, log: &[Recorded]) -> Result<usize, Vec<Violation>> {
        let all: HashMap<u64, &str> =
            log.iter().map(|recorded| (recorded.position, recorded.id.as_str())).collect();
        let followed = log.iter().filter(|recorded| self.follows(recorded)).map(|recorded| recorded.position);
        let mut missed: HashSet<u64> = followed.collect();
        let mut seen = HashSet::new();
        let mut latest = 0;
        let mut violations = Vec::new();
        for (position, id) in &self.seen {
            let position = *position;
            let Some(found) = all.get(&position).copied() else {
                violations.push(Violation::NotInLog { position });
                continue;
            };
            if !seen.insert(position) {
                violations.push(Violation::Again { position });
            } else if !missed.remove(&position) {
                violations.push(Violation::NotFollowed { position });
            } else if position < latest {
                violations.push(Violation::OutOfOrder { position, after: latest });
            } else {
                latest = position;
            }
            if id != found {
                let (seen, found) = (id.clone(), found.to_owned());
                violations.push(Violation::Another { position, seen, found });
            }
        }
        let mut missed: Vec<u64> = missed.into_iter().collect();
        missed.sort_unstable();
        violations.extend(missed.into_iter().map(|position| Violation::Missed { position }));
        if violations.is_empty() { Ok(self.seen.len()) } else { Err(violations) }
    }

    fn follows(&self, recorded: &Recorded) -> bool {
        let means = |query: &Query| query.matches(&recorded.event.event_type, &recorded.event.tags);
        recorded.position > self.after && self.query.as_ref().is_none_or(means)
    }
}
