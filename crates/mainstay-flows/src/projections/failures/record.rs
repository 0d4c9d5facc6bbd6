//! The table of failures.
//!
//! | status | of | means |
//! |---|---|---|
//! | failing | both | it has failed, and its lane tries it again |
//! | quarantined | poison | it was put aside |
//! | replayed | poison | it was let out and is tried again |
//! | ignored | both | somebody left it for good |
//! | pending | letter | nothing was done about it yet |
//! | retrying | letter | it is tried again |
//! | resolved | letter | it is in the read model after all |
//!
//! Whoever writes a row holds a lane of the projection, or the row.

use super::poison::CURRENT;
use super::{key, listing};
use crate::attempts::{self, Attempt};
use crate::projections::definition::Projection;
use mainstay_core::failure::Failure;
use mainstay_core::random::Random;
use mainstay_events::Event;
use mainstay_store::{Bulk, Column, Row, Tx, Value, params};
use std::collections::{BTreeSet, HashSet};
use std::sync::LazyLock;

/// An event that has failed before.
#[derive(Debug)]
pub(crate) struct Noted {
    key: String,
    pub(crate) position: u64,
    pub(crate) generation: i64,
    is_poison: bool,
    status: String,
    /// Whether it is left out.
    pub(crate) is_aside: bool,
}

const BETWEEN: &str = "SELECT event_id, generation, is_poison, status, position FROM mainstay_projection_failures \
     WHERE projection = $1 AND position >= $2 AND position <= $3";
const FORGET: &str = "DELETE FROM mainstay_projection_failures \
     WHERE projection = $1 AND event_id = $2 AND generation = $3";
pub(crate) const RESOLVE: &str = "UPDATE mainstay_projection_failures SET status = 'resolved', attempts = 0, \
     resolved_at = mainstay_now() WHERE projection = $1 AND event_id = $2 AND generation = $3";
const ATTEMPTS: &str = "SELECT attempts, status, event_id, generation, is_poison FROM mainstay_projection_failures \
     WHERE projection = $1 AND position = $2";
static RECORD: LazyLock<String> = LazyLock::new(|| {
    let history = attempts::appended("mainstay_projection_failures.history", "excluded.history");
    format!(
        "INSERT INTO mainstay_projection_failures (projection, event_id, generation, position, \
         event_type, correlation_id, is_poison, status, attempts, error, failed_at, retry_count, trace, history) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, mainstay_now(), 0, $11, $12) \
         ON CONFLICT (projection, event_id, generation) DO UPDATE SET is_poison = excluded.is_poison, \
         status = excluded.status, attempts = excluded.attempts, error = excluded.error, \
         failed_at = excluded.failed_at, retry_run_id = NULL, resolved_at = NULL, history = {history}"
    )
});

const LEAVE_OUT: &str = "INSERT INTO mainstay_projection_failures (projection, event_id, generation, position, \
     event_type, correlation_id, is_poison, status, attempts, error, failed_at, retry_count, trace) \
     SELECT projection, event_id, CAST($3 AS BIGINT), position, event_type, correlation_id, is_poison, status, attempts, error, \
     failed_at, retry_count, trace FROM mainstay_projection_failures \
     WHERE projection = $1 AND event_id = $2 AND generation = $4 ON CONFLICT (projection, event_id, generation) DO NOTHING";

static MISSING: LazyLock<Bulk> = LazyLock::new(|| {
    let text = format!(
        "SELECT projection, position FROM mainstay_projection_failures \
         WHERE status <> 'resolved' AND {CURRENT} AND correlation_id IN ({{values}})"
    );
    Bulk::among(&text, Column::Text)
});

fn noted(row: &Row) -> mainstay_store::Result<Noted> {
    let (is_poison, status) = (row.get::<i64>(2)? == 1, row.get::<String>(3)?);
    let is_aside = is_poison && matches!(&*status, "quarantined" | "ignored");
    Ok(Noted {
        key: row.get(0)?,
        position: row.get(4)?,
        generation: row.get(1)?,
        is_poison,
        status,
        is_aside,
    })
}

/// Events of a part of the log that have failed before. What was put aside stays aside in later generations.
pub(crate) async fn between(
    tx: &Tx,
    projection: &str,
    first: u64,
    last: u64,
) -> mainstay_store::Result<Vec<Noted>> {
    let rows = tx.query(BETWEEN, params![projection, first as i64, last as i64]).await?;
    rows.iter().map(noted).collect()
}

/// Notes that events are left out of a generation that were put aside in another one: there they may be let out.
pub(crate) async fn leave_out(
    tx: &Tx,
    projection: &str,
    generation: i64,
    noted: &[Noted],
) -> mainstay_store::Result<()> {
    for one in noted.iter().filter(|one| one.is_aside && one.generation != generation) {
        tx.execute(LEAVE_OUT, params![projection, &one.key, generation, one.generation]).await?;
    }
    Ok(())
}

/// Notes that the handler has taken events that had failed before.
pub(crate) async fn passed(
    tx: &Tx,
    projection: &str,
    generation: i64,
    noted: &[Noted],
) -> mainstay_store::Result<()> {
    for one in noted.iter().filter(|one| one.generation == generation && !one.is_aside) {
        let sql = match (&*one.status, one.is_poison) {
            ("failing", _) | ("replayed", true) => FORGET,
            ("pending" | "retrying", false) => RESOLVE,
            _ => continue,
        };
        tx.execute(sql, params![projection, &one.key, generation]).await?;
        match (sql, &*one.status) {
            (RESOLVE, _) => listing::list(tx, projection, &one.key).await?,
            (_, "replayed") => listing::resolve(tx, projection, &one.key).await?,
            _ => {}
        }
    }
    Ok(())
}

/// The events among these that are not in the read models that readers see, each by its position, with the
/// projection.
pub(crate) async fn missing(tx: &Tx, events: &[Event]) -> mainstay_store::Result<HashSet<(String, u64)>> {
    let correlations: BTreeSet<&str> = events.iter().map(Event::correlation_id).collect();
    let correlations: Vec<Value> = correlations.into_iter().map(Value::from).collect();
    let rows = MISSING.query(tx, &correlations).await?;
    rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
}

/// What a failure leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The event is tried again after so many milliseconds.
    Again(u64),
    /// It is passed over.
    GivenUp {
        /// How often it was tried.
        attempts: u32,
    },
}

/// Writes a failure down, in a transaction that holds the event's lane.
pub(crate) async fn record(
    tx: &Tx,
    projection: &Projection,
    generation: i64,
    event: &Event,
    failure: &Failure,
    random: &dyn Random,
) -> mainstay_store::Result<Verdict> {
    let rows = tx.query(ATTEMPTS, params![&projection.name, event.position() as i64]).await?;
    let (mut before, mut status, mut was_poison) = (0_u32, "", None);
    for row in &rows {
        if row.get::<i64>(3)? == generation {
            (before, status, was_poison) = (row.get(0)?, row.get(1)?, Some(row.get::<i64>(4)? == 1));
        }
    }
    let key = match rows.first() {
        Some(row) => row.get(2)?,
        None => key::key(event),
    };
    let attempts = before.saturating_add(1);
    let is_poison = projection.poison.is_some();
    let is_final = attempts >= projection.max_attempts() || !(is_poison || failure.is_retryable());
    let next = match (is_final, is_poison, status) {
        (_, false, "ignored") => "ignored",
        (true, true, _) => "quarantined",
        (true, false, _) => "pending",
        (false, ..) => "failing",
    };
    let one =
        Attempt { work_id: None, attempt: attempts, at_ms: tx.now_ms().await?, failure: failure.clone() };
    let history = attempts::write([one])?;
    let trace = event.trace().and_then(|trace| serde_json::to_string(&trace).ok());
    let params = params![
        &projection.name,
        &key,
        generation,
        event.position() as i64,
        event.event_type(),
        event.correlation_id(),
        i64::from(is_poison),
        next,
        attempts,
        failure.message(),
        trace,
        history,
    ];
    tx.execute(&RECORD, params).await?;
    // One that is failing is listed only if it was before.
    if next != "failing" || !matches!(status, "" | "failing") {
        match was_poison.is_some_and(|was_poison| was_poison != is_poison) {
            true => listing::list_as(tx, &projection.name, &key, is_poison).await?,
            false => listing::list(tx, &projection.name, &key).await?,
        }
    }
    if is_final || next == "ignored" {
        return Ok(Verdict::GivenUp { attempts });
    }
    Ok(Verdict::Again(projection.retry.delay_ms(attempts, failure, random)))
}

const BEGIN_ANEW: &str =
    "DELETE FROM mainstay_projection_failures WHERE projection = $1 AND position > $2 AND status = 'failing'";
const FORGET_GENERATION: &str =
    "DELETE FROM mainstay_projection_failures WHERE projection = $1 AND generation = $2";
const KNOWN_ANEW: &str = "DELETE FROM mainstay_projection_failures WHERE projection = $1 AND generation = $2 \
     AND (status IN ('failing', 'replayed') OR event_id IN (SELECT newer.event_id \
     FROM mainstay_projection_failures newer WHERE newer.projection = $1 AND newer.generation = $3))";
/// An event that has failed in both is the same letter, with all that has failed.
const REMEMBER: &str = "UPDATE mainstay_projection_failures SET history = coalesce((SELECT older.history \
     FROM mainstay_projection_failures older WHERE older.projection = $1 AND older.generation = $2 \
     AND older.event_id = mainstay_projection_failures.event_id), '') || coalesce(history, '') \
     WHERE projection = $1 AND generation = $3 AND is_poison = 0";
const RESOLVE_OPEN: &str = "UPDATE mainstay_projection_failures SET status = 'resolved', attempts = 0, \
     resolved_at = mainstay_now() \
     WHERE projection = $1 AND generation = $2 AND status IN ('pending', 'retrying')";
const CARRY_OVER: &str =
    "UPDATE mainstay_projection_failures SET generation = $3 WHERE projection = $1 AND generation = $2";

/// Forgets how often events after a position have failed, which are all applied anew.
pub(crate) async fn begin_anew(tx: &Tx, projection: &str, after: u64) -> mainstay_store::Result<()> {
    tx.execute(BEGIN_ANEW, params![projection, after as i64]).await.map(drop)
}

/// Forgets what has failed in a generation that is given up.
pub(crate) async fn forget_generation(
    tx: &Tx,
    projection: &str,
    generation: i64,
) -> mainstay_store::Result<()> {
    tx.execute(FORGET_GENERATION, params![projection, generation]).await.map(drop)
}

/// One generation takes the place of another: what had failed in the old one and has not in the new one is resolved.
pub(crate) async fn take_over(tx: &Tx, projection: &str, old: i64, new: i64) -> mainstay_store::Result<()> {
    listing::take_over(tx, projection, old, new).await?;
    tx.execute(REMEMBER, params![projection, old, new]).await?;
    tx.execute(KNOWN_ANEW, params![projection, old, new]).await?;
    tx.execute(RESOLVE_OPEN, params![projection, old]).await?;
    tx.execute(CARRY_OVER, params![projection, old, new]).await.map(drop)
}
