//! What the experiments on the log found out.

use super::super::facts::Refusal;
use mainstay::events::{Error, Status};
use serde::Serialize;

/// Everything that was found out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// Where the log is.
    pub store: String,
    /// Lamps that were stocked and sold, each on a condition.
    pub placed: Vec<Done>,
    /// Two customers and one lamp.
    pub last_lamp: LastLamp,
    /// What came of sending the same twice.
    pub payment: Payment,
    /// What came of a row and an event in one transaction.
    pub row_and_event: RowAndEvent,
    /// What a follower saw, from the start.
    pub seen: Vec<Seen>,
    /// How long all of it took.
    pub elapsed_us: u64,
}

/// An append that was answered.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Done {
    /// What happened.
    #[serde(rename = "type")]
    pub event_type: String,
    /// Where it is in the log.
    pub position: u64,
    /// Whether it was done now or before.
    pub status: Status,
    /// When it was called, since the start.
    #[serde(skip)]
    pub called_us: u64,
}

/// Two customers and one lamp.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastLamp {
    /// How many lamps both saw.
    pub left: usize,
    /// Whose order was taken.
    pub winner: String,
    /// The order.
    pub won: Done,
    /// Whose was not.
    pub loser: String,
    /// What the loser was told.
    pub refused: Refusal,
    /// The position of the event that was in the way.
    pub witness: u64,
    /// How many lamps the loser saw then.
    pub left_then: usize,
    /// What the loser did about it.
    pub decided_anew: Done,
}

/// What came of sending the same twice.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Payment {
    /// The idempotency key.
    pub key: String,
    /// The first time.
    pub first: Done,
    /// The second time.
    pub again: Done,
    /// What other content under the same key was told.
    pub other: Option<Refusal>,
    /// The log's last position afterwards.
    pub head: u64,
}

/// What came of a row and an event in one transaction.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RowAndEvent {
    /// The event.
    pub done: Done,
    /// What a second transaction was told, after it had written its row.
    pub refused: Option<Refusal>,
    /// How many rows are there afterwards.
    pub rows: u64,
}

/// An event that a follower saw.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// Where it is in the log.
    pub position: u64,
    /// What happened.
    #[serde(rename = "type")]
    pub event_type: String,
    /// When it was seen, since its append was called.
    pub after_us: u64,
}

impl From<&Error> for Refusal {
    fn from(error: &Error) -> Self {
        Self { code: error.code(), message: error.to_string() }
    }
}
