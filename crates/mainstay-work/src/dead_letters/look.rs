//! Lists, counts and groups of letters, and one letter with its history.

use super::opened::{DeadLetters, Shared};
use super::operations::CHUNK;
use crate::error::{Error, Result};
use crate::inbox::{self, Attempt, Chunk, Counted, Filter, Groups, Kind, Listed, Page, Status};
use mainstay_store::Tx;
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

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
    /// Letters of the kind `projection`, under `{projection}:{status}` (items 217 and 228).
    pub by_projection_and_status: BTreeMap<String, u64>,
    /// Whether only the newest letters were looked at: as many as a search may.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_partial: bool,
}

/// A letter with all that is known of it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Detail {
    /// The letter as it is listed.
    #[serde(flatten)]
    pub letter: Listed,
    /// Failed attempts, the newest last, including those before a retry.
    pub attempts: Vec<Attempt>,
    /// The letter as its source shows it, under the source's name: `work`, `projection`, `quarantinedEvent`, `publication`.
    #[serde(flatten)]
    pub about: BTreeMap<&'static str, Box<RawValue>>,
}

pub(super) fn not_found(number: i64) -> Error {
    Error::LetterNotFound(Listed::id(number))
}

impl Shared {
    /// The next letters of a filter between two numbers, looked for on a snapshot: a search must not hold the writer. It takes a
    /// turn among the searches of the store, however long that takes. `retries` is how often they were tried again, if that
    /// matters.
    pub(super) async fn next_letters(
        &self,
        filter: &Filter,
        retries: Option<u32>,
        between: (i64, i64),
    ) -> mainstay_store::Result<Chunk> {
        type Looking = (Filter, Option<u32>, (i64, i64));
        let look = async |tx: Tx, (filter, retries, between): Looking| match (retries, &filter) {
            (Some(retries), Filter { kind: Some(kind), failed_before: Some(before), .. }) => {
                inbox::due(&tx, (kind, retries), *before, between, CHUNK).await
            }
            (_, filter) => inbox::waiting(&tx, filter, between, CHUNK).await,
        };
        let looking = (filter.clone(), retries, between);
        if !filter.is_search() {
            return self.store.read_with(looking, look).await;
        }
        loop {
            match self.store.search_with(looking.clone(), look).await {
                Err(mainstay_store::Error::SearchBusy) => {}
                found => return found,
            }
        }
    }
}

impl DeadLetters {
    /// A page of letters, the newest first; `before` is the `next` of the page before.
    pub async fn list(&self, filter: Filter, before: Option<i64>, limit: usize) -> Result<Page> {
        filter.check()?;
        let read = async |tx: Tx, (filter, before, limit): (Filter, Option<i64>, usize)| {
            inbox::page(&tx, &filter, before, limit).await
        };
        let store = &self.shared.store;
        Ok(match filter.is_search() {
            true => store.search_with((filter, before, limit), read).await?,
            false => store.read_with((filter, before, limit), read).await?,
        })
    }

    /// How many letters there are, by status, kind and name.
    pub async fn stats(&self, filter: Filter) -> Result<Stats> {
        filter.check()?;
        let read = async |tx: Tx, filter: Filter| inbox::counts(&tx, &filter, i64::MAX).await;
        let store = &self.shared.store;
        let (counts, is_partial) = match filter.is_narrow() {
            true => store.search_with(filter, read).await?,
            false => store.read_with(filter, read).await?,
        };
        let mut stats = Stats { counts, is_partial, ..Stats::default() };
        for counted in &stats.counts {
            stats.total += counted.count;
            if counted.kind == Kind::Projection {
                let key = format!("{}:{}", counted.name, counted.status.as_str());
                stats.by_projection_and_status.insert(key, counted.count);
            }
            if counted.status == Status::Pending {
                stats.pending += counted.count;
                let oldest = counted.oldest_failed_at;
                stats.oldest_pending = Some(stats.oldest_pending.map_or(oldest, |other| other.min(oldest)));
            }
        }
        Ok(stats)
    }

    /// The largest groups of letters that have failed in the same way; pending ones unless the filter says otherwise.
    pub async fn groups(&self, filter: Filter, limit: usize) -> Result<Groups> {
        filter.check()?;
        let filter = Filter { status: Some(filter.status.unwrap_or(Status::Pending)), ..filter };
        let read = async |tx: Tx, (filter, limit): (Filter, usize)| inbox::groups(&tx, &filter, limit).await;
        let store = &self.shared.store;
        Ok(match filter.is_narrow() {
            true => store.search_with((filter, limit), read).await?,
            false => store.read_with((filter, limit), read).await?,
        })
    }

    /// One letter, with all that is known of it.
    pub async fn get(&self, number: i64) -> Result<Detail> {
        let read = async |tx: Tx, number: i64| inbox::find(&tx, number).await;
        let letter = self.shared.store.read_with(number, read).await?.ok_or_else(|| not_found(number))?;
        let Some(source) = self.shared.sources.of(&letter.kind) else {
            return Ok(Detail { letter, attempts: Vec::new(), about: BTreeMap::new() });
        };
        let attempts = source.history(&letter).await?;
        let about = source.detail(&letter).await?.map(|detail| (detail.member, detail.value));
        Ok(Detail { letter, attempts, about: about.into_iter().collect() })
    }
}
