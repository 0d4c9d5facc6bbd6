//! The inbox of dead letters: one row for everything that failed for good, whoever keeps the rest of it.
//!
//! Each kind of letter has a [`Source`] that keeps the rest of the letter: work, projections, publications. A source
//! [puts](put) a row here in the transaction in which its own letter changes. Lists, counts and groups read this one table.
//!
//! | status | means | what leads on |
//! |---|---|---|
//! | pending | nothing was done about it yet | it is retried or ignored |
//! | retrying | it is tried again | that succeeds (resolved), fails or is cancelled (pending) |
//! | resolved | trying again has succeeded | |
//! | ignored | somebody decided to leave it | it is retried after all |
//!
//! - `count`: counts and groups of letters
//! - `filter`: which letters, and how their rows are found
//! - `fingerprint`: which errors are the same
//! - `kind`: kinds of letters
//! - `look`: pages of letters
//! - `source`: sources of letters
//! - `write`: the rows

mod count;
mod filter;
mod fingerprint;
mod kind;
mod look;
mod source;
pub(crate) mod write;

pub(crate) use count::Tally;
pub use count::{Counted, Group, Groups, count_pending, count_pending_by_kind, counts, groups};
pub use filter::{Filter, MAX_FILTER_BYTES};
pub use fingerprint::{group, template};
pub use kind::Kind;
pub(crate) use look::still;
pub use look::{Chunk, Listed, Page, due, find, highest, page, waiting};
pub use source::{Attempt, Dealt, Detail, Refused, Source};
pub use write::{Entry, put, regroup, remove, remove_numbers, resolve, resolve_retried};

use serde::{Deserialize, Serialize};

/// What was done about a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Status {
    /// Nothing yet.
    Pending,
    /// It is tried again.
    Retrying,
    /// Trying again has succeeded.
    Resolved,
    /// Somebody decided to leave it.
    Ignored,
}

impl Status {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Retrying, Self::Resolved, Self::Ignored];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Retrying => "retrying",
            Self::Resolved => "resolved",
            Self::Ignored => "ignored",
        }
    }

    pub(crate) fn number(self) -> i64 {
        match self {
            Self::Pending => 0,
            Self::Retrying => 1,
            Self::Resolved => 2,
            Self::Ignored => 3,
        }
    }

    pub(crate) fn of(number: i64) -> Self {
        match number {
            1 => Self::Retrying,
            2 => Self::Resolved,
            3 => Self::Ignored,
            _ => Self::Pending,
        }
    }
}

/// Longest text of an error that is listed; the letter itself has all of it.
const MAX_ERROR_BYTES: usize = 500;

/// As much of an error as is listed.
fn listed(error: &str) -> &str {
    &error[..error.floor_char_boundary(MAX_ERROR_BYTES)]
}
