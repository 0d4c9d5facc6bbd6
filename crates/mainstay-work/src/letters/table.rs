//! The table of letters: their rows, as work writes them when an item ends, and as they are read and held.

use super::{Letter, LetterStatus};
use crate::enqueue::{parse, text, uuid};
use crate::error::{Error, Result};
use crate::inbox::{self, Kind};
use crate::item::Item;
use crate::work::Work;
use mainstay_store::Column::{Blob, Int, Text};
use mainstay_store::{Bulk, Hold, Row, Tx, Value, params};
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;
use uuid::Uuid;

/// A letter as it is kept.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Written {
    pub(super) item: Item,
    pub(super) error: String,
    /// As it was written before it had a column.
    #[serde(default, skip_serializing)]
    retried_as: Option<String>,
}

pub(crate) static INSERT: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::insert(
        "INSERT INTO mainstay_letters (id, pool, name, kind, status, failed_at, letter) VALUES {rows}",
        &[Blob, Int, Text, Text, Int, Int, Text],
    )
});
pub(super) const COLUMNS: &str = "number, id, pool, name, kind, status, failed_at, letter, retried_as";
static HOLD: LazyLock<Bulk> = LazyLock::new(|| {
    let text = format!("SELECT {COLUMNS} FROM mainstay_letters WHERE id IN ({{values}}) ORDER BY number");
    Bulk::among(&text, Blob)
});
/// What was to try a letter again was cancelled.
pub(crate) static RETURN: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::among("UPDATE mainstay_letters SET status = 0 WHERE status + 0 = 1 AND id IN ({values})", Blob)
});

/// The kind of letter that an item becomes, unless it is `work`. One that tries it again becomes the same.
pub(crate) fn own_kind(item: &Item) -> Option<Kind> {
    item.letter_kind.clone().or(item.completes.as_ref().map(|_| Kind::OnComplete))
}

/// The kind of letter that an item becomes.
pub(crate) fn kind(item: &Item) -> Kind {
    own_kind(item).unwrap_or(Kind::Work)
}

/// The row of a letter.
pub(crate) fn row(
    id: Uuid,
    pool: i64,
    item: &Item,
    error: &str,
    status: LetterStatus,
    now_ms: i64,
) -> mainstay_store::Result<[Value; 7]> {
    let written = Written { item: item.clone(), error: error.to_owned(), retried_as: None };
    Ok([
        Value::Blob(id.into_bytes().to_vec()),
        Value::Int(pool),
        Value::from(&item.function),
        Value::from(kind(item).as_str()),
        Value::Int(status.number()),
        Value::Int(now_ms),
        Value::Text(serde_json::to_string(&written).map_err(mainstay_store::Error::application)?),
    ])
}

/// The row of a letter in the inbox.
pub(crate) fn entry<'a>(
    (pool, reference): (i64, &'a str),
    item: &'a Item,
    error: &'a str,
    failed_at: i64,
) -> inbox::Entry<'a> {
    inbox::Entry {
        kind: kind(item),
        name: &item.function,
        reference,
        status: inbox::Status::Pending,
        failed_at,
        retries: u32::from(item.letter.is_some()),
        correlation: item.correlation.as_deref(),
        error,
        pool: Some(pool),
    }
}

pub(super) fn letter_id(work_id: &str) -> Result<Uuid> {
    parse(work_id).ok_or_else(|| Error::LetterNotFound(work_id.to_owned()))
}

/// The ids among texts that may be ours.
pub(super) fn known_ids(work_ids: &[String]) -> Vec<Uuid> {
    work_ids.iter().filter_map(|id| parse(id)).collect()
}

pub(super) async fn find(tx: &Tx, id: Uuid) -> mainstay_store::Result<Option<Row>> {
    let sql = format!("SELECT {COLUMNS} FROM mainstay_letters WHERE id = $1");
    tx.query_optional(&sql, params![&id.as_bytes()[..]]).await
}

/// Letters, held until the transaction ends, in the order they failed in.
pub(super) async fn hold(tx: &Tx, ids: &[Uuid]) -> mainstay_store::Result<Vec<Row>> {
    let values: Vec<Value> = ids.iter().map(|id| Value::Blob(id.into_bytes().to_vec())).collect();
    HOLD.query_holding(tx, &values, Hold::Alone).await
}

pub(super) fn written(row: &Row) -> mainstay_store::Result<Written> {
    serde_json::from_str(row.get(7)?).map_err(mainstay_store::Error::application)
}

pub(super) async fn letter(work: &Work, tx: &Tx, row: &Row) -> mainstay_store::Result<Letter> {
    let written = written(row)?;
    Ok(Letter {
        number: row.get(0)?,
        work_id: text(uuid(row.get(1)?)),
        pool: work.ground().directory.pool_name(tx, row.get(2)?).await?,
        function: row.get(3)?,
        kind: Kind::from(row.get::<&str>(4)?),
        status: LetterStatus::of(row.get(5)?),
        failed_at: row.get(6)?,
        error: written.error,
        attempts: written.item.attempts,
        errors: written.item.errors,
        args: written.item.args,
        context: written.item.context,
        key: written.item.key,
        retried_as: row.get::<Option<&[u8]>>(8)?.map(|id| text(uuid(id))).or(written.retried_as),
        is_listed: !written.item.is_unlisted,
    })
}
