//! Budgets that have recovered make room for others.
//!
//! A budget that is full is as good as none. For every new one a few others are looked at, one after another through
//! the whole table, so that it holds little more than what is in use, and nothing runs when nobody asks.

use super::apply::NEVER;
use super::directory::{Directory, Named};
use mainstay_core::limits::{Account, State};
use mainstay_store::{Store, Tx, params};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many are looked at for each new one.
const LOOKS_PER_NEW: usize = 4;
/// How many are looked at in one go.
const PAGE: usize = 256;

const NEXT: &str = "SELECT id, version, missing, at_ms, blocked_until FROM mainstay_budgets \
     WHERE id > $1 ORDER BY id LIMIT $2";
/// Unless somebody has used it meanwhile.
const REMOVE: &str = "DELETE FROM mainstay_budgets WHERE id = $1 AND version = $2 AND missing = $3 AND at_ms = $4 AND blocked_until = $5";

/// How far it has come.
#[derive(Default)]
pub(super) struct Sweep(Mutex<Progress>);

#[derive(Default)]
struct Progress {
    /// How many are owed a look.
    owed: usize,
    after: String,
    is_under_way: bool,
}

impl Sweep {
    /// Tells of new budgets; looks at others, beside those who ask, when enough have come.
    pub(super) fn note(self: &Arc<Self>, store: &Store, new: usize) {
        let mut progress = self.progress();
        progress.owed += new * LOOKS_PER_NEW;
        if progress.owed < PAGE || progress.is_under_way {
            return;
        }
        progress.is_under_way = true;
        tokio::spawn(self.clone().run(store.clone()));
    }

    async fn run(self: Arc<Self>, store: Store) {
        let _under_way = UnderWay(&self);
        loop {
            let after = self.progress().after.clone();
            let look = async |tx: Tx, after: String| page(&tx, &after).await;
            match store.transact_with(after, look).await {
                Ok(next) => {
                    let mut progress = self.progress();
                    progress.after = next;
                    progress.owed = progress.owed.saturating_sub(PAGE);
                    if progress.owed < PAGE {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "budgets that have recovered were not removed; that is tried again");
                    return;
                }
            }
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct UnderWay<'a>(&'a Sweep);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.progress().is_under_way = false;
    }
}

/// Looks at a page, and tells where the next one begins.
async fn page(tx: &Tx, after: &str) -> mainstay_store::Result<String> {
    let rows = tx.query(NEXT, params![after, PAGE as i64]).await?;
    let now_ms = tx.now_ms().await?;
    let mut versions: HashMap<(String, i64), Option<Arc<Named>>> = HashMap::new();
    let mut recovered = Vec::new();
    for row in &rows {
        let (id, version): (&str, i64) = (row.get(0)?, row.get(1)?);
        let account = Account {
            state: State { missing: row.get(2)?, at_ms: row.get(3)? },
            blocked_until_ms: row.get(4)?,
        };
        let mut parts = id.split('\n');
        let (name, shard) =
            (parts.next().unwrap_or(""), parts.next().and_then(|shard| shard.parse::<usize>().ok()));
        let key = (name.to_owned(), version);
        if !versions.contains_key(&key) {
            let named = Directory::earlier(tx, name, version).await?.map(Arc::new);
            versions.insert(key.clone(), named);
        }
        let limit = shard.and_then(|shard| versions.get(&key)?.as_ref()?.limits.get(shard).copied());
        let is_idle = match limit {
            Some(limit) => account.is_idle(&limit, now_ms),
            None => version == NEVER,
        };
        if is_idle {
            recovered.push(row.clone().into_values());
        }
    }
    tx.execute_many(REMOVE, &recovered).await?;
    let last = if rows.len() < PAGE { None } else { rows.last() };
    last.map_or(Ok(String::new()), |row| row.get(0))
}
