//! Looking at letters: pages, counts, one with what came before it, and what was done about them.

use super::table::{COLUMNS, find, known_ids, letter, letter_id, written};
use super::{Letter, LetterFilter, LetterStatus};
use crate::MAX_PAGE;
use crate::directory::Directory;
use crate::enqueue::{parse, text, uuid};
use crate::error::{Error, Result};
use crate::functions::Call;
use crate::inbox::{self, Kind};
use crate::work::Work;
use mainstay_store::Column::Blob;
use mainstay_store::{Bulk, Tx, Value};
use std::collections::HashMap;
use std::sync::LazyLock;
use uuid::Uuid;

static STATUSES: LazyLock<Bulk> =
    LazyLock::new(|| Bulk::among("SELECT id, status FROM mainstay_letters WHERE id IN ({values})", Blob));
/// How many items before one are told of.
const MAX_HISTORY: usize = 20;

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
                values.push(Value::Int(Directory::pool(&tx, pool).await??));
                sql.push_str(&format!(" AND pool = ${}", values.len()));
            }
            if let Some(function) = &filter.function {
                values.push(Value::from(function));
                sql.push_str(&format!(" AND name = ${}", values.len()));
            }
            if let Some(kind) = &filter.kind {
                values.push(Value::from(kind.as_str()));
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
    pub async fn count_letters_by_kind(&self, most: u32) -> Result<Vec<(Kind, u64)>> {
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

    /// A letter, and those of the items that it tries again, the newest first; at most twenty.
    pub async fn letter_history(&self, work_id: &str) -> Result<Vec<Letter>> {
        let read = async |tx: Tx, (work, id): (Self, String)| history(&work, &tx, &id).await;
        Ok(self.store().read_with((self.clone(), work_id.to_owned()), read).await?)
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
}

/// Whether a call tells the end of an item, or of a retry of it, or of a retry of that.
pub(crate) async fn is_retry(tx: &Tx, call: &Call, work_id: &str) -> mainstay_store::Result<bool> {
    let Some(completes) = &call.completes else { return Ok(false) };
    if completes.is_of(work_id) {
        return Ok(true);
    }
    let mut next = completes.retry_of.as_deref().and_then(parse);
    for _ in 0..MAX_HISTORY {
        let Some(id) = next else { break };
        if text(id) == work_id {
            return Ok(true);
        }
        let Some(row) = find(tx, id).await? else { break };
        next = written(&row)?.item.retry_of.as_deref().and_then(parse);
    }
    Ok(false)
}

pub(super) async fn history(work: &Work, tx: &Tx, work_id: &str) -> mainstay_store::Result<Vec<Letter>> {
    let (mut history, mut next) = (Vec::new(), parse(work_id));
    while let Some(id) = next.filter(|_| history.len() < MAX_HISTORY) {
        let Some(row) = find(tx, id).await? else { break };
        next = written(&row)?.item.retry_of.as_deref().and_then(parse);
        history.push(letter(work, tx, &row).await?);
    }
    Ok(history)
}
