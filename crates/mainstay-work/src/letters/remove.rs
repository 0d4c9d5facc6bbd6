//! Taking letters out: for whoever keeps them otherwise, or because they are old.

use super::look::history;
use super::table::{Written, hold, known_ids};
use crate::enqueue::{parse, text, uuid};
use crate::error::Result;
use crate::inbox;
use crate::item::Attempted;
use crate::work::Work;
use mainstay_store::Column::Blob;
use mainstay_store::{Bulk, Tx, Value, params};
use std::collections::HashMap;
use std::sync::LazyLock;
use uuid::Uuid;

static REMOVE: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::among("DELETE FROM mainstay_letters WHERE id IN ({values}) RETURNING letter", Blob)
});
const PURGE: &str = "DELETE FROM mainstay_letters WHERE number IN (SELECT number FROM mainstay_letters \
     WHERE failed_at < $1 ORDER BY number LIMIT 1000) RETURNING id";

impl Work {
    /// Removes letters in a transaction, whatever was done about them, with those of the items that they try again.
    pub async fn remove_letters_in(&self, tx: &Tx, work_ids: &[String]) -> mainstay_store::Result<()> {
        let mut next = known_ids(work_ids);
        while !next.is_empty() {
            let values: Vec<Value> = next.iter().map(|id| Value::Blob(id.into_bytes().to_vec())).collect();
            let removed = REMOVE.query(tx, &values).await?;
            next = removed.iter().filter_map(|row| earlier(row.get(0).ok()?)).collect();
        }
        inbox::write::removed(tx, work_ids).await
    }

    /// Takes letters of unlisted items over, in a transaction: they are removed with those of the items that they try again,
    /// and whoever keeps the letter otherwise is given what has failed, the oldest first.
    pub async fn take_letters_in(
        &self,
        tx: &Tx,
        work_ids: &[String],
    ) -> mainstay_store::Result<HashMap<String, Vec<(String, Attempted)>>> {
        let mut taken = HashMap::new();
        for row in hold(tx, &known_ids(work_ids)).await? {
            let id = text(uuid(row.get(1)?));
            let history = history(self, tx, &id).await?;
            let attempts = history.into_iter().rev().flat_map(|letter| {
                letter.errors.into_iter().map(move |attempted| (letter.work_id.clone(), attempted))
            });
            taken.insert(id, attempts.collect());
        }
        if !taken.is_empty() {
            self.remove_letters_in(tx, &taken.keys().cloned().collect::<Vec<_>>()).await?;
        }
        Ok(taken)
    }

    /// Removes letters that failed before a moment, whatever was done about them; how many.
    pub async fn purge_letters(&self, before_ms: i64) -> Result<u64> {
        let mut purged = 0;
        loop {
            let purge = async |tx: Tx, before_ms: i64| {
                let rows = tx.query(PURGE, params![before_ms]).await?;
                let ids = rows.iter().map(|row| Ok(text(uuid(row.get(0)?))));
                let ids = ids.collect::<mainstay_store::Result<Vec<String>>>()?;
                inbox::write::removed(&tx, &ids).await?;
                Ok(ids.len() as u64)
            };
            let count = self.store().transact_with(before_ms, purge).await?;
            purged += count;
            if count == 0 {
                return Ok(purged);
            }
        }
    }
}

/// The item that one tries again whose letter this is. One that cannot be read tries nothing again.
fn earlier(letter: &str) -> Option<Uuid> {
    let written: Written = serde_json::from_str(letter).ok()?;
    written.item.retry_of.as_deref().and_then(parse)
}
