//! Actions on letters: many of them, in one transaction. Each source deals with its own kinds.

use super::opened::Shared;
use crate::error::{Error, Result};
use crate::inbox::{self, Listed, Refused, Status};
use mainstay_store::Tx;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// An action on dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Retries pending or ignored letters.
    Retry,
    /// Ignores pending letters.
    Ignore,
    /// Removes letters with their history: resolved ones unless the filter names another status. Letters that are being
    /// retried stay.
    Purge,
}

impl Action {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Ignore => "ignore",
            Self::Purge => "purge",
        }
    }

    pub(super) fn of(name: &str) -> Self {
        match name {
            "ignore" => Self::Ignore,
            "purge" => Self::Purge,
            _ => Self::Retry,
        }
    }

    /// The status of letters that it is done about, if it may be.
    pub(super) fn status(self, asked: Option<Status>) -> Result<Status> {
        let (usual, allowed): (Status, &[Status]) = match self {
            Self::Retry => (Status::Pending, &[Status::Pending, Status::Ignored]),
            Self::Ignore => (Status::Pending, &[Status::Pending]),
            Self::Purge => (Status::Resolved, &[Status::Pending, Status::Resolved, Status::Ignored]),
        };
        let status = asked.unwrap_or(usual);
        match allowed.contains(&status) {
            true => Ok(status),
            false => {
                let reason =
                    format!("{} is not done about letters that are {}", self.as_str(), status.as_str());
                Err(Error::invalid("status", reason))
            }
        }
    }
}

/// What came of a letter; none if it was dealt with meanwhile.
pub(super) type Came = Option<std::result::Result<(), Refused>>;

/// Carries an action out, and tells what came of each letter by its number.
pub(super) async fn act(
    shared: &Shared,
    tx: &Tx,
    action: Action,
    letters: &[Listed],
    is_bulk: bool,
) -> mainstay_store::Result<HashMap<i64, Came>> {
    let mut came: HashMap<i64, Came> = letters.iter().map(|letter| (letter.number, None)).collect();
    for source in shared.sources.iter() {
        let own: Vec<&Listed> = letters.iter().filter(|letter| source.keeps(&letter.kind)).collect();
        if own.is_empty() {
            continue;
        }
        let dealt = match action {
            Action::Retry => source.retry(tx, &own, is_bulk).await?,
            Action::Ignore => source.ignore(tx, &own).await?,
            Action::Purge => source.purge(tx, &own).await?,
        };
        came.extend(dealt.into_iter().map(|(number, done)| (number, Some(done))));
    }
    if action == Action::Purge {
        let gone = came.iter().filter(|(_, came)| matches!(came, Some(Ok(()))));
        inbox::remove_numbers(tx, &gone.map(|(number, _)| *number).collect::<Vec<_>>()).await?;
    }
    Ok(came)
}
