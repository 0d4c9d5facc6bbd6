//! Appending: what an author gives and gets.
//!
//! - `new_event`: an event before it is in the log, and the limits on it
//! - `json`: what JSON may be stored
//! - `prepare`: checks an append and makes everything that needs no database
//! - `decide`: which of several appends may go in, and where
//! - `commit`: asks the database what must be known, and writes what was decided
//! - `batch`: concurrent appends of one process share transactions
//! - `receipt`: appends beside an author's own writes

mod batch;
mod commit;
mod decide;
mod new_event;
mod prepare;
mod receipt;

pub(crate) use batch::Batcher;
pub(crate) use commit::Ground;
pub use new_event::{Condition, NewEvent, NewStream, ScopeClaim};
pub(crate) use prepare::{Prepared, fingerprint, groups};
pub(crate) use receipt::Noted;
pub use receipt::Receipt;

use serde::{Deserialize, Serialize};

/// Events to be appended together or not at all.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Append {
    /// The events, in order.
    pub events: Vec<NewEvent>,
    /// What must not have happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<Condition>,
}

impl Append {
    /// An append of `events`.
    pub fn new(events: impl IntoIterator<Item = NewEvent>) -> Self {
        Self { events: events.into_iter().collect(), condition: None }
    }

    /// Refused when an event that `condition` forbids is there.
    pub fn unless(self, condition: Condition) -> Self {
        Self { condition: Some(condition), ..self }
    }
}

impl From<NewEvent> for Append {
    fn from(event: NewEvent) -> Self {
        Self::new([event])
    }
}

/// What came of an append.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Appended {
    /// Whether it was done now or before.
    pub status: Status,
    /// The events, in order.
    pub events: Vec<AppendedEvent>,
    /// The log's last position after it.
    pub head: u64,
}

/// Whether an append was done now or before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Now.
    Appended,
    /// Before, with the same idempotency key and content; the log was not changed.
    Duplicate,
}

/// An event that is in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppendedEvent {
    /// Its id.
    pub event_id: String,
    /// Its position.
    pub position: u64,
    /// Its version in its stream, if it is in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}
