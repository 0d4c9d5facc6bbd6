//! Dead letters: what ended failed, with all that is needed to try it again.
//!
//! - `look`: pages, counts, and what was done about letters
//! - `retry`: trying letters again, as other items
//! - `ignore`: leaving them for good
//! - `recorded`: letters of items with an outbox, which records the failure first
//! - `remove`: taking them out, for whoever keeps them otherwise or because they are old
//! - `source`: work as a source of dead letters
//! - `table`: the rows

mod ignore;
mod look;
mod recorded;
mod remove;
mod retry;
mod source;
mod table;

pub(crate) use look::is_retry;
pub(crate) use recorded::recorded;
pub(crate) use table::{INSERT, RETURN, entry, own_kind, row};

use crate::inbox::Kind;
use crate::item::Attempted;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// What was done about a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LetterStatus {
    /// Nothing yet.
    Pending,
    /// It was tried again, as another item.
    Retried,
    /// Somebody decided to leave it.
    Ignored,
    /// Its failure is to be recorded as an event first. Then it is pending.
    Recording,
}

impl LetterStatus {
    fn number(self) -> i64 {
        match self {
            Self::Pending => 0,
            Self::Retried => 1,
            Self::Ignored => 2,
            Self::Recording => 3,
        }
    }

    fn of(number: i64) -> Self {
        match number {
            1 => Self::Retried,
            2 => Self::Ignored,
            3 => Self::Recording,
            _ => Self::Pending,
        }
    }
}

/// An item that ended failed.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Letter {
    /// The item.
    pub work_id: String,
    /// Its pool.
    pub pool: String,
    /// Its function.
    pub function: String,
    /// The kind.
    pub kind: Kind,
    /// What was done about it.
    pub status: LetterStatus,
    /// When it ended.
    pub failed_at: i64,
    /// What it ended with.
    pub error: String,
    /// How often it was tried.
    pub attempts: u32,
    /// The failures of its executions; the newest is last.
    pub errors: Vec<Attempted>,
    /// What it was called with.
    pub args: Box<RawValue>,
    /// What was kept beside it.
    pub context: Option<Box<RawValue>>,
    /// Its key.
    pub key: Option<String>,
    /// The item that tries it again.
    pub retried_as: Option<String>,
    /// For the next page: [`LetterFilter::before`].
    #[serde(skip)]
    pub number: i64,
    /// Whether it is listed among dead letters; if it is not, whoever enqueued it keeps a letter of its own.
    #[serde(skip)]
    pub is_listed: bool,
}

/// Which letters.
#[derive(Debug, Clone, Default)]
pub struct LetterFilter {
    /// Of this status; pending ones unless given.
    pub status: Option<LetterStatus>,
    /// Of this pool.
    pub pool: Option<String>,
    /// Of this function.
    pub function: Option<String>,
    /// Of this kind.
    pub kind: Option<Kind>,
    /// Older than the letter of this number.
    pub before: Option<i64>,
    /// Newer than the letter of this number, and the oldest first; 0 begins with the oldest of all.
    pub after: Option<i64>,
}
