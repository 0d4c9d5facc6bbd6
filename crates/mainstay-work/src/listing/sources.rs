//! What a page is made of: what waits, what runs, what has ended.

use super::{CHUNK, Details, Found, ListQuery, MOST_BYTES, MOST_CHUNK, MOST_ROWS};
use crate::claim::{Held, plan_by_index, unpack};
use crate::directory::Directory;
use crate::enqueue::uuid;
use crate::item::Item;
use crate::schema::waiting;
use crate::status::{HELD, Native, Record, native_of};
use crate::work::Ground;
use mainstay_core::{json, secrets};
use mainstay_store::{Result, Row, Tx, Value, params};
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::{Duration, Instant};
use uuid::Uuid;

const HELD_BATCH: &str = "SELECT ids, items FROM mainstay_batches WHERE number = $1";
const LANES: &str = "SELECT number FROM mainstay_lanes WHERE function = $1";

/// A table whose rows are in the order of their ids.
struct Table {
    name: &'static str,
    /// As it is named on SQLite, so that it is read in that order whatever is looked for.
    sqlite: &'static str,
    /// Its columns, of which the last is its JSON.
    columns: &'static str,
}

const WORK: Table = Table {
    name: "mainstay_work",
    sqlite: "mainstay_work INDEXED BY mainstay_work_by_id",
    columns: "id, pool, state, due_at, item",
};
const ENDED: Table =
    Table { name: "mainstay_ended", sqlite: "mainstay_ended", columns: "id, pool, state, ended_at, record" };

/// Conditions on columns with their values, and on the text of a row.
#[derive(Default)]
struct Conditions {
    sql: String,
    values: Vec<Value>,
    /// Texts that the row's JSON holds.
    texts: Vec<String>,
}

impl Conditions {
    /// The first two parameters are where a page begins and ends, the third how many rows are read.
    const FIRST: usize = 4;

    fn add(&mut self, column: &str, value: impl Into<Value>) {
        self.sql.push_str(&format!(" AND {column} = ${}", Self::FIRST + self.values.len()));
        self.values.push(value.into());
    }

    fn any(&mut self, column: &str, numbers: &[i64]) {
        let places: Vec<String> =
            (0..numbers.len()).map(|index| format!("${}", Self::FIRST + self.values.len() + index)).collect();
        self.sql.push_str(&format!(" AND {column} IN ({})", places.join(", ")));
        self.values.extend(numbers.iter().map(|number| Value::Int(*number)));
    }

    /// That the row's JSON has a member of this value, or seems to: the exact comparison follows.
    fn member(&mut self, name: &str, value: &str) {
        self.texts.push(format!("\"{name}\":{}", serde_json::Value::from(value)));
    }

    /// Whether the row's JSON holds all texts. The time is linear in its length, which `LIKE` and `instr` are not.
    fn are_held_in(&self, json: &str) -> bool {
        self.texts.iter().all(|text| json.contains(text.as_str()))
    }
}

/// Bounds of one search, so that a page costs the same however large the texts are.
struct Budget {
    bytes: usize,
    until: Instant,
}

impl Budget {
    fn new() -> Self {
        Self { bytes: MOST_SEARCHED_BYTES, until: Instant::now() + MOST_SEARCHED_FOR }
    }

    fn spend(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    fn is_spent(&self) -> bool {
        self.bytes == 0 || Instant::now() >= self.until
    }
}

/// Most bytes of JSON that a page looks through in each source.
const MOST_SEARCHED_BYTES: usize = 8 << 20;
/// Longest time that a page looks through texts of each source.
const MOST_SEARCHED_FOR: Duration = Duration::from_millis(250);
/// Bytes that are read at once while texts are looked through, as far as that can be foreseen.
const SEARCH_CHUNK_BYTES: usize = 1 << 20;

/// Everything that a query names, in each source as far as a page goes.
pub(super) async fn all(
    ground: &Ground,
    tx: &Tx,
    query: &ListQuery,
    after: Option<Uuid>,
    limit: usize,
) -> Result<Vec<Found>> {
    plan_by_index(ground, tx).await?;
    let pool = match &query.pool {
        Some(pool) => Some(Directory::pool(tx, pool).await??),
        None => None,
    };
    let looked = Look { ground, tx, query, pool, after, limit };
    Ok(vec![looked.waiting().await?, looked.running().await?, looked.ended().await?])
}

struct Look<'a> {
    ground: &'a Ground,
    tx: &'a Tx,
    query: &'a ListQuery,
    pool: Option<i64>,
    after: Option<Uuid>,
    limit: usize,
}

impl Look<'_> {
    /// The numbers of these states among those that are asked for; nothing when none is.
    fn states(&self, all: &[(Native, i64)]) -> Option<Vec<i64>> {
        let asked = |native| self.query.states.is_empty() || self.query.states.contains(native);
        let numbers: Vec<i64> =
            all.iter().filter(|(native, _)| asked(native)).map(|(_, number)| *number).collect();
        (!numbers.is_empty()).then_some(numbers)
    }

    async fn waiting(&self) -> Result<Found> {
        let all = [
            (Native::Ready, waiting::READY),
            (Native::Delayed, waiting::DELAYED),
            (Native::Behind, waiting::BEHIND),
        ];
        let Some(states) = self.states(&all) else { return Ok(Found::default()) };
        let mut conditions = Conditions::default();
        if states.len() < all.len() {
            conditions.any("state", &states);
        }
        if let Some(pool) = self.pool {
            conditions.add("pool", pool);
        }
        if let Some(function) = &self.query.function {
            let rows = self.tx.query(LANES, params![function]).await?;
            let lanes = rows.iter().map(|row| row.get(0)).collect::<Result<Vec<i64>>>()?;
            if lanes.is_empty() {
                return Ok(Found::default());
            }
            conditions.any("lane", &lanes);
        }
        if let Some(key) = &self.query.key {
            conditions.add("work_key", key.as_str());
        }
        if let Some(correlation) = &self.query.correlation_id {
            conditions.member("correlation", correlation);
        }
        if let Some(args) = &self.query.args {
            conditions.texts.push(args.clone());
        }
        self.rows(&WORK, &conditions, |id, pool, row| {
            let native = native_of(row.get(2)?);
            Ok(Details::of(id, &pool, Item::read(row.get(4)?), native, Some(row.get(3)?)))
        })
        .await
    }

    async fn ended(&self) -> Result<Found> {
        let all = [(Native::Success, 0), (Native::Failed, 1), (Native::Canceled, 2)];
        let Some(states) = self.states(&all).filter(|_| self.query.args.is_none()) else {
            return Ok(Found::default());
        };
        let mut conditions = Conditions::default();
        if states.len() < all.len() {
            conditions.any("state", &states);
        }
        if let Some(pool) = self.pool {
            conditions.add("pool", pool);
        }
        let members = [
            ("function", &self.query.function),
            ("key", &self.query.key),
            ("correlation", &self.query.correlation_id),
        ];
        for (name, value) in members {
            if let Some(value) = value {
                conditions.member(name, value);
            }
        }
        self.rows(&ENDED, &conditions, |id, pool, row| of_record(id, pool, row.get(3)?, row.get(4)?)).await
    }

    /// Rows of a table, among as many as a page looks at.
    async fn rows(
        &self,
        table: &Table,
        conditions: &Conditions,
        read: impl Fn(Uuid, String, &Row) -> Result<Details>,
    ) -> Result<Found> {
        let (compare, order, other) =
            if self.query.is_oldest_first { (">", "ASC", "<=") } else { ("<", "DESC", ">=") };
        let Table { name, sqlite, columns, .. } = table;
        let mut after =
            self.after.unwrap_or(if self.query.is_oldest_first { Uuid::nil() } else { Uuid::max() });
        let edge = format!(
            "SELECT id FROM {name} WHERE id {compare} $1 ORDER BY id {order} LIMIT 1 OFFSET {}",
            MOST_ROWS - 1
        );
        let edge = self.tx.query_optional(&edge, params![&after.as_bytes()[..]]).await?;
        let edge = edge.map(|row| Ok::<_, mainstay_store::Error>(uuid(row.get(0)?))).transpose()?;
        let last = edge.unwrap_or(if self.query.is_oldest_first { Uuid::max() } else { Uuid::nil() });
        let range = format!("id {compare} $1 AND id {other} $2");
        let sql = match self.ground.store.capabilities().plans_by_statistics {
            // What is looked for must not lead the server to another index, which may have far more of it.
            true => format!(
                "SELECT {columns} FROM (SELECT * FROM {name} WHERE {range} OFFSET 0) AS rows_of_it \
                 WHERE true{} ORDER BY id {order} LIMIT $3",
                conditions.sql
            ),
            false => format!(
                "SELECT {columns} FROM {sqlite} WHERE {range}{} ORDER BY id {order} LIMIT $3",
                conditions.sql
            ),
        };
        let (mut found, mut bytes) = (Found { items: Vec::new(), reached: edge }, 0);
        let (mut budget, mut chunk) = (Budget::new(), CHUNK);
        loop {
            let mut values = vec![
                Value::Blob(after.as_bytes().to_vec()),
                Value::Blob(last.as_bytes().to_vec()),
                Value::Int(chunk as i64),
            ];
            values.extend(conditions.values.iter().cloned());
            let rows = self.tx.query(&sql, &values).await?;
            let (is_last, mut looked) = (rows.len() < chunk, 0);
            for row in &rows {
                after = uuid(row.get(0)?);
                let json: &str = row.get(4)?;
                looked += json.len();
                if !conditions.are_held_in(json) {
                    continue;
                }
                let pool = self.ground.directory.pool_name(self.tx, row.get(1)?).await?;
                let item = read(after, pool, row)?;
                if self.is_asked_for(&item) {
                    bytes += item.bytes();
                    found.items.push((after, item));
                }
            }
            if is_last {
                return Ok(found);
            }
            if !conditions.texts.is_empty() {
                budget.spend(looked);
                chunk = (SEARCH_CHUNK_BYTES / (looked / rows.len()).max(1)).clamp(CHUNK, MOST_CHUNK);
            }
            if found.items.len() >= self.limit || bytes > MOST_BYTES || budget.is_spent() {
                found.reached = Some(after);
                return Ok(found);
            }
        }
    }

    /// What was taken and has not ended. There is as much of it as may run at once.
    async fn running(&self) -> Result<Found> {
        if self.states(&[(Native::Running, 0)]).is_none() {
            return Ok(Found::default());
        }
        let mut candidates = Vec::new();
        for row in self.tx.query(HELD, &[]).await? {
            let (batch, pool, ids): (i64, i64, &[u8]) = (row.get(0)?, row.get(1)?, row.get(2)?);
            if self.pool.is_some_and(|asked| asked != pool) {
                continue;
            }
            let done = row.get::<Option<Vec<u8>>>(3)?.unwrap_or_default();
            let held = Held { batch, lease: 0, size: ids.len() / 16, done };
            let ids = ids.chunks_exact(16).map(uuid).enumerate();
            candidates.extend(
                ids.filter(|(index, id)| !held.is_done(*index) && self.is_after(*id))
                    .map(|(index, id)| (id, batch, index, pool)),
            );
        }
        candidates.sort_unstable();
        if !self.query.is_oldest_first {
            candidates.reverse();
        }
        let (mut found, mut bytes) = (Found::default(), 0);
        let (mut batches, mut budget, mut last) = (HashMap::new(), Budget::new(), None);
        for (id, batch, index, pool) in candidates {
            if found.items.len() >= self.limit || bytes > MOST_BYTES || (last.is_some() && budget.is_spent())
            {
                found.reached = last;
                break;
            }
            last = Some(id);
            let members = match batches.entry(batch) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let row = self.tx.query_one(HELD_BATCH, params![batch]).await?;
                    let items: &str = row.get(1)?;
                    budget.spend(items.len());
                    new.insert(unpack(row.get(0)?, items)?)
                }
            };
            let item = (*members[index].item).clone();
            let pool = self.ground.directory.pool_name(self.tx, pool).await?;
            let item = Details::of(id, &pool, item, Native::Running, None);
            if self.is_asked_for(&item) {
                bytes += item.bytes();
                found.items.push((id, item));
            }
        }
        Ok(found)
    }

    fn is_after(&self, id: Uuid) -> bool {
        match self.after {
            Some(after) if self.query.is_oldest_first => id > after,
            Some(after) => id < after,
            None => true,
        }
    }

    /// What a statement could not look at exactly.
    fn is_asked_for(&self, item: &Details) -> bool {
        let is = |asked: &Option<String>, found: Option<&str>| {
            asked.as_deref().is_none_or(|asked| found == Some(asked))
        };
        is(&self.query.function, Some(&item.status.function))
            && is(&self.query.key, item.status.key.as_deref())
            && is(&self.query.correlation_id, item.correlation_id.as_deref())
            && self
                .query
                .args
                .as_deref()
                .is_none_or(|text| item.args.as_ref().is_some_and(|args| is_told_in(args, text)))
    }
}

/// Whether arguments hold a text as they are shown: what is hidden must not be guessed letter by letter.
fn is_told_in(args: &RawValue, text: &str) -> bool {
    if !args.get().contains(text) {
        return false;
    }
    let read = serde_json::from_str(&json::readable(args.get()));
    read.is_ok_and(|mut read| !secrets::hide(&mut read) || read.to_string().contains(text))
}

/// An item that has ended, from what is kept of it.
pub(super) fn of_record(id: Uuid, pool: String, ended_at: i64, record: &str) -> Result<Details> {
    let mut record: Record = serde_json::from_str(record).map_err(mainstay_store::Error::application)?;
    let (retry_of, correlation_id) = (record.retry_of.take(), record.correlation.take());
    let status = record.status(id, pool, ended_at);
    Ok(Details { correlation_id, retry_of, ..Details::ended(status) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_not_found_letter_by_letter() {
        let args = RawValue::from_string(r#"{"apiKey":"canary","order":"ord-7"}"#.to_owned()).unwrap();
        for (text, is_found) in
            [("ord-7", true), ("\"ord", true), ("canary", false), ("\"c", false), ("ord-8", false)]
        {
            assert_eq!(is_told_in(&args, text), is_found, "{text}");
        }
        let plain = RawValue::from_string("[1.10]".to_owned()).unwrap();
        assert!(is_told_in(&plain, "1.10"), "as it was given");
    }
}
