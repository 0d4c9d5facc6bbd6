//! The rows of letters in the inbox, written whenever a letter changes.

use mainstay_store::{Bulk, Result, Row, Tx, Value};
use mainstay_work::inbox::{self, Entry, Kind, Status};
use std::sync::LazyLock;

static LETTERS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::list(
        "SELECT id, target, letter, failed_at, retry_count, correlation_id, error FROM mainstay_publications \
         WHERE letter IS NOT NULL AND id IN ({values})",
    )
});

/// Lists letters as they are now, by the ids of their publications.
pub(super) async fn list<T: AsRef<str>>(tx: &Tx, ids: impl IntoIterator<Item = T>) -> Result<()> {
    let ids: Vec<Value> = ids.into_iter().map(|id| Value::from(id.as_ref())).collect();
    let rows = LETTERS.query(tx, &ids).await?;
    let entries = rows.iter().map(entry).collect::<Result<Vec<_>>>()?;
    inbox::put(tx, &entries).await
}

fn entry(row: &Row) -> Result<Entry<'_>> {
    Ok(Entry {
        kind: Kind::Publication,
        name: row.get(1)?,
        reference: row.get(0)?,
        status: match row.get(2)? {
            "retrying" => Status::Retrying,
            "resolved" => Status::Resolved,
            "ignored" => Status::Ignored,
            _ => Status::Pending,
        },
        failed_at: row.get::<Option<i64>>(3)?.unwrap_or_default(),
        retries: row.get(4)?,
        correlation: row.get(5)?,
        error: row.get::<Option<&str>>(6)?.unwrap_or_default(),
        pool: None,
    })
}
