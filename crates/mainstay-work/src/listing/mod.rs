//! Looking at many items: pages over everything that waits, runs or has ended, and the queues of a pool.
//!
//! Ids are in the order in which they were made, on all tables, so a page is what three sources have after an id, merged.
//! A filter may match little: a page looks at so many rows of each source and no more, and says where to go on. So every
//! page costs the same, however much there is, and no index is kept for it.
//!
//! - `sources`: what waits, what runs, what has ended
//! - `queues`: what of a pool can start next, and its keys

mod queues;
mod sources;

use crate::enqueue::{parse, text};
use crate::error::{Error, Result};
use crate::item::{Attempted, Item};
use crate::letters::{Letter, LetterStatus};
use crate::status::{Native, Status, held, of_item};
use crate::work::{Ground, Work};
use crate::{MAX_KEY_BYTES, MAX_NAME_BYTES, MAX_PAGE};
use mainstay_store::{Tx, params};
pub use queues::{Front, KeyPage, KeyQueue};
use serde::Serialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use uuid::Uuid;

/// Longest text that arguments are searched for.
const MAX_SEARCH_BYTES: usize = 256;
/// How many rows of each source a page looks at.
const MOST_ROWS: i64 = 5_000;
/// How many rows are read at once, each of which may be as long as two values.
const CHUNK: usize = 50;
/// Most rows that are read at once while texts are looked through and rows turn out to be short.
const MOST_CHUNK: usize = 1_000;
/// How many bytes of values a page has, beyond which it ends early.
const MOST_BYTES: usize = 1 << 20;

/// Which items, and from where on.
#[derive(Debug, Clone, Default)]
pub struct ListQuery {
    /// Of this pool.
    pub pool: Option<String>,
    /// Of one of these; all if there are none. See [`Native::named`].
    pub states: Vec<Native>,
    /// Of this function.
    pub function: Option<String>,
    /// Of this key.
    pub key: Option<String>,
    /// That belong together with this.
    pub correlation_id: Option<String>,
    /// With this text in their arguments, as JSON has them. Of items that have ended no arguments are kept.
    pub args: Option<String>,
    /// Whether the oldest come first.
    pub is_oldest_first: bool,
    /// What comes after the [`next`](ListPage::next) of the page before.
    pub after: Option<String>,
}

/// A page of items.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ListPage {
    /// The items, in the order in which they were enqueued or in that order backwards.
    pub work: Vec<Details>,
    /// Where the next page begins; without it there is nothing more. A page with a `next` may be short, even empty: what
    /// a filter looks for may lie further on.
    pub next: Option<String>,
    /// Whether the page ended before it was full, because it had looked at as much as a page may: there is a `next`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_partial: bool,
}

impl ListQuery {
    fn check(&self) -> Result<()> {
        for (field, text, most) in [
            ("args", &self.args, MAX_SEARCH_BYTES),
            ("key", &self.key, MAX_KEY_BYTES),
            ("correlationId", &self.correlation_id, MAX_KEY_BYTES),
            ("pool", &self.pool, MAX_NAME_BYTES),
            ("function", &self.function, MAX_NAME_BYTES),
        ] {
            if text.as_ref().is_some_and(|text| !(1..=most).contains(&text.len())) {
                return Err(Error::invalid(field, format!("must be 1 to {most} bytes")));
            }
        }
        Ok(())
    }

    /// Whether texts of items are looked through. Only what has not ended has columns for its function and its key.
    fn is_search(&self) -> bool {
        let is_ended_asked = self.states.is_empty() || self.states.iter().any(|state| state.is_ended());
        let is_in_record = self.function.is_some() || self.key.is_some();
        self.args.is_some() || self.correlation_id.is_some() || (is_in_record && is_ended_asked)
    }
}

/// An item in full.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// Where it stands.
    #[serde(flatten)]
    pub status: Status,
    /// How often it was tried before now (item 266); as [`Status::attempts`].
    pub previous_attempts: u32,
    /// What it is called with. Of an item that has ended it is known only while its dead letter is.
    pub args: Option<Box<RawValue>>,
    /// The failures so far, the newest last; only so many are kept.
    pub errors: Vec<Attempted>,
    /// Lower numbers first; known while it has not ended.
    pub priority: Option<i16>,
    /// The function that is told how it ended; known while it has not.
    pub on_complete: Option<String>,
    /// What it belongs together with.
    pub correlation_id: Option<String>,
    /// The trace that it belongs to; known while it has not ended.
    pub trace_id: Option<String>,
    /// The item that this one tries again.
    pub retry_of: Option<String>,
    /// The item that tries this one again.
    pub retried_as: Option<String>,
    /// Whether it left a dead letter that nobody has dealt with.
    pub is_dead_letter: bool,
}

impl Details {
    /// An item that has not ended.
    fn of(id: Uuid, pool: &str, mut item: Item, native: Native, due_at: Option<i64>) -> Self {
        let (args, errors) = (Some(item.args.clone()), std::mem::take(&mut item.errors));
        let last_error = errors.last().map(|last| last.failure.to_string());
        let correlation_id = item.correlation.take();
        let (priority, on_complete) = (Some(item.priority), item.on_complete.take());
        let trace_id = item.trace.take().map(|trace| trace.trace_id);
        let retry_of = item.retry_of.take();
        let status = Status { last_error, ..of_item(id, pool, item, native, due_at) };
        Self {
            previous_attempts: status.attempts,
            args,
            errors,
            priority,
            on_complete,
            correlation_id,
            trace_id,
            retry_of,
            ..Self::ended(status)
        }
    }

    /// An item that has.
    fn ended(status: Status) -> Self {
        Self {
            previous_attempts: status.attempts,
            status,
            args: None,
            errors: Vec::new(),
            priority: None,
            on_complete: None,
            correlation_id: None,
            trace_id: None,
            retry_of: None,
            retried_as: None,
            is_dead_letter: false,
        }
    }

    fn with_letter(mut self, letter: Letter) -> Self {
        self.is_dead_letter = letter.is_listed && letter.status == LetterStatus::Pending;
        self.args = Some(letter.args);
        self.errors = letter.errors;
        self.retried_as = letter.retried_as;
        self
    }

    fn bytes(&self) -> usize {
        let length = |value: &Option<Box<RawValue>>| value.as_ref().map_or(0, |value| value.get().len());
        length(&self.args) + length(&self.status.context)
    }
}

impl Work {
    /// A page of items of all pools, the newest first unless asked otherwise.
    pub async fn list(&self, query: ListQuery, limit: usize) -> Result<ListPage> {
        query.check()?;
        let limit = limit.clamp(1, MAX_PAGE);
        let after = match &query.after {
            Some(after) => {
                Some(parse(after).ok_or_else(|| Error::invalid("after", "is not the `next` of a page"))?)
            }
            None => None,
        };
        let read = async |tx: Tx, (ground, query, after, limit): Asked| {
            let sources = sources::all(&ground, &tx, &query, after, limit).await?;
            Ok(page(sources, query.is_oldest_first, limit))
        };
        let is_search = query.is_search();
        let context = (self.ground().clone(), query, after, limit);
        match is_search {
            true => Ok(self.store().search_with(context, read).await?),
            false => Ok(self.store().read_with(context, read).await?),
        }
    }

    /// All that is known of an item; nothing when it never was, or was forgotten.
    pub async fn details(&self, work_id: &str) -> Result<Option<Details>> {
        let Some(id) = parse(work_id) else { return Ok(None) };
        let read = async |tx: Tx, (ground, id): (Arc<Ground>, Uuid)| details(&ground, &tx, id).await;
        let Some(details) = self.store().read_with((self.ground().clone(), id), read).await? else {
            return Ok(None);
        };
        if details.status.native != Native::Failed {
            return Ok(Some(details));
        }
        match self.letter(work_id).await {
            Ok(letter) => Ok(Some(details.with_letter(letter))),
            Err(Error::LetterNotFound(_)) => Ok(Some(details)),
            Err(error) => Err(error),
        }
    }
}

type Asked = (Arc<Ground>, ListQuery, Option<Uuid>, usize);

async fn details(ground: &Ground, tx: &Tx, id: Uuid) -> mainstay_store::Result<Option<Details>> {
    let own = params![&id.as_bytes()[..]];
    if let Some(row) = tx.query_optional(crate::status::WAITING, own).await? {
        let pool = ground.directory.pool_name(tx, row.get(0)?).await?;
        let native = crate::status::native_of(row.get(1)?);
        return Ok(Some(Details::of(id, &pool, Item::read(row.get(3)?), native, Some(row.get(2)?))));
    }
    if let Some(row) = tx.query_optional(crate::status::ENDED, own).await? {
        let pool = ground.directory.pool_name(tx, row.get(0)?).await?;
        return sources::of_record(id, pool, row.get(2)?, row.get(3)?).map(Some);
    }
    let Some((pool, taken)) = held(tx, id).await? else { return Ok(None) };
    let pool = ground.directory.pool_name(tx, pool).await?;
    Ok(Some(Details::of(id, &pool, Arc::unwrap_or_clone(taken.item), Native::Running, None)))
}

/// What a source has.
#[derive(Default)]
struct Found {
    items: Vec<(Uuid, Details)>,
    /// Everything up to here was looked at; without it, everything.
    reached: Option<Uuid>,
}

/// One page of what all sources have, up to where all of them have been looked at.
fn page(sources: Vec<Found>, is_oldest_first: bool, limit: usize) -> ListPage {
    let before = |one: &Uuid, other: &Uuid| if is_oldest_first { one < other } else { one > other };
    let mut reached: Option<Uuid> = None;
    let mut items = Vec::new();
    for source in sources {
        reached = match (reached, source.reached) {
            (Some(one), Some(other)) => Some(if before(&one, &other) { one } else { other }),
            (one, other) => one.or(other),
        };
        items.extend(source.items);
    }
    items.retain(|(id, _)| reached.is_none_or(|reached| !before(&reached, id)));
    items.sort_unstable_by_key(|(id, _)| *id);
    if !is_oldest_first {
        items.reverse();
    }
    let mut work = Vec::with_capacity(items.len().min(limit));
    let (mut bytes, mut last) = (0, None);
    for (id, item) in items {
        if work.len() == limit || (bytes > MOST_BYTES && !work.is_empty()) {
            return ListPage { work, next: last.map(text), is_partial: false };
        }
        bytes += item.bytes();
        last = Some(id);
        work.push(item);
    }
    let is_partial = reached.is_some() && work.len() < limit;
    ListPage { work, next: reached.map(text), is_partial }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::WorkResult;

    /// An id of the kind that ours are, with a number in it.
    fn id_of(number: u128) -> Uuid {
        Uuid::from_u128(0x7000_8000_0000_0000_0000 | number)
    }

    fn found(ids: &[u128], reached: Option<u128>) -> Found {
        let item = |id: &u128| {
            let status = Status {
                work_id: text(id_of(*id)),
                pool: String::new(),
                function: String::new(),
                state: Native::Canceled.state(),
                native: Native::Canceled,
                attempts: 0,
                last_error: None,
                context: None,
                key: None,
                enqueued_at: 0,
                due_at: None,
                ended_at: None,
                result: Some(WorkResult::Canceled),
            };
            (id_of(*id), Details::ended(status))
        };
        Found { items: ids.iter().map(item).collect(), reached: reached.map(id_of) }
    }

    fn told(page: &ListPage) -> (Vec<u128>, Option<u128>) {
        let number = |id: &str| parse(id).unwrap().as_u128() ^ id_of(0).as_u128();
        let ids = page.work.iter().map(|item| number(&item.status.work_id)).collect();
        (ids, page.next.as_deref().map(number))
    }

    #[test]
    fn a_page_ends_where_one_source_has_not_been_looked_at() {
        let sources = || vec![found(&[1, 4], Some(5)), found(&[2, 6], None), found(&[3], Some(3))];
        assert_eq!(told(&page(sources(), true, 10)), (vec![1, 2, 3], Some(3)));
        assert_eq!(told(&page(sources(), true, 2)), (vec![1, 2], Some(2)));
        let backwards = vec![found(&[9, 6], Some(5)), found(&[8, 2], None)];
        assert_eq!(told(&page(backwards, false, 10)), (vec![9, 8, 6], Some(5)));
        let all = vec![found(&[9], None), found(&[8], None)];
        assert_eq!(told(&page(all, false, 10)), (vec![9, 8], None));
    }
}
