//! What the experiments on the log found out.

use super::super::facts::Refusal;
use mainstay::events::{Error, Status};
use serde::Serialize;

/// Everything that was found out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Facts {
    /// Where the log is.
    pub(crate) store: String,
    /// Lamps that were stocked and sold, each on a condition.
    pub(crate) placed: Vec<Done>,
    /// Two customers and one lamp.
    pub(crate) last_lamp: LastLamp,
    /// What came of sending the same twice.
    pub(crate) payment: Payment,
    /// What came of a row and an event in one transaction.
    pub(crate) row_and_event: RowAndEvent,
    /// What a follower saw, from the start.
    pub(crate) seen: Vec<Seen>,
    /// How long all of it took.
    pub(crate) elapsed_us: u64,
}

/// An append that was answered.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Done {
    /// What happened.
    #[serde(rename = "type")]
    pub(crate) event_type: String,
    /// Where it is in the log.
    pub(crate) position: u64,
    /// Whether it was done now or before.
    pub(crate) status: Status,
    /// When it was called, since the start.
    #[serde(skip)]
    pub(crate) called_us: u64,
}

/// Two customers and one lamp.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LastLamp {
    /// How many lamps both saw.
    pub(crate) left: usize,
    /// Whose order was taken.
    pub(crate) winner: String,
    /// The order.
    pub(crate) won: Done,
    /// Whose was not.
    pub(crate) loser: String,
    /// What the loser was told.
    pub(crate) refused: Refusal,
    /// The position of the event that was in the way.
    pub(crate) witness: u64,
    /// How many lamps the loser saw then.
    pub(crate) left_then: usize,
    /// What the loser did about it.
    pub(crate) decided_anew: Done,
}

/// What came of sending the same twice.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Payment {
    /// The idempotency key.
    pub(crate) key: String,
    /// The first time.
    pub(crate) first: Done,
    /// The second time.
    pub(crate) again: Done,
    /// What other content under the same key was told.
    pub(crate) other: Option<Refusal>,
    /// The log's last position afterwards.
    pub(crate) head: u64,
}

/// What came of a row and an event in one transaction.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RowAndEvent {
    /// The event.
    pub(crate) done: Done,
    /// What a second transaction was told, after it had written its row.
    pub(crate) refused: Option<Refusal>,
    /// How many rows are there afterwards.
    pub(crate) rows: u64,
}

/// An event that a follower saw.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Seen {
    /// Where it is in the log.
    pub(crate) position: u64,
    /// What happened.
    #[serde(rename = "type")]
    pub(crate) event_type: String,
    /// When it was seen, since its append was called.
    pub(crate) after_us: u64,
}

impl From<&Error> for Refusal {
    fn from(error: &Error) -> Self {
        Self { code: error.code(), message: error.to_string() }
    }
}
