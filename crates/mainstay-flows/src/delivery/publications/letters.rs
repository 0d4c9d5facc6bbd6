//! Dead letters: publications that were not delivered, with all that is needed to try again.
//!
//! A letter is the publication's own row. What it was called with and how each attempt failed is in the letter of its
//! work, which is dealt with in the same transaction.

use super::deliver::{self, Which};
use super::event::PublicEvent;
use super::publisher::Publisher;
use super::{MAX_PAGE, record};
use crate::error::{Error, Result};
use mainstay_store::{Row, Tx, Value, params};
use mainstay_work::LetterStatus as WorkLetter;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was done about a letter (decision C40).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LetterStatus {
    /// Nothing yet.
    Pending,
    /// It is being tried again, or came when it was. It is kept as `retrying` and `resolved`.
    Retried,
    /// Somebody decided to leave it.
    Ignored,
}

impl LetterStatus {
    /// The name, as it stands in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Retried => "retried",
            Self::Ignored => "ignored",
        }
    }

    fn of(kept: &str) -> Self {
        match kept {
            "retrying" | "resolved" => Self::Retried,
            "ignored" => Self::Ignored,
            _ => Self::Pending,
        }
    }

    fn kept(self) -> &'static str {
        match self {
            Self::Pending => "letter = 'pending'",
            Self::Retried => "letter IN ('retrying', 'resolved')",
            Self::Ignored => "letter = 'ignored'",
        }
    }
}

/// A publication that was not delivered.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Letter {
    /// The publication.
    pub publication_id: String,
    /// The source's event.
    pub event_id: String,
    /// The context it comes from.
    pub source_context: String,
    /// The context it goes to.
    pub target_context: String,
    /// What it belongs together with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// What was done about it.
    pub status: LetterStatus,
    /// Why it was not delivered.
    pub error: String,
    /// When that was.
    pub failed_at: i64,
    /// How many attempts there were.
    pub attempt_count: u32,
    /// How often it was tried again by an operator, or by itself.
    pub retry_count: u32,
    /// When it was tried again last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retried_at: Option<i64>,
    /// When it came after all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_at: Option<i64>,
    /// The item of work that delivers it, or did; its letter has the failures of each attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_id: Option<String>,
    /// The event as the target is to see it.
    pub event: PublicEvent,
}

/// Which letters.
#[derive(Debug, Clone, Default)]
pub struct LetterFilter {
    /// To this target.
    pub target: Option<String>,
    /// Of this status.
    pub status: Option<LetterStatus>,
    /// Of events that belong together under this id.
    pub correlation_id: Option<String>,
    /// After the letter of this publication.
    pub after: Option<String>,
}

/// How many letters there are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LetterStats {
    /// All of them.
    pub total: u64,
    /// By `{target}:{status}`; every target of this program has its number of pending ones.
    pub by_target_and_status: BTreeMap<String, u64>,
    /// When the oldest failed that nobody has dealt with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_pending: Option<i64>,
}

/// A limit that is not given.
const USUAL_LIMIT: usize = 100;

const COLUMNS: &str = "id, event_id, source_context, target, correlation_id, letter, error, failed_at, attempt_count, \
     retry_count, retried_at, resolved_at, work_id, event";
const STATS: &str = "SELECT target, letter, count(*) FROM mainstay_publications WHERE letter IS NOT NULL \
     GROUP BY target, letter";
const OLDEST: &str =
    "SELECT min(failed_at) FROM mainstay_publications WHERE letter IS NOT NULL AND letter = 'pending'";

fn letter(row: &Row) -> mainstay_store::Result<Letter> {
    Ok(Letter {
        publication_id: row.get(0)?,
        event_id: row.get(1)?,
        source_context: row.get(2)?,
        target_context: row.get(3)?,
        correlation_id: row.get(4)?,
        status: LetterStatus::of(row.get(5)?),
        error: row.get::<Option<String>>(6)?.unwrap_or_default(),
        failed_at: row.get::<Option<i64>>(7)?.unwrap_or_default(),
        attempt_count: row.get(8)?,
        retry_count: row.get(9)?,
        retried_at: row.get(10)?,
        resolved_at: row.get(11)?,
        work_id: row.get(12)?,
        event: serde_json::from_str(row.get(13)?).map_err(mainstay_store::Error::application)?,
    })
}

fn not_found(event_id: &str, target: &str) -> Error {
    Error::PublicationLetterNotFound { event_id: event_id.to_owned(), target: target.to_owned() }
}

impl Publisher {
    /// A page of letters, the oldest first (item 173).
    pub async fn letters(&self, filter: LetterFilter, limit: usize) -> Result<Vec<Letter>> {
        let read = async |tx: Tx, (filter, limit): (LetterFilter, usize)| {
            let mut values = vec![
                Value::from(filter.after.unwrap_or_default()),
                Value::Int(limit.clamp(1, MAX_PAGE) as i64),
            ];
            let mut sql =
                format!("SELECT {COLUMNS} FROM mainstay_publications WHERE letter IS NOT NULL AND id > $1");
            for (column, wanted) in [("target", filter.target), ("correlation_id", filter.correlation_id)] {
                if let Some(wanted) = wanted {
                    values.push(Value::from(wanted));
                    sql.push_str(&format!(" AND {column} = ${}", values.len()));
                }
            }
            if let Some(status) = filter.status {
                sql.push_str(&format!(" AND {}", status.kept()));
            }
            sql.push_str(" ORDER BY id LIMIT $2");
            tx.query(&sql, &values).await?.iter().map(letter).collect()
        };
        Ok(self.shared.store.read_with((filter, limit), read).await?)
    }

    /// One letter.
    pub async fn letter(&self, event_id: &str, target: &str) -> Result<Letter> {
        let read = async |tx: Tx, (event_id, target): (String, String)| {
            let sql = format!(
                "SELECT {COLUMNS} FROM mainstay_publications \
                 WHERE event_id = $1 AND target = $2 AND letter IS NOT NULL"
            );
            tx.query_optional(&sql, params![event_id, target]).await?.as_ref().map(letter).transpose()
        };
        let found = self.shared.store.read_with((event_id.to_owned(), target.to_owned()), read).await?;
        found.ok_or_else(|| not_found(event_id, target))
    }

    /// How many letters there are, by target and status.
    pub async fn letter_stats(&self) -> Result<LetterStats> {
        let read = async |tx: Tx, targets: Vec<String>| {
            let mut stats = LetterStats::default();
            for target in targets {
                stats.by_target_and_status.insert(format!("{target}:pending"), 0);
            }
            for row in tx.query(STATS, &[]).await? {
                let (target, kept, count): (&str, &str, u64) = (row.get(0)?, row.get(1)?, row.get(2)?);
                let key = format!("{target}:{}", LetterStatus::of(kept).as_str());
                *stats.by_target_and_status.entry(key).or_default() += count;
                stats.total += count;
            }
            stats.oldest_pending = tx.query_one(OLDEST, &[]).await?.get(0)?;
            Ok(stats)
        };
        let targets = self.targets().map(str::to_owned).collect();
        Ok(self.shared.store.read_with::<Vec<String>, _, _, _>(targets, read).await?)
    }

    /// Tries a letter again, one that is pending or was ignored; the item of work that does.
    pub async fn retry_letter(&self, event_id: &str, target: &str) -> Result<String> {
        let retry = async |tx: Tx, (publisher, event_id, target): (Self, String, String)| {
            publisher.retry_letter_in(&tx, &event_id, &target).await
        };
        let context = (self.clone(), event_id.to_owned(), target.to_owned());
        Ok(self.shared.store.transact_with(context, retry).await?)
    }

    /// As [`retry_letter`](Self::retry_letter), in a transaction.
    pub async fn retry_letter_in(
        &self,
        tx: &Tx,
        event_id: &str,
        target: &str,
    ) -> mainstay_store::Result<String> {
        let (to, policy) = &**self.shared.target(target)?;
        let found = self.held(tx, event_id, target, &["pending", "ignored"]).await?;
        let event = match found.is_translated {
            true => found.event,
            false => {
                let translated = to.translated(&found.event);
                translated.map_err(|reason| Error::Translation { target: target.to_owned(), reason })?
            }
        };
        let work = &self.shared.work;
        let known = match &found.work_id {
            Some(work_id) => work.letter_status_in(tx, work_id).await?,
            None => None,
        };
        let work_id = match (known, &found.work_id) {
            (Some(WorkLetter::Pending), Some(work_id)) => work.retry_letter_in(tx, work_id).await?,
            // Somebody tries its work again, and it will be noted here what comes of that.
            (Some(WorkLetter::Retried), _) => return Err(dealt_with(event_id, target, "retried").into()),
            // It was cancelled, could not be translated, or its work's letter was purged or ignored.
            _ => {
                let which = Which {
                    publication_id: found.id.clone(),
                    event_id: found.event_id,
                    target: target.to_owned(),
                };
                let (id, item) = (work.new_id(), deliver::item(to, *policy, &which, &event)?);
                work.enqueue_as(tx, [(id.clone(), item)]).map_err(Error::from)?;
                id
            }
        };
        record::retry(tx, &found.id, &work_id, &event).await?;
        self.shared.pass("publications.retried")?;
        Ok(work_id)
    }

    /// Tries the oldest letters again that are wanted, pending ones unless the filter says otherwise, and 100 unless said
    /// otherwise; how many. What cannot be tried again, because of its translator, stays.
    pub async fn retry_letters(&self, wanted: LetterFilter, limit: Option<usize>) -> Result<usize> {
        let mut count = 0;
        for letter in self.wanted(wanted, limit).await? {
            match self.retry_letter(&letter.event_id, &letter.target_context).await {
                Ok(_) => count += 1,
                Err(error) if is_left(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }

    /// Leaves a letter for good.
    pub async fn ignore_letter(&self, event_id: &str, target: &str) -> Result<()> {
        let ignore = async |tx: Tx, (publisher, event_id, target): (Self, String, String)| {
            let found = publisher.held(&tx, &event_id, &target, &["pending"]).await?;
            let work = &publisher.shared.work;
            if let Some(work_id) = &found.work_id
                && work.letter_status_in(&tx, work_id).await? == Some(WorkLetter::Pending)
            {
                work.ignore_letter_in(&tx, work_id).await?;
            }
            record::ignore(&tx, &found.id).await
        };
        let context = (self.clone(), event_id.to_owned(), target.to_owned());
        Ok(self.shared.store.transact_with(context, ignore).await?)
    }

    /// Leaves the oldest pending letters for good that are wanted, 100 unless said otherwise; how many.
    pub async fn ignore_letters(&self, wanted: LetterFilter, limit: Option<usize>) -> Result<usize> {
        let wanted = LetterFilter { status: Some(LetterStatus::Pending), ..wanted };
        let mut count = 0;
        for letter in self.wanted(wanted, limit).await? {
            match self.ignore_letter(&letter.event_id, &letter.target_context).await {
                Ok(()) => count += 1,
                Err(error) if is_left(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }

    async fn wanted(&self, wanted: LetterFilter, limit: Option<usize>) -> Result<Vec<Letter>> {
        if let Some(target) = &wanted.target {
            self.shared.target(target)?;
        }
        let status = wanted.status.unwrap_or(LetterStatus::Pending);
        if status == LetterStatus::Retried {
            return Err(Error::invalid("status", "what is retried is not tried again"));
        }
        let filter = LetterFilter { status: Some(status), ..wanted };
        self.letters(filter, limit.unwrap_or(USUAL_LIMIT)).await
    }

    /// A letter of one of these states, held until the transaction ends.
    async fn held(
        &self,
        tx: &Tx,
        event_id: &str,
        target: &str,
        kept: &[&str],
    ) -> mainstay_store::Result<record::Found> {
        let found = record::hold(tx, event_id, target).await?.ok_or_else(|| not_found(event_id, target))?;
        match found.letter.as_deref() {
            None => Err(not_found(event_id, target).into()),
            Some(letter) if kept.contains(&letter) => Ok(found),
            Some(letter) => Err(dealt_with(event_id, target, LetterStatus::of(letter).as_str()).into()),
        }
    }
}

fn dealt_with(event_id: &str, target: &str, status: &'static str) -> Error {
    let (event_id, target) = (event_id.to_owned(), target.to_owned());
    Error::PublicationLetterNotPending { event_id, target, status }
}

/// Whether it is about one letter of many: somebody was faster, its translator fails, or its target is another program's.
fn is_left(error: &Error) -> bool {
    matches!(
        error,
        Error::PublicationLetterNotFound { .. }
            | Error::PublicationLetterNotPending { .. }
            | Error::Translation { .. }
            | Error::UnknownTarget(_)
    )
}
