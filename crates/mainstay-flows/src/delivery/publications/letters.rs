//! Dead letters: publications that were not delivered, with all that is needed to try again.
//!
//! A letter is the publication's own row, with all that is needed to try again and how each attempt failed.

use super::deliver::{self, Which};
use super::event::PublicEvent;
use super::publisher::Publisher;
use super::search::{Found, Search};
use super::{MAX_PAGE, record};
use crate::attempts::Attempt;
use crate::error::{Error, Result};
use mainstay_core::failpoints::Point;
use mainstay_store::{Bulk, Column, Row, Tx, Value, params};
use mainstay_work::LetterStatus as WorkLetter;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

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

    pub(super) fn of(kept: &str) -> Self {
        match kept {
            "retrying" | "resolved" => Self::Retried,
            "ignored" => Self::Ignored,
            _ => Self::Pending,
        }
    }

    /// As it is kept, if that is one word.
    fn kept(self) -> Option<&'static str> {
        match self {
            Self::Pending => Some("pending"),
            Self::Retried => None,
            Self::Ignored => Some("ignored"),
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
    /// The tenant of that event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
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
    /// The item of work that delivers it, or did.
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

impl LetterFilter {
    /// How letters are found: by the index of a target's letters of one status, or by that of all letters.
    fn search(&self) -> Search {
        let mut search = Search::default();
        search.indexed("letter IS NOT NULL", None);
        let (target, kept) = (self.target.as_ref().map(Value::from), self.status.map(LetterStatus::kept));
        match (target, kept) {
            (Some(target), Some(Some(kept))) => {
                search.indexed("target = ?", Some(target));
                search.indexed("letter = ?", Some(Value::from(kept)));
            }
            (target, kept) => {
                if let Some(target) = target {
                    search.other("target = ?", Some(target));
                }
                match kept {
                    Some(Some(kept)) => search.other("letter = ?", Some(Value::from(kept))),
                    Some(None) => search.other("letter IN ('retrying', 'resolved')", None),
                    None => {}
                }
            }
        }
        if let Some(correlation) = &self.correlation_id {
            search.other("correlation_id = ?", Some(Value::from(correlation)));
        }
        search
    }
}

/// A page of letters.
#[derive(Debug, Clone, Default)]
pub struct LetterPage {
    /// The letters, the oldest first.
    pub letters: Vec<Letter>,
    /// Behind which publication the next page begins; nothing when there is none.
    pub next: Option<String>,
    /// Whether the page ended before it was full, because it had looked at as many letters as a page may.
    pub is_partial: bool,
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
/// Letters that are tried again by the hundred wait behind what is published meanwhile.
const BEHIND: i16 = 100;

const COLUMNS: &str = "id, event_id, source_context, target, correlation_id, letter, error, failed_at, attempt_count, \
     retry_count, retried_at, resolved_at, work_id, event, tenant";
const STATS: &str = "SELECT target, letter, count(*) FROM mainstay_publications WHERE letter IS NOT NULL \
     GROUP BY target, letter";
const OLDEST: &str =
    "SELECT min(failed_at) FROM mainstay_publications WHERE letter IS NOT NULL AND letter = 'pending'";

fn letter(row: &Row) -> mainstay_store::Result<Letter> {
    Ok(Letter {
        publication_id: row.get(0)?,
        event_id: row.get(1)?,
        tenant_id: Some(row.get::<String>(14)?).filter(|tenant| !tenant.is_empty()),
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

static THESE: LazyLock<Bulk> = LazyLock::new(|| {
    let text = format!(
        "SELECT {COLUMNS} FROM mainstay_publications WHERE id IN ({{values}}) AND letter IS NOT NULL"
    );
    Bulk::among(&text, Column::Text)
});

async fn letters_of(tx: Tx, (filter, limit): (LetterFilter, usize)) -> mainstay_store::Result<LetterPage> {
    let after = filter.after.as_deref().unwrap_or_default();
    let Found { ids, reached: next } = filter.search().run(&tx, after, limit).await?;
    let rows = THESE.query(&tx, &ids.iter().map(Value::from).collect::<Vec<_>>()).await?;
    let mut letters = rows.iter().map(letter).collect::<mainstay_store::Result<Vec<_>>>()?;
    letters.sort_unstable_by(|one, other| one.publication_id.cmp(&other.publication_id));
    Ok(LetterPage { is_partial: next.is_some() && ids.len() < limit, letters, next })
}

fn not_found(event_id: &str, target: &str) -> Error {
    Error::PublicationLetterNotFound { event_id: event_id.to_owned(), target: target.to_owned() }
}

impl Publisher {
    /// The oldest letters of a filter (item 173), however many of others lie between them.
    pub async fn letters(&self, filter: LetterFilter, limit: usize) -> Result<Vec<Letter>> {
        let (mut filter, limit, mut letters) = (filter, limit.clamp(1, MAX_PAGE), Vec::new());
        loop {
            let context = (filter.clone(), limit - letters.len());
            let page = self.shared.store.read_with(context, letters_of).await?;
            letters.extend(page.letters);
            match page.next {
                Some(next) if letters.len() < limit => filter.after = Some(next),
                _ => return Ok(letters),
            }
        }
    }

    /// A page of letters, the oldest first. It looks at a bounded number of letters, as a search if no index has what the filter
    /// names.
    pub async fn letter_page(&self, filter: LetterFilter, limit: usize) -> Result<LetterPage> {
        let context = (filter, limit.clamp(1, MAX_PAGE));
        let store = &self.shared.store;
        Ok(match context.0.search().is_search() {
            true => store.search_with(context, letters_of).await?,
            false => store.read_with(context, letters_of).await?,
        })
    }

    /// One letter.
    pub async fn letter(&self, event_id: &str, target: &str) -> Result<Letter> {
        let read = async |tx: Tx, (tenant, event_id, target): (Option<Arc<str>>, String, String)| {
            record::id(&tx, &event_id, &target, tenant.as_deref()).await
        };
        let which = (self.tenant.clone(), event_id.to_owned(), target.to_owned());
        let found = match self.shared.store.read_with(which, read).await? {
            Some(id) => self.letter_of(&id).await?,
            None => None,
        };
        found.ok_or_else(|| not_found(event_id, target))
    }

    /// The letter of a publication.
    pub(crate) async fn letter_of(&self, publication_id: &str) -> Result<Option<Letter>> {
        let read = async |tx: Tx, id: String| {
            let sql =
                format!("SELECT {COLUMNS} FROM mainstay_publications WHERE id = $1 AND letter IS NOT NULL");
            tx.query_optional(&sql, params![id]).await?.as_ref().map(letter).transpose()
        };
        Ok(self.shared.store.read_with(publication_id.to_owned(), read).await?)
    }

    /// What has failed so far of a publication, the newest last.
    pub async fn attempts_of(&self, publication_id: &str) -> Result<Vec<Attempt>> {
        let read = async |tx: Tx, id: String| record::history(&tx, &id).await;
        Ok(self.shared.store.read_with(publication_id.to_owned(), read).await?)
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
        Ok(self.shared.store.search_with::<Vec<String>, _, _, _>(targets, read).await?)
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
        self.shared.target(target)?;
        let found = record::hold(tx, event_id, target, self.tenant.as_deref()).await?;
        let found =
            found.filter(|found| found.letter.is_some()).ok_or_else(|| not_found(event_id, target))?;
        match self.retry_held(tx, vec![found], false).await?.pop() {
            Some((_, retried)) => Ok(retried?),
            None => Err(not_found(event_id, target).into()),
        }
    }

    /// Tries many letters again in a transaction, pending and ignored ones, by the ids of their publications: each with the
    /// item of work that does, or with why there is none. They wait behind what is published meanwhile.
    pub(crate) async fn retry_letters_in(
        &self,
        tx: &Tx,
        publication_ids: &[String],
        is_behind: bool,
    ) -> mainstay_store::Result<Vec<(String, Result<String>)>> {
        let mut held = record::hold_all(tx, publication_ids).await?;
        held.retain(|found| found.letter.is_some());
        self.retry_held(tx, held, is_behind).await
    }

    async fn retry_held(
        &self,
        tx: &Tx,
        mut held: Vec<record::Found>,
        is_behind: bool,
    ) -> mainstay_store::Result<Vec<(String, Result<String>)>> {
        self.take_over(tx, &mut held).await?;
        let (mut retried, mut done) = (Vec::with_capacity(held.len()), Vec::with_capacity(held.len()));
        for found in held {
            let again = self.to_try_again(&found).and_then(|event| {
                let work_id = self.deliver_anew(tx, &found, &event, is_behind)?;
                Ok((event, work_id))
            });
            match again {
                Ok((event, work_id)) => done.push((found, event, work_id)),
                Err(error) => retried.push((found.id, Err(error))),
            }
        }
        record::retry(tx, &done).await?;
        self.shared.pass(Point::PublicationsRetried)?;
        retried.extend(done.into_iter().map(|(found, _, work_id)| (found.id, Ok(work_id))));
        Ok(retried)
    }

    /// Takes over what is kept of publications in letters of their work, as it was before there was a place for it beside
    /// them. One whose work somebody tries again is such a letter no more: it will be noted here what comes of that.
    async fn take_over(&self, tx: &Tx, held: &mut [record::Found]) -> mainstay_store::Result<()> {
        let work = &self.shared.work;
        let ids: Vec<String> = held.iter().filter_map(|found| found.work_id.clone()).collect();
        let mut known = work.letter_statuses_in(tx, &ids).await?;
        if known.is_empty() {
            return Ok(());
        }
        for found in held.iter_mut() {
            let status = found.work_id.as_ref().and_then(|id| known.get(id));
            if status == Some(&WorkLetter::Retried) {
                found.letter = found.letter.take().map(|_| "retrying".to_owned());
            }
        }
        known.retain(|_, status| *status != WorkLetter::Retried);
        let mut taken = work.take_letters_in(tx, &known.into_keys().collect::<Vec<_>>()).await?;
        for found in held {
            if let Some(attempts) = found.work_id.as_ref().and_then(|id| taken.remove(id)) {
                let attempts = attempts.into_iter().map(|(work_id, one)| Attempt::of(&work_id, one));
                record::remember(tx, &found.id, attempts.collect()).await?;
            }
        }
        Ok(())
    }

    /// The event of a letter that is to be tried again, as its target is to see it.
    fn to_try_again(&self, found: &record::Found) -> Result<PublicEvent> {
        let (to, _) = &**self.shared.target(&found.target)?;
        match found.letter.as_deref() {
            Some("pending" | "ignored") => {}
            Some(letter) => {
                return Err(dealt_with(&found.event_id, &found.target, LetterStatus::of(letter).as_str()));
            }
            None => return Err(not_found(&found.event_id, &found.target)),
        }
        match found.is_translated {
            true => Ok(found.event.clone()),
            false => to.translated(&found.event).map_err(|failure| Error::Translation {
                target: found.target.clone(),
                reason: failure.to_string(),
            }),
        }
    }

    /// Enqueues a delivery.
    fn deliver_anew(
        &self,
        tx: &Tx,
        found: &record::Found,
        event: &PublicEvent,
        is_behind: bool,
    ) -> Result<String> {
        let (to, policy) = &**self.shared.target(&found.target)?;
        let (publication_id, event_id) = (found.id.clone(), found.event_id.clone());
        let which = Which { publication_id, event_id, target: found.target.clone() };
        let item = deliver::item(to, *policy, &which, found.key.clone(), event)?;
        let item = if is_behind { item.priority(BEHIND) } else { item };
        let id = self.shared.work.new_id();
        self.shared.work.enqueue_as(tx, [(id.clone(), item)])?;
        Ok(id)
    }

    /// Tries the oldest letters again that are wanted, pending ones unless the filter says otherwise, and 100 unless said
    /// otherwise; how many. What cannot be tried again, because of its translator, stays.
    pub async fn retry_letters(&self, wanted: LetterFilter, limit: Option<usize>) -> Result<usize> {
        self.retry_all(self.wanted(wanted, limit).await?).await
    }

    /// Tries letters again, by the ids of their publications, in one transaction; how many.
    pub(super) async fn retry_all(&self, ids: Vec<String>) -> Result<usize> {
        let retry = async |tx: Tx, (publisher, ids): (Self, Vec<String>)| {
            let mut count = 0;
            for (_, retried) in publisher.retry_letters_in(&tx, &ids, true).await? {
                match retried {
                    Ok(_) => count += 1,
                    Err(error) if is_left(&error) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(count)
        };
        Ok(self.shared.store.transact_with((self.clone(), ids), retry).await?)
    }

    /// Leaves a letter for good.
    pub async fn ignore_letter(&self, event_id: &str, target: &str) -> Result<()> {
        let ignore = async |tx: Tx, (publisher, event_id, target): (Self, String, String)| {
            let found = publisher.held(&tx, &event_id, &target, &["pending"]).await?;
            publisher.ignore_held(&tx, &mut [found]).await
        };
        let context = (self.clone(), event_id.to_owned(), target.to_owned());
        Ok(self.shared.store.transact_with(context, ignore).await?)
    }

    /// Leaves many letters for good in a transaction, by the ids of their publications; those that were pending.
    pub(crate) async fn ignore_letters_in(
        &self,
        tx: &Tx,
        publication_ids: &[String],
    ) -> mainstay_store::Result<Vec<String>> {
        let mut held = record::hold_all(tx, publication_ids).await?;
        held.retain(|found| found.letter.as_deref() == Some("pending"));
        self.ignore_held(tx, &mut held).await?;
        Ok(held.into_iter().map(|found| found.id).collect())
    }

    async fn ignore_held(&self, tx: &Tx, held: &mut [record::Found]) -> mainstay_store::Result<()> {
        self.take_over(tx, held).await?;
        let ids: Vec<String> = held.iter().map(|found| found.id.clone()).collect();
        record::ignore(tx, &ids).await
    }

    /// Removes letters in a transaction, by the ids of their publications, with all that is known of them; those that nobody
    /// tries again.
    pub(crate) async fn remove_letters_in(
        &self,
        tx: &Tx,
        publication_ids: &[String],
    ) -> mainstay_store::Result<Vec<String>> {
        let mut held = record::hold_all(tx, publication_ids).await?;
        held.retain(|found| found.letter.as_deref().is_some_and(|letter| letter != "retrying"));
        let work_ids: Vec<String> = held.iter().filter_map(|found| found.work_id.clone()).collect();
        self.shared.work.remove_letters_in(tx, &work_ids).await?;
        let ids: Vec<String> = held.into_iter().map(|found| found.id).collect();
        record::remove_letters(tx, &ids).await?;
        Ok(ids)
    }

    /// Leaves the oldest pending letters for good that are wanted, 100 unless said otherwise; how many.
    pub async fn ignore_letters(&self, wanted: LetterFilter, limit: Option<usize>) -> Result<usize> {
        let wanted = LetterFilter { status: Some(LetterStatus::Pending), ..wanted };
        self.ignore_all(self.wanted(wanted, limit).await?).await
    }

    /// Leaves letters for good, by the ids of their publications, in one transaction; how many.
    pub(super) async fn ignore_all(&self, ids: Vec<String>) -> Result<usize> {
        let ignore = async |tx: Tx, (publisher, ids): (Self, Vec<String>)| {
            publisher.ignore_letters_in(&tx, &ids).await.map(|ignored| ignored.len())
        };
        Ok(self.shared.store.transact_with((self.clone(), ids), ignore).await?)
    }

    /// The publications whose letters are wanted.
    async fn wanted(&self, wanted: LetterFilter, limit: Option<usize>) -> Result<Vec<String>> {
        if let Some(target) = &wanted.target {
            self.shared.target(target)?;
        }
        let status = wanted.status.unwrap_or(LetterStatus::Pending);
        if status == LetterStatus::Retried {
            return Err(Error::invalid("status", "what is retried is not tried again"));
        }
        let filter = LetterFilter { status: Some(status), ..wanted };
        let letters = self.letters(filter, limit.unwrap_or(USUAL_LIMIT)).await?;
        Ok(letters.into_iter().map(|letter| letter.publication_id).collect())
    }

    /// A letter of one of these states, held until the transaction ends.
    async fn held(
        &self,
        tx: &Tx,
        event_id: &str,
        target: &str,
        kept: &[&str],
    ) -> mainstay_store::Result<record::Found> {
        let found = record::hold(tx, event_id, target, self.tenant.as_deref()).await?;
        let found = found.ok_or_else(|| not_found(event_id, target))?;
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
