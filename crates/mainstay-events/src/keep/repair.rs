//! Makes the index agree with the log again, while both are in use.
//!
//! What to do is found on snapshots and done in small transactions. Events and their entries never change, so what was
//! missing a moment ago still is; but an entry beyond the head may have become an event's own since, so what is taken
//! away is judged again where nobody can append. Stopped at any point, it is finished by running it again.

use super::report::{Progress, Stage};
use super::walk::{self, Entries, Entry, Events, Named};
use crate::error::Result;
use crate::index::{self, Terms};
use crate::log::Log;
use mainstay_store::{Tx, Value};
use serde::Serialize;

/// Entries that one transaction adds or takes away: a few milliseconds at most.
const CHUNK: usize = 256;

/// What was done to the index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Repaired {
    /// Entries that were missing.
    pub added: u64,
    /// Entries that no event accounts for.
    pub removed: u64,
}

impl Log {
    /// Adds the entries that the index lacks and takes away those that no event accounts for.
    ///
    /// Entries of events that are damaged or missing stay: nobody knows what they should be, and an append that depends
    /// on such an event must go on being refused.
    pub async fn repair_index(&self, mut progress: impl FnMut(Progress) + Send) -> Result<Repaired> {
        let mut repaired = Repaired::default();
        let (store, head) = (self.store(), self.head().await?);
        if let Some(recent) = &self.ground().recent {
            index::merge_all(store, recent, head).await?;
        }
        let mut events = Events::new(store, head);
        while let Some(page) = events.next().await? {
            let mut wanted = Vec::new();
            for event in page.found.iter().filter_map(|found| found.event.as_ref().ok()) {
                walk::entries_of(self.terms(), event, &mut wanted);
            }
            if !wanted.is_empty() {
                let missing: Vec<Entry> = walk::missing(store, wanted).await?.into_iter().collect();
                for chunk in missing.chunks(CHUNK) {
                    store.transact_with(values(chunk), add).await?;
                    repaired.added += chunk.len() as u64;
                }
            }
            progress(Progress { stage: Stage::Events, done: page.reached.max(0) as u64, of: Some(head) });
        }
        let (mut entries, mut done) = (Entries::new(store), 0);
        while let Some(page) = entries.next().await? {
            done += page.entries.len() as u64;
            let named = walk::headers(store, page.entries.iter().map(|(_, position)| *position)).await?;
            let foreign: Vec<Entry> = page
                .entries
                .into_iter()
                .filter(|entry| is_foreign(self.terms(), *entry, named.get(&entry.1), head))
                .collect();
            for chunk in foreign.chunks(CHUNK) {
                let removal = Removal {
                    entries: chunk.to_vec(),
                    terms: self.terms(),
                    concurrent_writers: store.capabilities().concurrent_writers,
                };
                repaired.removed += store.transact_with(removal, remove).await?;
            }
            progress(Progress { stage: Stage::Index, done, of: None });
        }
        Ok(repaired)
    }
}

fn is_foreign(terms: Terms, (term, position): Entry, named: Option<&Named>, head: u64) -> bool {
    match named {
        Some(Some(event)) => {
            let mut own = Vec::new();
            terms.of(event, &mut own);
            own.binary_search(&term).is_err()
        }
        Some(None) => false,
        None => !u64::try_from(position).is_ok_and(|position| (1..=head).contains(&position)),
    }
}

fn values(entries: &[Entry]) -> Vec<Value> {
    entries.iter().flat_map(|(term, position)| [Value::Int(*term), Value::Int(*position)]).collect()
}

async fn add(tx: Tx, values: Vec<Value>) -> mainstay_store::Result<()> {
    index::insert_terms(&tx, &values).await
}

#[derive(Clone)]
struct Removal {
    entries: Vec<Entry>,
    terms: Terms,
    concurrent_writers: bool,
}

/// Nobody appends while it is held. On SQLite a transaction has the writer to itself.
const HOLD_HEAD: &str = "SELECT position FROM mainstay_log_head WHERE id = 1 FOR UPDATE";
const REMOVE: &str = "DELETE FROM mainstay_event_terms WHERE term = $1 AND position = $2";

async fn remove(tx: Tx, removal: Removal) -> mainstay_store::Result<u64> {
    let sql = if removal.concurrent_writers { HOLD_HEAD } else { crate::log::HEAD };
    let head = tx.query_optional(sql, &[]).await?.map_or(Ok(None), |row| row.get::<Option<u64>>(0))?;
    let positions: Vec<i64> = removal.entries.iter().map(|(_, position)| *position).collect();
    let named: std::collections::HashMap<i64, Named> =
        walk::headers_in(&tx, &positions).await?.into_iter().collect();
    let still = removal
        .entries
        .iter()
        .filter(|entry| is_foreign(removal.terms, **entry, named.get(&entry.1), head.unwrap_or(0)));
    let rows: Vec<Vec<Value>> = still.map(|entry| values(&[*entry])).collect();
    tx.execute_many(REMOVE, &rows).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{COMPONENT, NewEvent, Selection};
    use mainstay_testkit::stores::for_each_store;

    #[test]
    fn what_has_become_an_events_own_is_not_removed() {
        for_each_store(async |place| {
            let store = place.options().component(COMPONENT).open().await.unwrap();
            let log = Log::open(&store).await.unwrap();
            log.append(NewEvent::new("A", &1).unwrap().tag("x")).await.unwrap();
            let event = log.read(&Selection::all(), 1).await.unwrap().events.pop().unwrap();
            let mut entries = Vec::new();
            walk::entries_of(log.terms(), &event, &mut entries);
            // As if it had been found foreign a moment before the append.
            let removal = Removal {
                entries,
                terms: log.terms(),
                concurrent_writers: store.capabilities().concurrent_writers,
            };
            assert_eq!(store.transact_with(removal.clone(), remove).await.unwrap(), 0);
            let stray = vec![(5, 2), (5, 1)];
            store.transact_with(values(&stray), add).await.unwrap();
            let removal = Removal { entries: stray, ..removal };
            assert_eq!(store.transact_with(removal, remove).await.unwrap(), 2);
        });
    }
}
