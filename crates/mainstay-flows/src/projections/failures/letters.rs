//! Dead letters of projections (items 214 to 221).

use super::many::{self, IGNORE, Which, take_over};
use super::payload;
use super::poison::CURRENT;
use super::retry::{Again, REAPPLY, RETRIED};
use super::{key, listing};
use crate::error::{Error, Result};
use crate::projections::MAX_PAGE;
use crate::projections::opened::{Projections, Shared};
use mainstay_core::failpoints::Point;
use mainstay_core::names::check_unreserved;
use mainstay_core::retry::RetryPolicy;
use mainstay_core::trace::TraceContext;
use mainstay_store::{Hold, Row, Tx, params};
use mainstay_work::{NewWork, RETRIER_POOL, Work};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What was done about a letter. The older names `retried` and `replayed` are read as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LetterStatus {
    /// Nothing yet.
    Pending,
    /// It is tried again.
    #[serde(alias = "retried")]
    Retrying,
    /// The event is in the read model after all.
    #[serde(alias = "replayed")]
    Resolved,
    /// Somebody decided to leave it.
    Ignored,
}

impl LetterStatus {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Retrying => "retrying",
            Self::Resolved => "resolved",
            Self::Ignored => "ignored",
        }
    }

    pub(super) fn of(name: &str) -> Self {
        match name {
            "retrying" | "retried" => Self::Retrying,
            "resolved" | "replayed" => Self::Resolved,
            "ignored" => Self::Ignored,
            _ => Self::Pending,
        }
    }
}

/// An event that a projection could not take.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Letter {
    /// The event.
    pub event_id: String,
    /// The tenant of the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// The key of its row.
    #[serde(skip)]
    pub(super) key: String,
    /// The projection.
    pub projection_name: String,
    /// The event's position.
    pub position: u64,
    /// The event's type.
    pub event_type: String,
    /// What it belongs together with.
    pub correlation_id: String,
    /// What happened.
    pub error: String,
    /// What was done about it.
    pub status: LetterStatus,
    /// When it failed last.
    pub failed_at: i64,
    /// When it was last tried again.
    pub retry_started_at: Option<i64>,
    /// The work that tries it again.
    pub retry_run_id: Option<String>,
    /// When the retrier was last asked to.
    pub last_retry_at: Option<i64>,
    /// How often it was tried again.
    pub retry_count: u32,
    /// What happened when it was tried again.
    pub last_error: Option<String>,
    /// When it was in the read model after all.
    pub resolved_at: Option<i64>,
    /// Where the event stands in a trace.
    pub trace_context: Option<TraceContext>,
    /// What the event says, as the log has it now: nothing once it was erased, nor where a page would grow beyond
    /// [`MAX_PAYLOADS_BYTES`](super::MAX_PAYLOADS_BYTES).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Box<RawValue>>,
}

/// Which letters.
#[derive(Debug, Clone, Default)]
pub struct LetterFilter {
    /// Of this projection.
    pub projection: Option<String>,
    /// Of this status.
    pub status: Option<LetterStatus>,
    /// Of events that belong together under this id.
    pub correlation_id: Option<String>,
    /// After this letter, by its position and projection.
    pub after: Option<(u64, String)>,
}

/// How many letters there are (item 217).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LetterStats {
    /// All of them.
    pub total: u64,
    /// By `{projection}:{status}`.
    pub by_projection_and_status: BTreeMap<String, u64>,
    /// When the oldest failed that nobody has dealt with.
    pub oldest_pending: Option<i64>,
}

/// A limit that is not given (item 218).
const USUAL_LIMIT: usize = 100;
/// The retrier's way with letters (item 220): executions, first wait, base.
const RUN: (u32, u64, f64) = (6, 1_000, 2.0);
const DAY_MS: i64 = 86_400_000;

pub(super) const COLUMNS: &str = "event_id, projection, position, event_type, correlation_id, error, status, failed_at, \
     retry_started_at, retry_run_id, last_retry_at, retry_count, last_error, resolved_at, trace";
/// What is a letter, of the generation that readers see.
pub(super) const LETTERS: &str = "is_poison = 0 AND status <> 'failing'";
pub(super) const RUN_AGAIN: &str = "UPDATE mainstay_projection_failures SET status = 'retrying', \
     retry_started_at = mainstay_now(), last_retry_at = mainstay_now(), retry_run_id = $3, \
     retry_count = retry_count + 1 WHERE projection = $1 AND event_id = $2 AND is_poison = 0 AND status = 'pending' \
     AND {current}";
const STATS: &str = "SELECT projection, status, count(*), min(failed_at) FROM mainstay_projection_failures";
const OLD: &str = "SELECT projection, position, generation, event_id FROM mainstay_projection_failures \
     WHERE status = 'resolved' AND is_poison = 0 AND resolved_at < mainstay_now() - $1 \
     AND (projection, position, generation) > ($2, $3, $4) ORDER BY projection, position, generation LIMIT $5";
const PURGE: &str = "DELETE FROM mainstay_projection_failures \
     WHERE projection = $1 AND event_id = $2 AND generation = $3 AND status = 'resolved'";
/// How many letters are purged in one transaction.
const PURGED_AT_ONCE: i64 = 500;

/// A statement about letters of the generation that readers see.
pub(super) fn current(sql: &str) -> String {
    sql.replace("{current}", CURRENT)
}

pub(super) fn letter(row: &Row) -> mainstay_store::Result<Letter> {
    let key: String = row.get(0)?;
    let (event_id, tenant) = key::split(&key);
    Ok(Letter {
        event_id: event_id.to_owned(),
        tenant_id: tenant.map(str::to_owned),
        projection_name: row.get(1)?,
        position: row.get(2)?,
        event_type: row.get(3)?,
        correlation_id: row.get(4)?,
        error: row.get(5)?,
        status: LetterStatus::of(row.get(6)?),
        failed_at: row.get(7)?,
        retry_started_at: row.get(8)?,
        retry_run_id: row.get(9)?,
        last_retry_at: row.get(10)?,
        retry_count: row.get(11)?,
        last_error: row.get(12)?,
        resolved_at: row.get(13)?,
        trace_context: row.get::<Option<&str>>(14)?.and_then(|text| serde_json::from_str(text).ok()),
        payload: None,
        key,
    })
}

async fn page(tx: &Tx, filter: &LetterFilter, limit: usize) -> mainstay_store::Result<Vec<Letter>> {
    let (position, after) = filter.after.clone().unwrap_or_default();
    let mut params = params![position as i64, after, limit.clamp(1, MAX_PAGE) as i64].to_vec();
    // Only what is asked for stands in the statement, so that it finds its index.
    let mut conditions = String::new();
    let status = filter.status.map(LetterStatus::as_str);
    let (projection, correlation_id) = (filter.projection.as_deref(), filter.correlation_id.as_deref());
    let asked = [("projection", projection), ("status", status), ("correlation_id", correlation_id)];
    for (column, value) in asked {
        if let Some(value) = value {
            params.push(value.into());
            conditions += &format!(" AND {column} = ${}", params.len());
        }
    }
    let sql = format!(
        "SELECT {COLUMNS} FROM mainstay_projection_failures WHERE {LETTERS} AND {CURRENT}{conditions} \
         AND (position > $1 OR (position = $1 AND projection > $2)) ORDER BY position, projection LIMIT $3"
    );
    tx.query(&sql, &params).await?.iter().map(letter).collect()
}

/// A letter, held until the transaction ends.
async fn hold(tx: &Tx, projection: &str, key: &str) -> mainstay_store::Result<Letter> {
    let sql = format!(
        "SELECT {COLUMNS} FROM mainstay_projection_failures \
         WHERE projection = $1 AND event_id = $2 AND {LETTERS} AND {CURRENT}"
    );
    let rows = tx.query_holding(&sql, params![projection, key], Hold::Alone).await?;
    letter(rows.first().ok_or_else(|| Error::LetterNotFound(key::split(key).0.to_owned()))?)
}

/// A letter that nobody has dealt with.
pub(super) async fn hold_pending(tx: &Tx, projection: &str, key: &str) -> mainstay_store::Result<Letter> {
    let letter = hold(tx, projection, key).await?;
    match letter.status {
        LetterStatus::Pending => Ok(letter),
        other => {
            let (event_id, status) = (letter.event_id, other.as_str());
            Err(Error::LetterNotPending { event_id, status }.into())
        }
    }
}

impl Projections {
    /// A page of letters, in the order of the log.
    pub async fn letters(&self, filter: LetterFilter, limit: usize) -> Result<Vec<Letter>> {
        // They are sorted, whatever is asked for.
        let read = async |tx: Tx, (filter, limit): (LetterFilter, usize)| page(&tx, &filter, limit).await;
        let mut letters = self.shared.store.search_with((filter, limit), read).await?;
        payload::fill(&self.shared.log, &mut letters).await?;
        Ok(letters)
    }

    /// The same without payloads.
    pub(crate) async fn bare_letters(&self, filter: LetterFilter, limit: usize) -> Result<Vec<Letter>> {
        let read = async |tx: Tx, (filter, limit): (LetterFilter, usize)| page(&tx, &filter, limit).await;
        Ok(self.shared.store.read_with((filter, limit), read).await?)
    }

    /// One letter.
    pub async fn letter(&self, projection: &str, event_id: &str) -> Result<Letter> {
        let name = &self.shared.find(projection)?.name;
        self.letter_of(name, &self.key_of(name, event_id).await?).await
    }

    /// The letter of a key.
    pub(crate) async fn letter_of(&self, projection: &str, key: &str) -> Result<Letter> {
        let read = async |tx: Tx, (projection, key): (String, String)| {
            let sql = format!(
                "SELECT {COLUMNS} FROM mainstay_projection_failures \
                 WHERE projection = $1 AND event_id = $2 AND {LETTERS} AND {CURRENT}"
            );
            tx.query_optional(&sql, params![projection, key]).await?.as_ref().map(letter).transpose()
        };
        let context = (self.shared.find(projection)?.name.clone(), key.to_owned());
        let found = self.shared.store.read_with(context, read).await?;
        let mut found = [found.ok_or_else(|| Error::LetterNotFound(key::split(key).0.to_owned()))?];
        payload::fill(&self.shared.log, &mut found).await?;
        let [letter] = found;
        Ok(letter)
    }

    /// How many letters there are.
    pub async fn letter_stats(&self) -> Result<LetterStats> {
        let read = async |tx: Tx, (): ()| {
            let sql = format!("{STATS} WHERE {LETTERS} AND {CURRENT} GROUP BY projection, status");
            let mut stats = LetterStats::default();
            for row in tx.query(&sql, &[]).await? {
                let (projection, status, count): (&str, &str, u64) = (row.get(0)?, row.get(1)?, row.get(2)?);
                stats.total += count;
                stats.by_projection_and_status.insert(format!("{projection}:{status}"), count);
                if status == "pending" {
                    let oldest: i64 = row.get(3)?;
                    stats.oldest_pending =
                        Some(stats.oldest_pending.map_or(oldest, |other| other.min(oldest)));
                }
            }
            Ok(stats)
        };
        Ok(self.shared.store.search_with((), read).await?)
    }

    /// Tries a letter again; the id of the work that does.
    pub async fn retry_letter(&self, projection: &str, event_id: &str) -> Result<String> {
        let retry = async |tx: Tx, (projections, which): (Self, Which)| {
            hold_pending(&tx, &which.0, &which.1).await?;
            let retried = projections.retry_in(&tx, many::LETTERS, std::slice::from_ref(&which), false);
            let retried = retried.await?.pop();
            let lost = || Error::LetterNotFound(key::split(&which.1).0.to_owned());
            let (_, retried) = retried.ok_or_else(lost)?;
            Ok(retried?)
        };
        let name = self.shared.find(projection)?.name.clone();
        let key = self.key_of(&name, event_id).await?;
        Ok(self.shared.store.transact_with((self.clone(), (name, key)), retry).await?)
    }

    /// Tries the oldest pending letters of a projection again, 100 unless said otherwise; how many.
    pub async fn bulk_retry(&self, projection: &str, limit: Option<usize>) -> Result<usize> {
        let projection = Some(projection.to_owned());
        self.retry_letters(LetterFilter { projection, ..LetterFilter::default() }, limit).await
    }

    /// Tries the oldest letters of all projections again that are pending, or ignored, 100 unless said otherwise; how
    /// many.
    pub async fn retry_all(&self, status: LetterStatus, limit: Option<usize>) -> Result<usize> {
        self.retry_letters(LetterFilter { status: Some(status), ..LetterFilter::default() }, limit).await
    }

    /// Tries the oldest letters again that are wanted, pending ones unless the filter says otherwise, and 100 unless said
    /// otherwise; how many.
    pub async fn retry_letters(&self, wanted: LetterFilter, limit: Option<usize>) -> Result<usize> {
        let status = wanted.status.unwrap_or(LetterStatus::Pending);
        if !matches!(status, LetterStatus::Pending | LetterStatus::Ignored) {
            let reason = format!("what is {} is not tried again", status.as_str());
            return Err(Error::invalid("status", reason));
        }
        if let Some(projection) = &wanted.projection {
            self.shared.find(projection)?;
        }
        let filter = LetterFilter { status: Some(status), ..wanted };
        let letters = self.bare_letters(filter, limit.unwrap_or(USUAL_LIMIT)).await?;
        // One of another program's projections is left to it.
        let own = letters.into_iter().filter(|letter| self.shared.find(&letter.projection_name).is_ok());
        let which: Vec<Which> = own.map(|letter| (letter.projection_name, letter.key)).collect();
        let retry = async |tx: Tx, (projections, which): (Self, Vec<Which>)| {
            let retried = projections.retry_in(&tx, many::LETTERS, &which, true).await?;
            Ok(retried.iter().filter(|(_, retried)| retried.is_ok()).count())
        };
        Ok(self.shared.store.transact_with((self.clone(), which), retry).await?)
    }

    /// Tries a letter again through the retrier: by an action of the application's that calls somebody else and sees to
    /// the event itself, or by applying the event; the id of the run.
    pub async fn run_letter(&self, projection: &str, event_id: &str, action: Option<&str>) -> Result<String> {
        type Running = (Arc<Shared>, String, String, Option<String>);
        let run = async |tx: Tx, (shared, projection, key, action): Running| {
            let letter = hold_pending(&tx, &projection, &key).await?;
            take_over(&tx, &shared.work, std::iter::once(&letter)).await?;
            let Letter { event_id, tenant_id, trace_context, .. } = letter;
            let again = Again { projection, event_id, tenant_id };
            let (attempts, wait_ms, base) = RUN;
            let policy = RetryPolicy::new(attempts, wait_ms, base, RetryPolicy::default().max_backoff_ms());
            let policy = policy.map_err(|error| Error::invalid("retry", error.to_string()))?;
            let item = match action {
                Some(action) => NewWork::new(RETRIER_POOL, action, &again),
                None => NewWork::platform(RETRIER_POOL, REAPPLY, &again),
            };
            let item = item.and_then(|item| item.tell_platform(RETRIED).context(&again));
            let mut item = item.map_err(Error::from)?.retry(policy).unlisted();
            if let Some(trace) = trace_context {
                item = item.trace(trace);
            }
            let receipt = shared.work.enqueue_in(&tx, [item]).map_err(Error::from)?;
            let run_id = receipt.work_ids()[0].clone();
            tx.execute(&current(RUN_AGAIN), params![&again.projection, &key, &run_id]).await?;
            listing::list(&tx, &again.projection, &key).await?;
            Ok(run_id)
        };
        if let Some(action) = action {
            check_unreserved("action", action).map_err(mainstay_work::Error::from)?;
        }
        let name = self.shared.find(projection)?.name.clone();
        let key = self.key_of(&name, event_id).await?;
        let context = (self.shared.clone(), name, key, action.map(str::to_owned));
        Ok(self.shared.store.transact_with(context, run).await?)
    }

    /// Leaves a letter for good.
    pub async fn ignore_letter(&self, projection: &str, event_id: &str) -> Result<()> {
        let ignore = async |tx: Tx, (work, projection, key): (Work, String, String)| {
            let letter = hold_pending(&tx, &projection, &key).await?;
            take_over(&tx, &work, std::iter::once(&letter)).await?;
            tx.execute(&current(IGNORE), params![&projection, &key]).await?;
            listing::list(&tx, &projection, &key).await
        };
        let name = self.shared.find(projection)?.name.clone();
        let key = self.key_of(&name, event_id).await?;
        let context = (self.shared.work.clone(), name, key);
        Ok(self.shared.store.transact_with(context, ignore).await?)
    }

    /// Leaves the oldest pending letters of a projection for good, 100 unless said otherwise; how many.
    pub async fn bulk_ignore(&self, projection: &str, limit: Option<usize>) -> Result<usize> {
        let ignore = async |tx: Tx, (projections, filter, limit): (Self, LetterFilter, usize)| {
            let letters = page(&tx, &filter, limit).await?;
            let which: Vec<Which> =
                letters.into_iter().map(|letter| (letter.projection_name, letter.key)).collect();
            projections.ignore_in(&tx, many::LETTERS, &which).await.map(|ignored| ignored.len())
        };
        let projection = Some(self.shared.find(projection)?.name.clone());
        let filter =
            LetterFilter { projection, status: Some(LetterStatus::Pending), ..LetterFilter::default() };
        let context = (self.clone(), filter, limit.unwrap_or(USUAL_LIMIT));
        Ok(self.shared.store.transact_with(context, ignore).await?)
    }

    /// Removes letters that were resolved more than so many days ago, some in a transaction each; how many.
    pub async fn purge_resolved(&self, older_than_days: u32) -> Result<u64> {
        let (mut after, mut purged) = (Place::default(), 0);
        loop {
            let context = (self.shared.clone(), i64::from(older_than_days) * DAY_MS, after);
            let (some, last) = self.shared.store.transact_with(context, purge_some).await?;
            purged += some as u64;
            match last.filter(|_| some == PURGED_AT_ONCE as usize) {
                Some(last) => after = last,
                None => return Ok(purged),
            }
        }
    }
}

/// A letter's projection, position and generation, in the order in which they are purged.
type Place = (String, i64, i64);

/// Removes some letters behind a place that were resolved so long ago; how many, and where the last of them was.
async fn purge_some(
    tx: Tx,
    (shared, age_ms, (projection, position, generation)): (Arc<Shared>, i64, Place),
) -> mainstay_store::Result<(usize, Option<Place>)> {
    let params = params![age_ms, projection, position, generation, PURGED_AT_ONCE];
    let old = tx.query(OLD, params).await?;
    for row in &old {
        let (projection, event_id): (&str, &str) = (row.get(0)?, row.get(3)?);
        tx.execute(PURGE, params![projection, event_id, row.get::<i64>(2)?]).await?;
        listing::list(&tx, projection, event_id).await?;
    }
    shared.store.failpoints().hit(Point::ProjectionsPurged)?;
    let last = old.last().map(|row| Ok::<_, mainstay_store::Error>((row.get(0)?, row.get(1)?, row.get(2)?)));
    Ok((old.len(), last.transpose()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_026_the_older_names_of_states_are_read_and_the_newer_ones_written() {
        for (older, newer, status) in [
            ("retried", "retrying", LetterStatus::Retrying),
            ("replayed", "resolved", LetterStatus::Resolved),
            ("pending", "pending", LetterStatus::Pending),
            ("ignored", "ignored", LetterStatus::Ignored),
        ] {
            for name in [older, newer] {
                assert_eq!(LetterStatus::of(name), status, "as it is kept");
                let read: LetterStatus = serde_json::from_value(name.into()).unwrap();
                assert_eq!(read, status, "as somebody asks for it");
            }
            assert_eq!(serde_json::to_value(status).unwrap(), newer);
            assert_eq!(status.as_str(), newer);
        }
    }
}
