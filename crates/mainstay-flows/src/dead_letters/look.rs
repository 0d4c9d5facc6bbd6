//! Lists, counts and groups of letters, and one letter with its history.

use super::opened::{DeadLetters, Shared};
use crate::attempts::Attempt;
use crate::delivery::publications;
use crate::error::{Error, Result};
use crate::projections;
use mainstay_store::Tx;
use mainstay_work::inbox::{self, Counted, Filter, Group, Listed, PROJECTION, PUBLICATION, Status};
use serde::Serialize;

/// How many letters there are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// All of them.
    pub total: u64,
    /// Those that nobody has dealt with.
    pub pending: u64,
    /// When the oldest of those failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_pending: Option<i64>,
    /// By status, kind and name.
    pub counts: Vec<Counted>,
}

/// A letter with all that is known of it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Detail {
    /// The letter as it is listed.
    #[serde(flatten)]
    pub letter: Listed,
    /// What has failed so far, the newest last; also before it was tried again.
    pub attempts: Vec<Attempt>,
    /// The letter of an item of work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<mainstay_work::Letter>,
    /// The letter of a projection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub projection: Option<projections::failures::Letter>,
    /// The letter of a publication.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publication: Option<publications::Letter>,
}

pub(super) fn not_found(number: i64) -> Error {
    mainstay_work::Error::LetterNotFound(Listed::id(number)).into()
}

impl DeadLetters {
    /// A page of letters, the newest first; `before` is the number of the last one of the page before.
    pub async fn list(&self, filter: Filter, before: Option<i64>, limit: usize) -> Result<Vec<Listed>> {
        filter.check()?;
        let read = async |tx: Tx, (filter, before, limit): (Filter, Option<i64>, usize)| {
            inbox::page(&tx, &filter, before, limit).await
        };
        Ok(self.shared.store.read_with((filter, before, limit), read).await?)
    }

    /// How many letters there are, by status, kind and name.
    pub async fn stats(&self, filter: Filter) -> Result<Stats> {
        filter.check()?;
        let read = async |tx: Tx, filter: Filter| inbox::counts(&tx, &filter, i64::MAX).await;
        let counts = self.shared.store.read_with(filter, read).await?;
        let mut stats = Stats { counts, ..Stats::default() };
        for counted in &stats.counts {
            stats.total += counted.count;
            if counted.status == Status::Pending {
                stats.pending += counted.count;
                let oldest = counted.oldest_failed_at;
                stats.oldest_pending = Some(stats.oldest_pending.map_or(oldest, |other| other.min(oldest)));
            }
        }
        Ok(stats)
    }

    /// The largest groups of letters that have failed in the same way; pending ones unless the filter says otherwise.
    pub async fn groups(&self, filter: Filter, limit: usize) -> Result<Vec<Group>> {
        filter.check()?;
        let filter = Filter { status: Some(filter.status.unwrap_or(Status::Pending)), ..filter };
        let read = async |tx: Tx, (filter, limit): (Filter, usize)| inbox::groups(&tx, &filter, limit).await;
        Ok(self.shared.store.read_with((filter, limit), read).await?)
    }

    /// One letter, with all that is known of it.
    pub async fn get(&self, number: i64) -> Result<Detail> {
        let read = async |tx: Tx, number: i64| inbox::find(&tx, number).await;
        let letter = self.shared.store.read_with(number, read).await?.ok_or_else(|| not_found(number))?;
        let mut detail =
            Detail { letter, attempts: Vec::new(), work: None, projection: None, publication: None };
        let (name, reference) = (detail.letter.name.clone(), detail.letter.reference.clone());
        let Shared { projections, publisher, .. } = &*self.shared;
        let work_id = match &*detail.letter.kind {
            PROJECTION => {
                // One of another program's projections is only listed.
                detail.projection = projections.letter(&name, &reference).await.ok();
                detail.attempts = projections.attempts_of(&name, &reference).await?;
                detail.projection.as_ref().and_then(|letter| letter.retry_run_id.clone())
            }
            PUBLICATION => {
                detail.publication = publisher.letter_of(&reference).await?;
                detail.attempts = publisher.attempts_of(&reference).await?;
                detail.publication.as_ref().and_then(|letter| letter.work_id.clone())
            }
            _ => Some(reference),
        };
        let Some(work_id) = work_id else { return Ok(detail) };
        let history = self.shared.work.letter_history(&work_id).await?;
        for letter in history.iter().rev() {
            let failed = letter.errors.iter().map(|one| Attempt::of(&letter.work_id, one.clone()));
            detail.attempts.extend(failed);
        }
        if detail.projection.is_none() && detail.publication.is_none() {
            detail.work = history.into_iter().next();
        }
        Ok(detail)
    }
}
