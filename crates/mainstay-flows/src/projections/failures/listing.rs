//! The rows of letters in the inbox, written whenever a letter changes. Only what readers see is listed.

use super::letters::{LETTERS, LetterStatus};
use super::poison::CURRENT;
use mainstay_store::{Bulk, Result, Row, Tx, Value, params};
use mainstay_work::inbox::{self, Entry, PROJECTION, Status};
use std::collections::BTreeSet;
use std::sync::LazyLock;

const COLUMNS: &str = "event_id, projection, status, failed_at, retry_count, correlation_id, \
     coalesce(last_error, error), position";
/// How many are listed with one statement.
const PAGE: i64 = 500;
/// Letters of the old generation that are something else in the new one: put aside, or about to be tried again.
const NO_LETTER_NOW: &str = "SELECT newer.event_id FROM mainstay_projection_failures newer \
     JOIN mainstay_projection_failures older ON older.projection = newer.projection AND older.event_id = newer.event_id \
     WHERE older.projection = $1 AND older.generation = $2 AND older.is_poison = 0 AND newer.generation = $3 \
     AND (newer.is_poison = 1 OR newer.status = 'failing')";
static SOME: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::list(&format!(
        "SELECT {COLUMNS} FROM mainstay_projection_failures \
         WHERE {LETTERS} AND {CURRENT} AND event_id IN ({{values}})"
    ))
});

/// Lists a letter as it is now, or no longer.
pub(super) async fn list(tx: &Tx, projection: &str, event_id: &str) -> Result<()> {
    let sql = format!(
        "SELECT {COLUMNS} FROM mainstay_projection_failures \
         WHERE projection = $1 AND event_id = $2 AND {LETTERS} AND {CURRENT}"
    );
    match tx.query_optional(&sql, params![projection, event_id]).await? {
        Some(row) => put(tx, std::slice::from_ref(&row)).await,
        None => inbox::remove(tx, PROJECTION, projection, Some(event_id)).await,
    }
}

/// Lists letters of these events as they are now.
pub(super) async fn list_events(tx: &Tx, event_ids: &[&str]) -> Result<()> {
    // Once each: an event may have failed for several projections, and all of these are found by it.
    let ids: BTreeSet<&str> = event_ids.iter().copied().collect();
    let ids: Vec<Value> = ids.into_iter().map(Value::from).collect();
    put(tx, &SOME.query(tx, &ids).await?).await
}

/// Lists what has failed in a generation that takes the place of another, whose own letters are all resolved by that. Those
/// keep their rows: how long this takes depends on what has failed in the new one only.
pub(super) async fn take_over(tx: &Tx, projection: &str, old: i64, new: i64) -> Result<()> {
    inbox::resolve(tx, PROJECTION, projection).await?;
    for row in tx.query(NO_LETTER_NOW, params![projection, old, new]).await? {
        inbox::remove(tx, PROJECTION, projection, Some(row.get(0)?)).await?;
    }
    let sql = format!(
        "SELECT {COLUMNS} FROM mainstay_projection_failures \
         WHERE projection = $1 AND generation = $2 AND position > $3 AND {LETTERS} ORDER BY position LIMIT $4"
    );
    let mut after = 0;
    loop {
        let rows = tx.query(&sql, params![projection, new, after, PAGE]).await?;
        let Some(last) = rows.last() else { return Ok(()) };
        after = last.get::<i64>(7)?;
        put(tx, &rows).await?;
    }
}

async fn put(tx: &Tx, rows: &[Row]) -> Result<()> {
    let entry = |row| -> Result<Entry<'_>> {
        let row: &Row = row;
        Ok(Entry {
            kind: PROJECTION,
            name: row.get(1)?,
            reference: row.get(0)?,
            status: match LetterStatus::of(row.get(2)?) {
                LetterStatus::Retrying => Status::Retrying,
                LetterStatus::Resolved => Status::Resolved,
                LetterStatus::Ignored => Status::Ignored,
                LetterStatus::Pending => Status::Pending,
            },
            failed_at: row.get(3)?,
            retries: row.get(4)?,
            correlation: Some(row.get(5)?),
            error: row.get(6)?,
        })
    };
    let entries = rows.iter().map(entry).collect::<Result<Vec<_>>>()?;
    inbox::put(tx, &entries).await
}
