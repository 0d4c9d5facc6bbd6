//! Failed events as a source of dead letters: letters of projections, and quarantined events.

use super::listing::LISTED;
use super::many::{Family, LETTERS, QUARANTINE, Which};
use super::poison::CURRENT;
use crate::attempts::{self, Attempt};
use crate::error::Error;
use crate::projections::opened::Projections;
use futures_util::future::BoxFuture;
use mainstay_store::{Result, Tx, params};
use mainstay_work::inbox::{Dealt, Detail, Kind, Listed, Refused, Source};
use std::collections::HashMap;

/// Letters of one family, and their numbers.
fn family(letters: &[&Listed], kind: &Kind) -> (Vec<Which>, HashMap<Which, i64>) {
    let own = letters.iter().filter(|letter| letter.kind == *kind);
    let numbers: HashMap<Which, i64> =
        own.map(|letter| ((letter.name.clone(), letter.reference.clone()), letter.number)).collect();
    (numbers.keys().cloned().collect(), numbers)
}

const FAMILIES: [(Kind, Family); 2] = [(Kind::Projection, LETTERS), (Kind::QuarantinedEvent, QUARANTINE)];

fn refused(error: Error) -> Refused {
    let is_elsewhere = matches!(error, Error::UnknownProjection(_));
    Refused { entry: error.entry(), error: error.into(), is_elsewhere }
}

fn all_done(which: Vec<Which>, numbers: &HashMap<Which, i64>) -> impl Iterator<Item = Dealt> {
    which.into_iter().filter_map(|which| Some((*numbers.get(&which)?, Ok(()))))
}

impl Projections {
    /// Failed attempts of a listed event, the newest last, including those of a run that an older program kept as work.
    async fn attempts_of(&self, projection: &str, key: &str) -> Result<Vec<Attempt>> {
        let read = async |tx: Tx, (projection, key): (String, String)| {
            let sql = format!(
                "SELECT history, retry_run_id FROM mainstay_projection_failures \
                 WHERE projection = $1 AND event_id = $2 AND {LISTED} AND {CURRENT}"
            );
            let Some(row) = tx.query_optional(&sql, params![projection, key]).await? else {
                return Ok((Vec::new(), None));
            };
            Ok((attempts::read(row.get(0)?), row.get::<Option<String>>(1)?))
        };
        let context = (projection.to_owned(), key.to_owned());
        let (mut attempts, run_id) = self.shared.store.read_with(context, read).await?;
        if let Some(run_id) = run_id {
            attempts.extend(self.shared.work.attempts_of(&run_id).await?);
        }
        Ok(attempts)
    }
}

impl Source for Projections {
    fn keeps(&self, kind: &Kind) -> bool {
        FAMILIES.iter().any(|(own, _)| own == kind)
    }

    fn detail<'a>(&'a self, letter: &'a Listed) -> BoxFuture<'a, Result<Option<Detail>>> {
        Box::pin(async move {
            let (name, key) = (&letter.name, &letter.reference);
            if letter.kind == Kind::QuarantinedEvent {
                let found = self.quarantined_at(name, key).await?;
                return found.map(|event| Detail::new("quarantinedEvent", &event)).transpose();
            }
            match self.letter_of(name, key).await {
                Ok(letter) => Detail::new("projection", &letter).map(Some),
                // One of another program's projections is only listed.
                Err(Error::UnknownProjection(_) | Error::LetterNotFound(_)) => Ok(None),
                Err(error) => Err(error.into()),
            }
        })
    }

    fn history<'a>(&'a self, letter: &'a Listed) -> BoxFuture<'a, Result<Vec<Attempt>>> {
        Box::pin(self.attempts_of(&letter.name, &letter.reference))
    }

    fn retry<'a>(
        &'a self,
        tx: &'a Tx,
        letters: &'a [&'a Listed],
        is_bulk: bool,
    ) -> BoxFuture<'a, Result<Vec<Dealt>>> {
        Box::pin(async move {
            let mut dealt = Vec::with_capacity(letters.len());
            for (kind, of) in FAMILIES {
                let (which, numbers) = family(letters, &kind);
                if which.is_empty() {
                    continue;
                }
                for (which, done) in self.retry_in(tx, of, &which, is_bulk).await? {
                    let Some(number) = numbers.get(&which) else { continue };
                    dealt.push((*number, done.map(drop).map_err(refused)));
                }
            }
            Ok(dealt)
        })
    }

    fn ignore<'a>(&'a self, tx: &'a Tx, letters: &'a [&'a Listed]) -> BoxFuture<'a, Result<Vec<Dealt>>> {
        Box::pin(async move {
            let mut dealt = Vec::with_capacity(letters.len());
            for (kind, of) in FAMILIES {
                let (which, numbers) = family(letters, &kind);
                if !which.is_empty() {
                    dealt.extend(all_done(self.ignore_in(tx, of, &which).await?, &numbers));
                }
            }
            Ok(dealt)
        })
    }

    fn purge<'a>(&'a self, tx: &'a Tx, letters: &'a [&'a Listed]) -> BoxFuture<'a, Result<Vec<Dealt>>> {
        Box::pin(async move {
            let mut dealt = Vec::with_capacity(letters.len());
            for (kind, of) in FAMILIES {
                let (which, numbers) = family(letters, &kind);
                if !which.is_empty() {
                    dealt.extend(all_done(self.remove_in(tx, of, &which).await?, &numbers));
                }
            }
            Ok(dealt)
        })
    }
}
