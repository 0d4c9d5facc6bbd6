//! Trying letters again, each as a new item that is linked to it.

use super::LetterStatus;
use super::table::{Written, find, hold, known_ids, letter_id, own_kind, written};
use crate::enqueue::{noted, parse, text, uuid};
use crate::error::{Error, Result};
use crate::functions::Recording;
use crate::inbox;
use crate::item::NewWork;
use crate::settle::recording;
use crate::work::Work;
use mainstay_core::names::RESERVED_PREFIX;
use mainstay_store::Column::Blob;
use mainstay_store::{Bulk, Row, Tx, Value};
use std::collections::HashMap;
use std::sync::LazyLock;
use tokio::try_join;
use uuid::Uuid;

/// They are held.
static RETRIED: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::rows(
        "WITH new (id, retried_as) AS (VALUES {rows}) UPDATE mainstay_letters \
         SET status = 1, retried_as = new.retried_as FROM new WHERE mainstay_letters.id = new.id",
        &[Blob, Blob],
    )
});
/// Letters that are tried again by the hundred wait behind what is enqueued meanwhile.
const BULK_PRIORITY: i16 = 100;

impl Work {
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
        let (id, status) = (text(uuid(row.get(1)?)), LetterStatus::of(row.get(5)?));
        if status == LetterStatus::Recording {
            retried.push((id.clone(), Err(Error::FailureUnrecorded(id))));
        } else if states.contains(&status) {
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
            letter_kind: own_kind(item),
            letter: numbers.get(id).copied(),
            is_unlisted: item.is_unlisted,
            is_platform: item.function.starts_with(RESERVED_PREFIX) && item.is_of_platform(),
            correlation: Some(item.correlation.clone().unwrap_or_else(|| id.clone())),
            causation: item.causation.clone(),
            tenant: item.tenant.clone(),
            completes: item.completes(),
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

/// A letter that can be tried again: it can be read, its item may call its function, and a node has its functions.
async fn readable(work: &Work, tx: &Tx, row: &Row) -> mainstay_store::Result<Result<Written>> {
    let Ok(written) = serde_json::from_str::<Written>(row.get(7)?) else {
        return Ok(Err(Error::invalid("letter", "cannot be read")));
    };
    if let Err(reserved) = work.ground().functions().check_call(&written.item) {
        return Ok(Err(reserved.into()));
    }
    let directory = &work.ground().directory;
    for function in [Some(&written.item.function), written.item.on_complete.as_ref()].into_iter().flatten() {
        if let Err(unknown) = directory.function(tx, function).await? {
            return Ok(Err(unknown));
        }
    }
    // A letter from before its outbox was known to record.
    if recording(work.ground(), tx, &written.item).await? == Recording::Final {
        return Ok(Err(Error::FailureRecorded(text(uuid(row.get(1)?)))));
    }
    Ok(Ok(written))
}
