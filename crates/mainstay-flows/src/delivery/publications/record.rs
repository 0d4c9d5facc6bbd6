//! The table of publications: what is written to it, and how a row is read.

use super::event::PublicEvent;
use super::listing;
use super::target::DeliveryKey;
use crate::attempts::{self, Attempt};
use crate::tenants::{self, FIRST_TWO};
use futures_util::future::try_join_all;
use mainstay_core::failure::Failure;
use mainstay_store::Column::{Int, Text};
use mainstay_store::{Bulk, Hold, Result, Row, Tx, Value, params};
use std::collections::HashMap;
use std::sync::LazyLock;

/// A row that is to be written.
pub(super) struct New<'a> {
    pub(super) id: String,
    /// The id of the source's event, by which the publication is known.
    pub(super) event_id: &'a str,
    pub(super) target: &'a str,
    /// The tenant of the source's event; empty for none.
    pub(super) tenant: &'a str,
    pub(super) source_context: &'a str,
    pub(super) event: PublicEvent,
    /// The item that will deliver it.
    pub(super) work_id: String,
    /// Why it cannot be translated.
    pub(super) error: Option<Failure>,
}

/// A row as deliveries and operators need it.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) id: String,
    pub(super) event_id: String,
    pub(super) target: String,
    /// The key of its delivery.
    pub(super) key: DeliveryKey,
    pub(super) source_context: String,
    pub(super) status: String,
    pub(super) work_id: Option<String>,
    pub(super) letter: Option<String>,
    pub(super) is_translated: bool,
    pub(super) event: PublicEvent,
}

static INSERT: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::insert(
        "INSERT INTO mainstay_publications (id, event_id, target, source_context, event_type, correlation_id, status, \
         work_id, attempts_before, attempt_count, error, created_at, letter, failed_at, retry_count, is_translated, \
         event, history, tenant, delivery_key) VALUES {rows} ON CONFLICT (event_id, target, tenant) DO NOTHING \
         RETURNING id",
        &[
            Text, Text, Text, Text, Text, Text, Text, Text, Int, Int, Text, Int, Text, Int, Int, Int, Text,
            Text, Text, Text,
        ],
    )
});
const FOUND: &str = "SELECT id, event_id, target, source_context, status, work_id, letter, is_translated, event, \
     delivery_key FROM mainstay_publications";
static FIND_ALL: LazyLock<Bulk> = LazyLock::new(|| Bulk::list(&format!("{FOUND} WHERE id IN ({{values}})")));
static HOLD_ALL: LazyLock<Bulk> =
    LazyLock::new(|| Bulk::list(&format!("{FOUND} WHERE id IN ({{values}}) ORDER BY id")));
static IGNORE_ALL: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::list(
        "UPDATE mainstay_publications SET letter = 'ignored' WHERE letter = 'pending' AND id IN ({values})",
    )
});
/// A publication that was delivered stays one, and is forgotten with the others that were.
static FORGET_LETTERS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::list(
        "UPDATE mainstay_publications SET letter = NULL, error = NULL, history = NULL \
         WHERE status = 'delivered' AND id IN ({values})",
    )
});
/// Nobody will try to deliver another any more.
static REMOVE: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::list("DELETE FROM mainstay_publications WHERE status <> 'delivered' AND id IN ({values})")
});
/// The items that deliver publications.
static WORK_IDS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::list("SELECT id, work_id FROM mainstay_publications WHERE work_id IS NOT NULL AND id IN ({values})")
});
const ID: &str = "SELECT id FROM mainstay_publications WHERE event_id = $1 AND target = $2 AND tenant = $3";
const AMONG_TENANTS: &str =
    "SELECT id, tenant FROM mainstay_publications WHERE event_id = $1 AND target = $2";
static FAIL: LazyLock<String> = LazyLock::new(|| {
    let history = attempts::appended("history", "$6");
    format!(
        "UPDATE mainstay_publications SET status = $2, attempt_count = attempts_before + $3, error = $4, \
         work_id = $5, letter = 'pending', failed_at = mainstay_now(), history = {history} \
         WHERE id = $1 AND status <> 'delivered'"
    )
});
static REMEMBER: LazyLock<String> = LazyLock::new(|| {
    let history = attempts::appended("history", "$2");
    format!("UPDATE mainstay_publications SET history = {history} WHERE id = $1")
});
const HISTORY: &str = "SELECT history FROM mainstay_publications WHERE id = $1";
const DELIVER: &str = "UPDATE mainstay_publications SET status = 'delivered', delivered_at = mainstay_now(), \
     resolved_at = CASE WHEN letter IS NULL THEN NULL ELSE mainstay_now() END, \
     letter = CASE WHEN letter IS NULL THEN NULL ELSE 'resolved' END, attempt_count = attempts_before + ";
/// Nearly everything comes at the first attempt.
static DELIVER_AT_ONCE: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::list(&format!("{DELIVER} 1 WHERE status <> 'delivered' AND id IN ({{values}}) {WAS_LETTER}"))
});
/// Which of them were letters.
const WAS_LETTER: &str = "RETURNING id, letter";
const RETRY: &str = "UPDATE mainstay_publications SET status = 'pending', letter = 'retrying', work_id = $2, \
     attempts_before = attempt_count, retry_count = retry_count + 1, retried_at = mainstay_now(), is_translated = 1, \
     event = $3 WHERE id = $1";

/// Writes rows, except where there is one for the event and the target already; the ids of those that were written.
pub(super) async fn insert(tx: &Tx, rows: &[New<'_>]) -> Result<Vec<String>> {
    let now_ms = tx.now_ms().await?;
    let mut values = Vec::with_capacity(rows.len() * 20);
    for row in rows {
        let has_failed = row.error.is_some();
        let event = serde_json::to_string(&row.event).map_err(mainstay_store::Error::application)?;
        let failed = row.error.iter().map(|failure| Attempt {
            work_id: None,
            attempt: 1,
            at_ms: now_ms,
            failure: failure.clone(),
        });
        let history = attempts::write(failed)?;
        values.extend([
            Value::from(&row.id),
            Value::from(row.event_id),
            Value::from(row.target),
            Value::from(row.source_context),
            Value::from(&row.event.event_type),
            Value::from(row.event.correlation_id.as_deref()),
            Value::from(if has_failed { "failed" } else { "pending" }),
            Value::from((!has_failed).then_some(row.work_id.as_str())),
            Value::Int(0),
            Value::Int(0),
            Value::from(row.error.as_ref().map(ToString::to_string)),
            Value::Int(now_ms),
            Value::from(has_failed.then_some("pending")),
            if has_failed { Value::Int(now_ms) } else { Value::Null },
            Value::Int(0),
            Value::Int(i64::from(!has_failed)),
            Value::Text(event),
            Value::from(has_failed.then_some(history)),
            Value::from(row.tenant),
            Value::from(DeliveryKey::new(row.event_id, row.target, row.tenant).kept()),
        ]);
    }
    let written = INSERT.query(tx, &values).await?;
    let failed = rows.iter().filter(|row| row.error.is_some()).map(|row| &row.id);
    listing::list(tx, failed).await?;
    written.iter().map(|row| row.get(0)).collect()
}

/// The publication of an event to a target; of a tenant's event (of none if it is empty), or of the event that the id means
/// among those of all tenants.
pub(super) async fn id(
    tx: &Tx,
    event_id: &str,
    target: &str,
    tenant: Option<&str>,
) -> Result<Option<String>> {
    if let Some(tenant) = tenant {
        return tx
            .query_optional(ID, params![event_id, target, tenant])
            .await?
            .map(|row| row.get(0))
            .transpose();
    }
    let rows = tx.query(&format!("{AMONG_TENANTS} {FIRST_TWO}"), params![event_id, target]).await?;
    let rows =
        rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect::<Result<Vec<(String, String)>>>()?;
    let chosen = tenants::chosen(rows, |(_, tenant)| tenant, "event id", event_id)?;
    Ok(chosen.map(|(id, _)| id))
}

/// A publication by its id.
pub(super) async fn find(tx: &Tx, id: &str) -> Result<Option<Found>> {
    let sql = format!("{FOUND} WHERE id = $1");
    tx.query_optional(&sql, params![id]).await?.as_ref().map(found).transpose()
}

/// The items that deliver publications, by the ids of these.
pub(super) async fn work_ids(tx: &Tx, ids: impl Iterator<Item = &String>) -> Result<HashMap<String, String>> {
    let ids: Vec<Value> = ids.map(Value::from).collect();
    WORK_IDS.query(tx, &ids).await?.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
}

/// Publications by their ids, as many of them as there are.
pub(super) async fn find_all(tx: &Tx, ids: &[String]) -> Result<Vec<Found>> {
    FIND_ALL.query(tx, &values(ids)).await?.iter().map(found).collect()
}

/// A publication, held until the transaction ends; see [`id`].
pub(super) async fn hold(
    tx: &Tx,
    event_id: &str,
    target: &str,
    tenant: Option<&str>,
) -> Result<Option<Found>> {
    let Some(id) = id(tx, event_id, target, tenant).await? else { return Ok(None) };
    Ok(hold_all(tx, &[id]).await?.pop())
}

fn found(row: &Row) -> Result<Found> {
    let (event_id, target): (String, String) = (row.get(1)?, row.get(2)?);
    Ok(Found {
        id: row.get(0)?,
        key: DeliveryKey::read(row.get(9)?, &event_id, &target),
        event_id,
        target,
        source_context: row.get(3)?,
        status: row.get(4)?,
        work_id: row.get(5)?,
        letter: row.get(6)?,
        is_translated: row.get(7)?,
        event: serde_json::from_str(row.get(8)?).map_err(mainstay_store::Error::application)?,
    })
}

/// Notes that publications were delivered, each with the executions of its item.
pub(super) async fn deliver(tx: &Tx, ended: &[(String, u32)]) -> Result<()> {
    let (at_once, later): (Vec<_>, Vec<_>) = ended.iter().partition(|(_, attempts)| *attempts == 1);
    let ids: Vec<Value> = at_once.iter().map(|(id, _)| Value::from(id)).collect();
    let mut delivered = DELIVER_AT_ONCE.query(tx, &ids).await?;
    let sql = format!("{DELIVER} $2 WHERE id = $1 AND status <> 'delivered' {WAS_LETTER}");
    for (id, attempts) in later {
        delivered.extend(tx.query(&sql, params![id, *attempts]).await?);
    }
    let mut letters = Vec::new();
    for row in &delivered {
        if row.get::<Option<&str>>(1)?.is_some() {
            letters.push(row.get::<&str>(0)?);
        }
    }
    listing::list(tx, letters).await
}

/// How a delivery ended that did not come.
pub(super) struct Failed<'a> {
    pub(super) status: &'a str,
    /// The executions of its item that count.
    pub(super) attempts: u32,
    pub(super) error: &'a str,
    pub(super) work_id: &'a str,
    /// What its item failed with.
    pub(super) history: Vec<Attempt>,
}

/// Notes that a publication was not delivered; whoever calls this lists the letter.
pub(super) async fn fail(tx: &Tx, id: &str, failed: Failed<'_>) -> Result<()> {
    let Failed { status, attempts, error, work_id, history } = failed;
    let params = params![id, status, attempts, error, work_id, attempts::write(history)?];
    if tx.execute(&FAIL, params).await? == 0 {
        tracing::warn!(
            publication = id,
            work = work_id,
            error,
            "a publication was gone or delivered when its delivery failed"
        );
    }
    Ok(())
}

/// Adds attempts that were kept elsewhere to those of a publication.
pub(super) async fn remember(tx: &Tx, id: &str, attempts: Vec<Attempt>) -> Result<()> {
    tx.execute(&REMEMBER, params![id, attempts::write(attempts)?]).await.map(drop)
}

/// What has failed so far.
pub(super) async fn history(tx: &Tx, id: &str) -> Result<Vec<Attempt>> {
    let row = tx.query_optional(HISTORY, params![id]).await?;
    row.map_or(Ok(Vec::new()), |row| Ok(attempts::read(row.get(0)?)))
}

/// Notes that publications are tried again, each with the item that does and the event as it is now.
pub(super) async fn retry(tx: &Tx, again: &[(Found, PublicEvent, String)]) -> Result<()> {
    let update = async |(found, event, work_id): &(Found, PublicEvent, String)| {
        let event = serde_json::to_string(event).map_err(mainstay_store::Error::application)?;
        tx.execute(RETRY, params![&found.id, work_id, event]).await
    };
    try_join_all(again.iter().map(update)).await?;
    listing::list(tx, again.iter().map(|(found, ..)| &found.id)).await
}

/// Publications, held until the transaction ends.
pub(super) async fn hold_all(tx: &Tx, ids: &[String]) -> Result<Vec<Found>> {
    HOLD_ALL.query_holding(tx, &values(ids), Hold::Alone).await?.iter().map(found).collect()
}

/// Notes that letters are left for good.
pub(super) async fn ignore(tx: &Tx, ids: &[String]) -> Result<()> {
    IGNORE_ALL.execute(tx, &values(ids)).await?;
    listing::list(tx, ids).await
}

/// Removes letters with their publications; of what was delivered, that it was a letter.
pub(super) async fn remove_letters(tx: &Tx, ids: &[String]) -> Result<()> {
    FORGET_LETTERS.execute(tx, &values(ids)).await?;
    REMOVE.execute(tx, &values(ids)).await.map(drop)
}

fn values(ids: &[String]) -> Vec<Value> {
    ids.iter().map(Value::from).collect()
}
