//! Rows of failed events in the inbox, written whenever a failure changes. Only the generation that readers see is listed.

use super::letters::LetterStatus;
use super::poison::CURRENT;
use mainstay_store::{Bulk, Result, Row, Tx, Value, params};
use mainstay_work::inbox::{self, Entry, Kind, Status};
use std::collections::BTreeSet;
use std::sync::LazyLock;

const COLUMNS: &str = "event_id, projection, status, failed_at, retry_count, correlation_id, \
     coalesce(last_error, error), position, is_poison";
/// Condition on rows that are listed: letters and quarantined events.
pub(super) const LISTED: &str = "status <> 'failing'";
/// How many are listed with one statement.
const PAGE: i64 = 500;
/// Events that were listed in the old generation as one kind, and are another kind in the new one or about to be tried again.
const OTHER_NOW: &str = "SELECT newer.event_id FROM mainstay_projection_failures newer \
     JOIN mainstay_projection_failures older ON older.projection = newer.projection AND older.event_id = newer.event_id \
     WHERE older.projection = $1 AND older.generation = $2 AND older.is_poison = $4 AND newer.generation = $3 \
     AND (newer.is_poison <> $4 OR newer.status = 'failing')";
const IS_THERE: &str =
    "SELECT 1 FROM mainstay_projection_failures WHERE projection = $1 AND event_id = $2 AND {current}";
static SOME: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::list(&format!(
        "SELECT {COLUMNS} FROM mainstay_projection_failures \
         WHERE {LISTED} AND {CURRENT} AND event_id IN ({{values}})"
    ))
});

fn kind(is_poison: bool) -> Kind {
    if is_poison { Kind::QuarantinedEvent } else { Kind::Projection }
}

/// Lists a failed event as it is now, or removes it from the list.
pub(super) async fn list(tx: &Tx, projection: &str, event_id: &str) -> Result<()> {
    let sql = format!(
        "SELECT {COLUMNS} FROM mainstay_projection_failures \
         WHERE projection = $1 AND event_id = $2 AND {LISTED} AND {CURRENT}"
    );
    match tx.query_optional(&sql, params![projection, event_id]).await? {
        Some(row) => put(tx, std::slice::from_ref(&row)).await,
        None => {
            inbox::remove(tx, &Kind::Projection, projection, Some(event_id)).await?;
            inbox::remove(tx, &Kind::QuarantinedEvent, projection, Some(event_id)).await
        }
    }
}

/// Lists a failed event that was of the other kind before.
pub(super) async fn list_as(tx: &Tx, projection: &str, event_id: &str, is_poison: bool) -> Result<()> {
    inbox::remove(tx, &kind(!is_poison), projection, Some(event_id)).await?;
    list(tx, projection, event_id).await
}

/// Resolves a quarantined event whose record is removed, because it is in the read model now.
pub(super) async fn resolve(tx: &Tx, projection: &str, event_id: &str) -> Result<()> {
    let is_there = IS_THERE.replace("{current}", CURRENT);
    match tx.query_optional(&is_there, params![projection, event_id]).await? {
        Some(_) => Ok(()),
        None => inbox::resolve_retried(tx, &Kind::QuarantinedEvent, projection, Some(event_id)).await,
    }
}

/// Lists failures of these events as they are now.
pub(super) async fn list_events(tx: &Tx, event_ids: &[&str]) -> Result<()> {
    // Once each: an event may have failed for several projections, and all of these are found by it.
    let ids: BTreeSet<&str> = event_ids.iter().copied().collect();
    let ids: Vec<Value> = ids.into_iter().map(Value::from).collect();
    put(tx, &SOME.query(tx, &ids).await?).await
}

/// Lists failures of a generation that takes the place of another. Letters of the old one are resolved by that and keep their
/// rows; its quarantined events stay quarantined. The time depends on failures in the new generation only.
pub(super) async fn take_over(tx: &Tx, projection: &str, old: i64, new: i64) -> Result<()> {
    inbox::resolve(tx, &Kind::Projection, projection).await?;
    inbox::resolve_retried(tx, &Kind::QuarantinedEvent, projection, None).await?;
    for is_poison in [false, true] {
        for row in tx.query(OTHER_NOW, params![projection, old, new, i64::from(is_poison)]).await? {
            inbox::remove(tx, &kind(is_poison), projection, Some(row.get(0)?)).await?;
        }
    }
    let sql = format!(
        "SELECT {COLUMNS} FROM mainstay_projection_failures \
         WHERE projection = $1 AND generation = $2 AND position > $3 AND {LISTED} ORDER BY position LIMIT $4"
    );
    let mut after = 0;
    loop {
        let rows = tx.query(&sql, params![projection, new, after, PAGE]).await?;
        let Some(last) = rows.last() else { return Ok(()) };
        after = last.get::<i64>(7)?;
        put(tx, &rows).await?;
    }
}

/// The status in the inbox of a row's status.
fn status(is_poison: bool, kept: &str) -> Status {
    match (is_poison, kept) {
        (true, "replayed") => Status::Retrying,
        (true, "ignored") => Status::Ignored,
        (true, _) => Status::Pending,
        (false, kept) => match LetterStatus::of(kept) {
            LetterStatus::Retrying => Status::Retrying,
            LetterStatus::Resolved => Status::Resolved,
            LetterStatus::Ignored => Status::Ignored,
            LetterStatus::Pending => Status::Pending,
        },
    }
}

async fn put(tx: &Tx, rows: &[Row]) -> Result<()> {
    let entry = |row| -> Result<Entry<'_>> {
        let row: &Row = row;
        let is_poison = row.get::<i64>(8)? == 1;
        Ok(Entry {
            kind: kind(is_poison),
            name: row.get(1)?,
            reference: row.get(0)?,
            status: status(is_poison, row.get(2)?),
            failed_at: row.get(3)?,
            retries: row.get(4)?,
            correlation: Some(row.get(5)?),
            error: row.get(6)?,
            pool: None,
        })
    };
    let entries = rows.iter().map(entry).collect::<Result<Vec<_>>>()?;
    inbox::put(tx, &entries).await
}
