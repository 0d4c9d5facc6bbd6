//! What is done about letters of each kind: many of them, in one transaction.

use super::opened::Shared;
use crate::error::{Error, Result};
use mainstay_store::Tx;
use mainstay_work::inbox::{self, Listed, PROJECTION, PUBLICATION, Status};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// What is done about letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// They are tried again: pending ones, or ignored ones.
    Retry,
    /// They are left for good: pending ones.
    Ignore,
    /// They are removed, with all that is known of them: resolved ones, unless others are asked for. What is tried again is
    /// not.
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

/// What came of a letter: nothing when somebody else was there first.
pub(super) type Came = Option<Result<()>>;

/// Letters of one keeper, by what the keeper knows them by.
struct Kept<'a, K>(HashMap<K, &'a Listed>);

impl<'a, K: std::hash::Hash + Eq + Clone> Kept<'a, K> {
    fn keys(&self) -> Vec<K> {
        self.0.keys().cloned().collect()
    }

    fn number(&self, key: &K) -> Option<i64> {
        self.0.get(key).map(|letter| letter.number)
    }
}

/// Does it, and tells what came of each letter by its number. Letters of which nothing is told were somebody else's.
pub(super) async fn act(
    shared: &Shared,
    tx: &Tx,
    action: Action,
    letters: &[Listed],
    is_behind: bool,
) -> mainstay_store::Result<HashMap<i64, Came>> {
    let mut came: HashMap<i64, Came> = letters.iter().map(|letter| (letter.number, None)).collect();
    let of_kind = |kind: &'static str| letters.iter().filter(move |letter| letter.kind == kind);
    let which = |letter: &Listed| (letter.name.clone(), letter.reference.clone());
    let models = Kept(of_kind(PROJECTION).map(|letter| (which(letter), letter)).collect());
    let contexts = Kept(of_kind(PUBLICATION).map(|letter| (letter.reference.clone(), letter)).collect());
    let own = letters.iter().filter(|letter| letter.kind != PROJECTION && letter.kind != PUBLICATION);
    let own: Vec<&Listed> = own.collect();
    let work = Kept(own.iter().map(|letter| (letter.reference.clone(), *letter)).collect());
    let work_ids: Vec<String> = own.iter().map(|letter| letter.reference.clone()).collect();
    let mut note = |number: Option<i64>, done: Result<()>| {
        if let Some(number) = number {
            came.insert(number, Some(done));
        }
    };
    let Shared { projections, publisher, work: shop, .. } = shared;
    if !models.0.is_empty() {
        for (which, done) in match action {
            Action::Retry => projections.retry_letters_in(tx, &models.keys(), is_behind).await?,
            Action::Ignore => all_done(projections.ignore_letters_in(tx, &models.keys()).await?),
            Action::Purge => all_done(projections.remove_letters_in(tx, &models.keys()).await?),
        } {
            note(models.number(&which), done.map(drop));
        }
    }
    if !contexts.0.is_empty() {
        for (id, done) in match action {
            Action::Retry => publisher.retry_letters_in(tx, &contexts.keys(), is_behind).await?,
            Action::Ignore => all_done(publisher.ignore_letters_in(tx, &contexts.keys()).await?),
            Action::Purge => all_done(publisher.remove_letters_in(tx, &contexts.keys()).await?),
        } {
            note(contexts.number(&id), done.map(drop));
        }
    }
    if !work_ids.is_empty() {
        match action {
            Action::Retry => {
                let listed = own.iter().map(|letter| (letter.reference.clone(), letter.number));
                let listed: Vec<(String, i64)> = listed.collect();
                for (id, done) in shop.retry_listed_in(tx, &listed, is_behind).await? {
                    note(work.number(&id), done.map(drop).map_err(Error::from));
                }
            }
            Action::Ignore => {
                for id in shop.ignore_letters_in(tx, &work_ids).await? {
                    note(work.number(&id), Ok(()));
                }
            }
            Action::Purge => {
                shop.remove_letters_in(tx, &work_ids).await?;
                for id in &work_ids {
                    note(work.number(id), Ok(()));
                }
            }
        }
    }
    if action == Action::Purge {
        let gone = came.iter().filter(|(_, came)| matches!(came, Some(Ok(()))));
        inbox::remove_numbers(tx, &gone.map(|(number, _)| *number).collect::<Vec<_>>()).await?;
    }
    Ok(came)
}

fn all_done<K>(keys: Vec<K>) -> Vec<(K, Result<String>)> {
    keys.into_iter().map(|key| (key, Ok(String::new()))).collect()
}

/// Whether somebody else was there first, rather than that it cannot be done.
pub(super) fn is_late(error: &Error) -> bool {
    matches!(
        error,
        Error::PublicationLetterNotFound { .. }
            | Error::PublicationLetterNotPending { .. }
            | Error::LetterNotFound(_)
            | Error::LetterNotPending { .. }
    )
}

/// Whether this node cannot do it, and another one may.
pub(super) fn is_elsewhere(error: &Error) -> bool {
    matches!(error, Error::UnknownProjection(_) | Error::UnknownTarget(_))
}
