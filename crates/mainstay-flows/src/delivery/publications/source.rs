//! Publications as a source of dead letters.

use super::publisher::Publisher;
use crate::attempts::Attempt;
use crate::error::{Error, Result};
use futures_util::future::BoxFuture;
use mainstay_store::Tx;
use mainstay_work::inbox::{Dealt, Detail, Kind, Listed, Refused, Source};
use std::collections::HashMap;

type Answer<'a, T> = BoxFuture<'a, mainstay_store::Result<T>>;

/// Numbers of letters by their publications.
fn numbers(letters: &[&Listed]) -> HashMap<String, i64> {
    letters.iter().map(|letter| (letter.reference.clone(), letter.number)).collect()
}

fn references(letters: &[&Listed]) -> Vec<String> {
    letters.iter().map(|letter| letter.reference.clone()).collect()
}

/// A letter that was dealt with meanwhile is left out.
fn refused(done: Result<String>) -> Option<std::result::Result<(), Refused>> {
    match done {
        Ok(_) => Some(Ok(())),
        Err(Error::PublicationLetterNotFound { .. } | Error::PublicationLetterNotPending { .. }) => None,
        Err(error) => {
            let is_elsewhere = matches!(error, Error::UnknownTarget(_));
            Some(Err(Refused { entry: error.entry(), error: error.into(), is_elsewhere }))
        }
    }
}

fn all_done(ids: &[String], numbers: &HashMap<String, i64>) -> Vec<Dealt> {
    ids.iter().filter_map(|id| Some((*numbers.get(id)?, Ok(())))).collect()
}

impl Source for Publisher {
    fn keeps(&self, kind: &Kind) -> bool {
        *kind == Kind::Publication
    }

    fn detail<'a>(&'a self, letter: &'a Listed) -> Answer<'a, Option<Detail>> {
        Box::pin(async move {
            let found = self.letter_of(&letter.reference).await?;
            found.map(|letter| Detail::new("publication", &letter)).transpose()
        })
    }

    fn history<'a>(&'a self, letter: &'a Listed) -> Answer<'a, Vec<Attempt>> {
        Box::pin(async move {
            let mut attempts = self.attempts_of(&letter.reference).await?;
            let work_id = self.letter_of(&letter.reference).await?.and_then(|letter| letter.work_id);
            if let Some(work_id) = work_id {
                attempts.extend(self.shared.work.attempts_of(&work_id).await?);
            }
            Ok(attempts)
        })
    }

    fn retry<'a>(&'a self, tx: &'a Tx, letters: &'a [&'a Listed], is_bulk: bool) -> Answer<'a, Vec<Dealt>> {
        Box::pin(async move {
            let numbers = numbers(letters);
            let retried = self.retry_letters_in(tx, &references(letters), is_bulk).await?;
            Ok(retried
                .into_iter()
                .filter_map(|(id, done)| Some((*numbers.get(&id)?, refused(done)?)))
                .collect())
        })
    }

    fn ignore<'a>(&'a self, tx: &'a Tx, letters: &'a [&'a Listed]) -> Answer<'a, Vec<Dealt>> {
        Box::pin(async move {
            let ignored = self.ignore_letters_in(tx, &references(letters)).await?;
            Ok(all_done(&ignored, &numbers(letters)))
        })
    }

    fn purge<'a>(&'a self, tx: &'a Tx, letters: &'a [&'a Listed]) -> Answer<'a, Vec<Dealt>> {
        Box::pin(async move {
            let removed = self.remove_letters_in(tx, &references(letters)).await?;
            Ok(all_done(&removed, &numbers(letters)))
        })
    }
}
