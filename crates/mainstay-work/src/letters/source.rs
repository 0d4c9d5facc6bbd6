//! Work as a source of dead letters.

use crate::error::Error;
use crate::inbox::{Attempt, Dealt, Detail, Kind, Listed, Source};
use crate::work::Work;
use futures_util::future::BoxFuture;
use mainstay_store::{Result, Tx};
use std::collections::HashMap;

/// Numbers of letters by the items that they are about.
fn numbers(letters: &[&Listed]) -> HashMap<String, i64> {
    letters.iter().map(|letter| (letter.reference.clone(), letter.number)).collect()
}

fn references(letters: &[&Listed]) -> Vec<String> {
    letters.iter().map(|letter| letter.reference.clone()).collect()
}

impl Work {
    /// Failed attempts of an item and of the items that it retries, the newest last.
    pub async fn attempts_of(&self, work_id: &str) -> Result<Vec<Attempt>> {
        let history = self.letter_history(work_id).await?;
        let failed = history.iter().rev();
        let failed = failed
            .flat_map(|letter| letter.errors.iter().map(|one| Attempt::of(&letter.work_id, one.clone())));
        Ok(failed.collect())
    }
}

impl Source for Work {
    fn keeps(&self, kind: &Kind) -> bool {
        kind.is_of_work()
    }

    fn detail<'a>(&'a self, letter: &'a Listed) -> BoxFuture<'a, Result<Option<Detail>>> {
        Box::pin(async move {
            match self.letter(&letter.reference).await {
                Ok(letter) => Detail::new("work", &letter).map(Some),
                Err(Error::LetterNotFound(_)) => Ok(None),
                Err(error) => Err(error.into()),
            }
        })
    }

    fn history<'a>(&'a self, letter: &'a Listed) -> BoxFuture<'a, Result<Vec<Attempt>>> {
        Box::pin(self.attempts_of(&letter.reference))
    }

    fn retry<'a>(
        &'a self,
        tx: &'a Tx,
        letters: &'a [&'a Listed],
        is_bulk: bool,
    ) -> BoxFuture<'a, Result<Vec<Dealt>>> {
        Box::pin(async move {
            let numbers = numbers(letters);
            let listed: Vec<(String, i64)> =
                numbers.iter().map(|(id, number)| (id.clone(), *number)).collect();
            let retried = self.retry_listed_in(tx, &listed, is_bulk).await?;
            let dealt = retried
                .into_iter()
                .map(|(id, done)| Some((*numbers.get(&id)?, done.map(drop).map_err(Into::into))));
            Ok(dealt.flatten().collect())
        })
    }

    fn ignore<'a>(&'a self, tx: &'a Tx, letters: &'a [&'a Listed]) -> BoxFuture<'a, Result<Vec<Dealt>>> {
        Box::pin(async move {
            let numbers = numbers(letters);
            let ignored = self.ignore_letters_in(tx, &references(letters)).await?;
            Ok(ignored.iter().filter_map(|id| Some((*numbers.get(id)?, Ok(())))).collect())
        })
    }

    fn purge<'a>(&'a self, tx: &'a Tx, letters: &'a [&'a Listed]) -> BoxFuture<'a, Result<Vec<Dealt>>> {
        Box::pin(async move {
            self.remove_letters_in(tx, &references(letters)).await?;
            Ok(letters.iter().map(|letter| (letter.number, Ok(()))).collect())
        })
    }
}
