//! What was asked of the log, what it answered, and what was found in it in the end.

use mainstay_core::query::Query;

/// What an event says, as far as queries can see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its type.
    pub event_type: String,
    /// Its tags; their order and repetitions mean nothing.
    pub tags: Vec<String>,
}

impl Event {
    /// An event of this type with these tags.
    pub fn new<T: Into<String>>(event_type: impl Into<String>, tags: impl IntoIterator<Item = T>) -> Self {
        Self { event_type: event_type.into(), tags: tags.into_iter().map(Into::into).collect() }
    }

    /// Whether both say the same; a log may sort tags and keep each once.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        let has_all = |of: &Self, tags: &[String]| tags.iter().all(|tag| of.tags.contains(tag));
        self.event_type == other.event_type && has_all(self, &other.tags) && has_all(other, &self.tags)
    }
}

/// An event in the final log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Where it is, dense from 1.
    pub position: u64,
    /// Its id, which no other event has.
    pub id: String,
    /// What it says.
    pub event: Event,
    /// The operation that appended it, from wherever the writer has put it: metadata, payload or a tag.
    pub operation: u64,
}

/// "Append only if no event that the query means is after this position."
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Which events are in the way.
    pub query: Query,
    /// Events up to and including this position are not; `None` is the same as 0.
    pub after: Option<u64>,
}

impl Condition {
    /// No such event at all.
    pub fn none(query: Query) -> Self {
        Self { query, after: None }
    }

    /// No such event after this position.
    pub fn none_after(query: Query, after: u64) -> Self {
        Self { query, after: Some(after) }
    }
}

/// One attempt to append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Which one; no other operation has it.
    pub id: u64,
    /// Not later than it was sent, in nanoseconds of a clock that all writers share and that never goes back.
    pub began: u64,
    /// Not earlier than the answer came, by the same clock; `u64::MAX` if none came.
    pub ended: u64,
    /// What it was subject to.
    pub condition: Option<Condition>,
    /// What it was to append, in order, all or nothing. An operation without events has no place in the log, so its
    /// condition cannot be checked.
    pub events: Vec<Event>,
    /// What came of it.
    pub outcome: Outcome,
}

/// What a writer was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The events are in the log, at these positions.
    Appended {
        /// One for each event, in order.
        positions: Vec<u64>,
    },
    /// The condition did not hold.
    Refused {
        /// An event that was in the way.
        witness: u64,
    },
    /// No answer, or one that leaves it open: all of the events may be in the log or none, even after the end.
    Unknown,
}
