//! Budgets that have recovered: a budget that is full is as good as none.

use super::directory::{Directory, Named};
use super::sweep::{PAGE, Pages};
use mainstay_core::limits::{Account, State};
use mainstay_store::{Tx, params};
use std::collections::HashMap;
use std::sync::Arc;

const NEXT: &str = "SELECT id, version, missing, at_ms, blocked_until FROM mainstay_budgets \
     WHERE id > $1 ORDER BY id LIMIT $2";
/// Unless somebody has used it meanwhile.
const REMOVE: &str = "DELETE FROM mainstay_budgets WHERE id = $1 AND version = $2 AND missing = $3 AND at_ms = $4 AND blocked_until = $5";

/// The table of budgets.
pub(super) struct Budgets;

impl Pages for Budgets {
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
                // A budget that was never used, or one of a limit that was deleted.
                None => true,
            };
            if is_idle {
                recovered.push(row.clone().into_values());
            }
        }
        tx.execute_many(REMOVE, &recovered).await?;
        let last = if rows.len() < PAGE { None } else { rows.last() };
        last.map_or(Ok(String::new()), |row| row.get(0))
    }
}
