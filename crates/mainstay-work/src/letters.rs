//! Dead letters: what ended failed, with all that is needed to try it again.

use crate::MAX_PAGE;
use crate::enqueue::{noted, parse, text, uuid};
use crate::error::{Error, Result};
use crate::inbox;
use crate::item::{Attempted, Item, NewWork};
use crate::work::Work;
use mainstay_store::Column::{Blob, Int, Text};
use mainstay_store::{Bulk, Hold, Row, Tx, Value, params};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::sync::LazyLock;
use tokio::try_join;
use uuid::Uuid;

/// What was done about a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LetterStatus {
    /// Nothing yet.
    Pending,
    /// It was tried again, as another item.
    Retried,
    /// Somebody decided to leave it.
    Ignored,
}

impl LetterStatus {
    fn number(self) -> i64 {
        match self {
            Self::Pending => 0,
            Self::Retried => 1,
            Self::Ignored => 2,
        }
    }

    fn of(number: i64) -> Self {
        match number {
            1 => Self::Retried,
            2 => Self::Ignored,
            _ => Self::Pending,
        }
    }
}

/// An item that ended failed.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Letter {
    /// The item.
    pub work_id: String,
    /// Its pool.
    pub pool: String,
    /// Its function.
    pub function: String,
    /// `work`, `onComplete` for the telling of an item's end, or what the item was enqueued with.
    pub kind: String,
    /// What was done about it.
    pub status: LetterStatus,
    /// When it ended.
    pub failed_at: i64,
    /// What it ended with.
    pub error: String,
    /// How often it was tried.
    pub attempts: u32,
    /// The failures of its executions; the newest is last.
    pub errors: Vec<Attempted>,
    /// What it was called with.
    pub args: Box<RawValue>,
    /// What was kept beside it.
    pub context: Option<Box<RawValue>>,
    /// Its key.
    pub key: Option<String>,
    /// The item that tries it again.
    pub retried_as: Option<String>,
    /// For the next page: [`LetterFilter::before`].
    #[serde(skip)]
    pub number: i64,
    /// Whether it is listed among dead letters; if it is not, whoever enqueued it keeps a letter of its own.
    #[serde(skip)]
    pub is_listed: bool,
}

/// Which letters.
#[derive(Debug, Clone, Default)]
pub struct LetterFilter {
    /// Of this status; pending ones unless given.
    pub status: Option<LetterStatus>,
    /// Of this pool.
    pub pool: Option<String>,
    /// Of this function.
    pub function: Option<String>,
    /// Of this kind.
    pub kind: Option<String>,
    /// Older than the letter of this number.
    pub before: Option<i64>,
    /// Newer than the letter of this number, and the oldest first; 0 begins with the oldest of all.
    pub after: Option<i64>,
}

/// A letter as it is kept.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    item: Item,
    error: String,
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
const COLUMNS: &str = "number, id, pool, name, kind, status, failed_at, letter, retried_as";
static HOLD: LazyLock<Bulk> = LazyLock::new(|| {
    let text = format!("SELECT {COLUMNS} FROM mainstay_letters WHERE id IN ({{values}}) ORDER BY number");
    Bulk::among(&text, Blob)
});
static STATUSES: LazyLock<Bulk> =
    LazyLock::new(|| Bulk::among("SELECT id, status FROM mainstay_letters WHERE id IN ({values})", Blob));
/// They are held.
static RETRIED: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::rows(
        "WITH new (id, retried_as) AS (VALUES {rows}) UPDATE mainstay_letters \
         SET status = 1, retried_as = new.retried_as FROM new WHERE mainstay_letters.id = new.id",
        &[Blob, Blob],
    )
});
static IGNORE: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::among("UPDATE mainstay_letters SET status = 2 WHERE status + 0 = 0 AND id IN ({values})", Blob)
});
/// What was to try a letter again was cancelled.
pub(crate) static RETURN: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::among("UPDATE mainstay_letters SET status = 0 WHERE status + 0 = 1 AND id IN ({values})", Blob)
});
static REMOVE: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::among("DELETE FROM mainstay_letters WHERE id IN ({values}) RETURNING letter", Blob)
});
const PURGE: &str = "DELETE FROM mainstay_letters WHERE number IN (SELECT number FROM mainstay_letters \
     WHERE failed_at < $1 ORDER BY number LIMIT 1000) RETURNING id";
/// Letters that are tried again by the hundred wait behind what is enqueued meanwhile.
const BULK_PRIORITY: i16 = 100;
/// How many items before one are told of.
const MAX_HISTORY: usize = 20;

/// The kind of letter that an item becomes, unless it is `work`. One that tries it again becomes the same.
pub(crate) fn own_kind(item: &Item) -> Option<&str> {
    item.letter_kind.as_deref().or(item.completes.as_deref().map(|_| "onComplete"))
}

/// The kind of letter that an item becomes.
pub(crate) fn kind(item: &Item) -> &str {
    own_kind(item).unwrap_or(inbox::WORK)
}

/// The row of a letter.
pub(crate) fn row(
    id: Uuid,
    pool: i64,
    item: &Item,
    error: &str,
    now_ms: i64,
) -> mainstay_store::Result<[Value; 7]> {
    let written = Written { item: item.clone(), error: error.to_owned(), retried_as: None };
    Ok([
        Value::Blob(id.into_bytes().to_vec()),
        Value::Int(pool),
        Value::from(&item.function),
        Value::from(kind(item)),
        Value::Int(LetterStatus::Pending.number()),
        Value::Int(now_ms),
        Value::Text(serde_json::to_string(&written).map_err(mainstay_store::Error::application)?),
    ])
}

impl Work {
    /// A page of dead letters, the newest first unless the filter says otherwise.
    pub async fn letters(&self, filter: LetterFilter, limit: usize) -> Result<Vec<Letter>> {
        let limit = limit.clamp(1, MAX_PAGE) as i64;
        let read = async |tx: Tx, (work, filter, limit): (Self, LetterFilter, i64)| {
            let order = if filter.after.is_some() { "ASC" } else { "DESC" };
            let mut sql = format!(
                "SELECT {COLUMNS} FROM mainstay_letters WHERE status = $1 AND number < $2 AND number > $4"
            );
            let status = filter.status.unwrap_or(LetterStatus::Pending);
            let mut values = vec![
                Value::Int(status.number()),
                Value::Int(filter.before.unwrap_or(i64::MAX)),
                Value::Int(limit),
                Value::Int(filter.after.unwrap_or(0)),
            ];
            if let Some(pool) = &filter.pool {
                values.push(Value::Int(work.ground().directory.pool(&tx, pool).await??));
                sql.push_str(&format!(" AND pool = ${}", values.len()));
            }
            if let Some(function) = &filter.function {
                values.push(Value::from(function));
                sql.push_str(&format!(" AND name = ${}", values.len()));
            }
            if let Some(kind) = &filter.kind {
                values.push(Value::from(kind));
                sql.push_str(&format!(" AND kind = ${}", values.len()));
            }
            sql.push_str(&format!(" ORDER BY number {order} LIMIT $3"));
            let mut letters = Vec::new();
            for row in tx.query(&sql, &values).await? {
                letters.push(letter(&work, &tx, &row).await?);
            }
            Ok(letters)
        };
        Ok(self.store().read_with((self.clone(), filter, limit), read).await?)
    }

    /// How many letters of all kinds nobody has dealt with, counted up to `most`.
    pub async fn count_letters(&self, most: u32) -> Result<u64> {
        let count = async |tx: Tx, most: u32| inbox::count_pending(&tx, most).await;
        Ok(self.store().read_with(most, count).await?)
    }

    /// The same by kind, each counted up to `most`. Kinds of which there are none are left out.
    pub async fn count_letters_by_kind(&self, most: u32) -> Result<Vec<(String, u64)>> {
        let count = async |tx: Tx, most: u32| inbox::count_pending_by_kind(&tx, most).await;
        Ok(self.store().read_with(most, count).await?)
    }

    /// One dead letter.
    pub async fn letter(&self, work_id: &str) -> Result<Letter> {
        let id = letter_id(work_id)?;
        let read = async |tx: Tx, (work, id): (Self, Uuid)| match find(&tx, id).await? {
            Some(row) => letter(&work, &tx, &row).await.map(Some),
            None => Ok(None),
        };
        let found = self.store().read_with((self.clone(), id), read).await?;
        found.ok_or_else(|| Error::LetterNotFound(work_id.to_owned()))
    }

    /// Tries a letter again, as a new item that is linked to it; the new item's id.
    pub async fn retry_letter(&self, work_id: &str) -> Result<String> {
        let retry = async |tx: Tx, (work, id): (Self, String)| work.retry_letter_in(&tx, &id).await;
        Ok(self.store().transact_with((self.clone(), work_id.to_owned()), retry).await?)
    }

    /// As [`retry_letter`](Self::retry_letter), unless the letter is somebody else's to deal with.
    pub async fn retry_failed(&self, work_id: &str) -> Result<String> {
        let retry = async |tx: Tx, (work, id): (Self, String)| {
            let is_others = match find(&tx, letter_id(&id)?).await? {
                Some(row) => written(&row)?.item.is_unlisted,
                None => false,
            };
            match is_others {
                true => Err(Error::LetterNotFound(id).into()),
                false => work.retry_letter_in(&tx, &id).await,
            }
        };
        Ok(self.store().transact_with((self.clone(), work_id.to_owned()), retry).await?)
    }

    /// As [`retry_letter`](Self::retry_letter), in a transaction.
    pub async fn retry_letter_in(&self, tx: &Tx, work_id: &str) -> mainstay_store::Result<String> {
        let found = hold(tx, &[letter_id(work_id)?]).await?;
        match retry(self, tx, found, &[LetterStatus::Pending], None, None).await?.pop() {
            Some((_, retried)) => Ok(retried?),
            None => Err(Error::LetterNotFound(work_id.to_owned()).into()),
        }
    }

    /// Tries many letters again in a transaction, pending and ignored ones: each with the item that does, or with why there
    /// is none. Those of another status, or that are not there, are left out. `is_behind` lets them wait behind what is
    /// enqueued meanwhile.
    pub async fn retry_letters_in(
        &self,
        tx: &Tx,
        work_ids: &[String],
        is_behind: bool,
    ) -> mainstay_store::Result<Vec<(String, Result<String>)>> {
        let found = hold(tx, &known_ids(work_ids)).await?;
        let priority = is_behind.then_some(BULK_PRIORITY);
        retry(self, tx, found, &[LetterStatus::Pending, LetterStatus::Ignored], None, priority).await
    }

    /// As [`retry_letters_in`](Self::retry_letters_in), for letters whose numbers in the inbox are known.
    pub async fn retry_listed_in(
        &self,
        tx: &Tx,
        listed: &[(String, i64)],
        is_behind: bool,
    ) -> mainstay_store::Result<Vec<(String, Result<String>)>> {
        let ids: Vec<Uuid> = listed.iter().filter_map(|(id, _)| parse(id)).collect();
        let found = hold(tx, &ids).await?;
        let numbers = listed.iter().cloned().collect();
        let priority = is_behind.then_some(BULK_PRIORITY);
        retry(self, tx, found, &[LetterStatus::Pending, LetterStatus::Ignored], Some(numbers), priority).await
    }

    /// What was done about letters, as a transaction sees them; those that there are.
    pub async fn letter_statuses_in(
        &self,
        tx: &Tx,
        work_ids: &[String],
    ) -> mainstay_store::Result<HashMap<String, LetterStatus>> {
        let values =
            known_ids(work_ids).iter().map(|id| Value::Blob(id.into_bytes().to_vec())).collect::<Vec<_>>();
        let rows = STATUSES.query(tx, &values).await?;
        rows.iter().map(|row| Ok((text(uuid(row.get(0)?)), LetterStatus::of(row.get(1)?)))).collect()
    }

    /// What was done about a letter, as a transaction sees it; none when there is no such letter.
    pub async fn letter_status_in(
        &self,
        tx: &Tx,
        work_id: &str,
    ) -> mainstay_store::Result<Option<LetterStatus>> {
        let Some(id) = parse(work_id) else { return Ok(None) };
        find(tx, id).await?.map(|row| row.get(5).map(LetterStatus::of)).transpose()
    }

    /// Leaves a letter for good; it is kept until it is purged.
    pub async fn ignore_letter(&self, work_id: &str) -> Result<()> {
        let ignore = async |tx: Tx, (work, id): (Self, String)| work.ignore_letter_in(&tx, &id).await;
        Ok(self.store().transact_with((self.clone(), work_id.to_owned()), ignore).await?)
    }

    /// As [`ignore_letter`](Self::ignore_letter), in a transaction.
    pub async fn ignore_letter_in(&self, tx: &Tx, work_id: &str) -> mainstay_store::Result<()> {
        match self.ignore_letters_in(tx, &[work_id.to_owned()]).await?.is_empty() {
            true => Err(Error::LetterNotFound(work_id.to_owned()).into()),
            false => Ok(()),
        }
    }

    /// Leaves many letters for good, in a transaction; those that were pending.
    pub async fn ignore_letters_in(
        &self,
        tx: &Tx,
        work_ids: &[String],
    ) -> mainstay_store::Result<Vec<String>> {
        let found = hold(tx, &known_ids(work_ids)).await?;
        let (mut ids, mut values) = (Vec::new(), Vec::new());
        for row in found {
            if LetterStatus::of(row.get(5)?) == LetterStatus::Pending {
                let id = uuid(row.get(1)?);
                ids.push(text(id));
                values.push(Value::Blob(id.into_bytes().to_vec()));
            }
        }
        IGNORE.execute(tx, &values).await?;
        let numbers = inbox::write::numbers(tx, &ids).await?;
        inbox::write::ignored(tx, numbers.into_values()).await?;
        Ok(ids)
    }

    /// Removes letters in a transaction, whatever was done about them, with those of the items that they try again.
    pub async fn remove_letters_in(&self, tx: &Tx, work_ids: &[String]) -> mainstay_store::Result<()> {
        let mut next = known_ids(work_ids);
        while !next.is_empty() {
            let values: Vec<Value> = next.iter().map(|id| Value::Blob(id.into_bytes().to_vec())).collect();
            let removed = REMOVE.query(tx, &values).await?;
            next = removed.iter().filter_map(|row| earlier(row.get(0).ok()?)).collect();
        }
        inbox::write::removed(tx, work_ids).await
    }

    /// Takes letters of unlisted items over, in a transaction: they are removed with those of the items that they try again,
    /// and whoever keeps the letter otherwise is given what has failed, the oldest first.
    pub async fn take_letters_in(
        &self,
        tx: &Tx,
        work_ids: &[String],
    ) -> mainstay_store::Result<HashMap<String, Vec<(String, Attempted)>>> {
        let mut taken = HashMap::new();
        for row in hold(tx, &known_ids(work_ids)).await? {
            let id = text(uuid(row.get(1)?));
            let history = history(self, tx, &id).await?;
            let attempts = history.into_iter().rev().flat_map(|letter| {
                letter.errors.into_iter().map(move |attempted| (letter.work_id.clone(), attempted))
            });
            taken.insert(id, attempts.collect());
        }
        if !taken.is_empty() {
            self.remove_letters_in(tx, &taken.keys().cloned().collect::<Vec<_>>()).await?;
        }
        Ok(taken)
    }

    /// A letter, and those of the items that it tries again, the newest first; at most twenty.
    pub async fn letter_history(&self, work_id: &str) -> Result<Vec<Letter>> {
        let read = async |tx: Tx, (work, id): (Self, String)| history(&work, &tx, &id).await;
        Ok(self.store().read_with((self.clone(), work_id.to_owned()), read).await?)
    }

    /// Removes letters that failed before a moment, whatever was done about them; how many.
    pub async fn purge_letters(&self, before_ms: i64) -> Result<u64> {
        let mut purged = 0;
        loop {
            let purge = async |tx: Tx, before_ms: i64| {
                let rows = tx.query(PURGE, params![before_ms]).await?;
                let ids = rows.iter().map(|row| Ok(text(uuid(row.get(0)?))));
                let ids = ids.collect::<mainstay_store::Result<Vec<String>>>()?;
                inbox::write::removed(&tx, &ids).await?;
                Ok(ids.len() as u64)
            };
            let count = self.store().transact_with(before_ms, purge).await?;
            purged += count;
            if count == 0 {
                return Ok(purged);
            }
        }
    }
}

fn letter_id(work_id: &str) -> Result<Uuid> {
    parse(work_id).ok_or_else(|| Error::LetterNotFound(work_id.to_owned()))
}

async fn find(tx: &Tx, id: Uuid) -> mainstay_store::Result<Option<Row>> {
    let sql = format!("SELECT {COLUMNS} FROM mainstay_letters WHERE id = $1");
    tx.query_optional(&sql, params![&id.as_bytes()[..]]).await
}

async fn history(work: &Work, tx: &Tx, work_id: &str) -> mainstay_store::Result<Vec<Letter>> {
    let (mut history, mut next) = (Vec::new(), parse(work_id));
    while let Some(id) = next.filter(|_| history.len() < MAX_HISTORY) {
        let Some(row) = find(tx, id).await? else { break };
        next = written(&row)?.item.retry_of.as_deref().and_then(parse);
        history.push(letter(work, tx, &row).await?);
    }
    Ok(history)
}

/// The item that one tries again whose letter this is. One that cannot be read tries nothing again.
fn earlier(letter: &str) -> Option<Uuid> {
    let written: Written = serde_json::from_str(letter).ok()?;
    written.item.retry_of.as_deref().and_then(parse)
}

/// The ids among texts that may be ours.
fn known_ids(work_ids: &[String]) -> Vec<Uuid> {
    work_ids.iter().filter_map(|id| parse(id)).collect()
}

/// Letters, held until the transaction ends, in the order they failed in.
async fn hold(tx: &Tx, ids: &[Uuid]) -> mainstay_store::Result<Vec<Row>> {
    let values: Vec<Value> = ids.iter().map(|id| Value::Blob(id.into_bytes().to_vec())).collect();
    HOLD.query_holding(tx, &values, Hold::Alone).await
}

fn written(row: &Row) -> mainstay_store::Result<Written> {
    serde_json::from_str(row.get(7)?).map_err(mainstay_store::Error::application)
}

/// Tries letters again that are held and of one of these states: each with the item that does, or with why there is none.
/// `numbers` are theirs in the inbox, if somebody knows them. What has a `priority` comes no sooner than that.
async fn retry(
    work: &Work,
    tx: &Tx,
    found: Vec<Row>,
    states: &[LetterStatus],
    numbers: Option<HashMap<String, i64>>,
    priority: Option<i16>,
) -> mainstay_store::Result<Vec<(String, Result<String>)>> {
    let (mut wanted, mut retried) = (Vec::with_capacity(found.len()), Vec::with_capacity(found.len()));
    for row in found {
        if states.contains(&LetterStatus::of(row.get(5)?)) {
            let id = text(uuid(row.get(1)?));
            match readable(work, tx, &row).await? {
                Ok(written) => wanted.push((id, written, row)),
                Err(error) => retried.push((id, Err(error))),
            }
        }
    }
    if wanted.is_empty() {
        return Ok(retried);
    }
    let ids: Vec<String> = wanted.iter().map(|(id, ..)| id.clone()).collect();
    let numbers = match numbers {
        Some(numbers) => numbers,
        None => inbox::write::numbers(tx, &ids).await?,
    };
    let listed: Vec<i64> = ids.iter().filter_map(|id| numbers.get(id).copied()).collect();
    let mut again = Vec::with_capacity(wanted.len());
    for (id, Written { item, .. }, row) in &wanted {
        let pool = work.ground().directory.pool_name(tx, row.get(2)?).await?;
        again.push(NewWork {
            key: item.key.clone(),
            priority: priority.map_or(item.priority, |least| least.max(item.priority)),
            retry: item.retry,
            on_complete: item.on_complete.clone(),
            context: item.context.clone(),
            trace: item.trace.clone(),
            retry_of: Some(id.clone()),
            letter_kind: own_kind(item).map(str::to_owned),
            letter: numbers.get(id).copied(),
            is_unlisted: item.is_unlisted,
            correlation: item.correlation.clone(),
            ..NewWork::new(pool, &item.function, &item.args).map_err(mainstay_store::Error::from)?
        });
    }
    let receipt = noted(work.ground(), tx).add(again);
    let mut links = Vec::with_capacity(wanted.len() * 2);
    for ((_, _, row), new_id) in wanted.iter().zip(receipt.work_ids()) {
        let new_id = parse(new_id).map(|id| id.into_bytes().to_vec());
        links.extend([Value::from(row.get::<&[u8]>(1)?), new_id.map_or(Value::Null, Value::Blob)]);
    }
    // Sent at once.
    try_join!(biased; RETRIED.execute(tx, &links), inbox::write::retrying(tx, listed))?;
    retried.extend(ids.into_iter().zip(receipt.work_ids().iter().cloned().map(Ok)));
    Ok(retried)
}

/// A letter that can be tried again: it can be read, and somebody has its functions.
async fn readable(work: &Work, tx: &Tx, row: &Row) -> mainstay_store::Result<Result<Written>> {
    let Ok(written) = serde_json::from_str::<Written>(row.get(7)?) else {
        return Ok(Err(Error::invalid("letter", "cannot be read")));
    };
    let directory = &work.ground().directory;
    for function in [Some(&written.item.function), written.item.on_complete.as_ref()].into_iter().flatten() {
        if let Err(unknown) = directory.function(tx, function).await? {
            return Ok(Err(unknown));
        }
    }
    Ok(Ok(written))
}

async fn letter(work: &Work, tx: &Tx, row: &Row) -> mainstay_store::Result<Letter> {
    let written = written(row)?;
    Ok(Letter {
        number: row.get(0)?,
        work_id: text(uuid(row.get(1)?)),
        pool: work.ground().directory.pool_name(tx, row.get(2)?).await?,
        function: row.get(3)?,
        kind: row.get(4)?,
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
