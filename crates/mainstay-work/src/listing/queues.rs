//! What of a pool can start next, and the queues of its keys.

use super::{Details, MOST_ROWS};
use crate::MAX_PAGE;
use crate::claim::{Held, plan_by_index, unpack};
use crate::directory::Directory;
use crate::enqueue::uuid;
use crate::error::Result;
use crate::item::Item;
use crate::status::{Native, Status, native_of, of_item};
use crate::work::{Ground, Work};
use mainstay_store::{Row, Tx, params};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A page of the keys of a pool that are in use.
#[derive(Debug, Clone, Default, Serialize)]
pub struct KeyPage {
    /// The keys, in their own order.
    pub keys: Vec<KeyQueue>,
    /// The key after which the next page begins; without it there are no more.
    pub next: Option<String>,
}

/// What there is of one key: one item in front, and others behind it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyQueue {
    /// The key.
    pub key: String,
    /// How many items there are, with the one in front.
    pub depth: u64,
    /// Whether the one in front runs.
    pub is_running: bool,
    /// The item in front. It is looked for among what runs and what can start soon, so it may be unknown.
    pub front: Option<Front>,
    /// When the oldest that is known was enqueued.
    pub oldest_at: Option<i64>,
}

/// The item of a key that the others wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Front {
    /// The item.
    pub work_id: String,
    /// Its function.
    pub function: String,
    /// Where it stands.
    pub native: Native,
    /// How often it was tried.
    pub attempts: u32,
    /// When it was enqueued.
    pub enqueued_at: i64,
    /// When it may start, while it waits.
    pub due_at: Option<i64>,
}

impl From<Status> for Front {
    fn from(status: Status) -> Self {
        Self {
            work_id: status.work_id,
            function: status.function,
            native: status.native,
            attempts: status.attempts,
            enqueued_at: status.enqueued_at,
            due_at: status.due_at,
        }
    }
}

/// How many items that can start soon are looked through for the fronts of keys, in each lane.
const MOST_FRONTS: i64 = 1_000;
/// Most keys of a page, for each of which there is a statement.
const MOST_KEYS: usize = 200;

const READY: &str = "SELECT id, state, due_at, item, work_key, place FROM mainstay_work \
     WHERE lane = $1 AND state = 0 AND place > $2 ORDER BY place LIMIT $3";
const BEHIND: &str = "SELECT id, state, due_at, item FROM mainstay_work WHERE pool = $1 AND state = 2 \
     ORDER BY work_key, place LIMIT $2";
const FIRST_BEHIND: &str = "SELECT item FROM mainstay_work WHERE pool = $1 AND work_key = $2 AND state = 2 \
     ORDER BY place LIMIT 1";
const KEYS: &str = "SELECT work_key, behind FROM mainstay_work_keys WHERE pool = $1 AND work_key > $2 \
     ORDER BY work_key LIMIT $3";
const HELD_OF: &str = "SELECT batch.number, batch.ids, batch.items, marks.done FROM mainstay_batches AS batch \
     LEFT JOIN mainstay_batch_marks AS marks ON marks.batch = batch.number WHERE batch.pool = $1";

/// Items that wait for their time, the next one first, among as many as are looked at.
fn delayed(most: i64) -> String {
    format!(
        "SELECT id, state, due_at, item, work_key FROM (SELECT id, state, due_at, item, work_key, pool \
         FROM mainstay_work WHERE state = 1 ORDER BY due_at LIMIT {most}) AS delayed WHERE pool = $1 \
         ORDER BY due_at LIMIT $2"
    )
}

impl Work {
    /// Items of a pool that wait, as they can start (item 268): those whose turn it is, those that wait for their time and
    /// those behind others of their key. Those that wait for their time are looked for among the next 5,000 of all pools.
    pub async fn upcoming(&self, pool: &str, limit: usize) -> Result<Vec<Details>> {
        let limit = limit.clamp(1, MAX_PAGE);
        let read = async |tx: Tx, (ground, pool, limit): (Arc<Ground>, String, usize)| {
            let number = Directory::pool(&tx, &pool).await??;
            plan_by_index(&ground, &tx).await?;
            let mut ready = Vec::new();
            for lanes in Directory::lanes_of(&tx, number, |_| true).await? {
                let mut group = Vec::new();
                for lane in lanes {
                    let rows = params![lane, ground.reached(&[lane]), limit as i64];
                    group.extend(tx.query(READY, rows).await?);
                }
                let mut placed = group
                    .into_iter()
                    .map(|row| Ok((row.get::<i64>(5)?, row)))
                    .collect::<mainstay_store::Result<Vec<_>>>()?;
                placed.sort_by_key(|(place, _)| *place);
                ready.extend(placed.into_iter().map(|(_, row)| row));
                if ready.len() >= limit {
                    break;
                }
            }
            if ready.len() < limit {
                let left = (limit - ready.len()) as i64;
                ready.extend(tx.query(&delayed(MOST_ROWS), params![number, left]).await?);
            }
            if ready.len() < limit {
                let left = (limit - ready.len()) as i64;
                ready.extend(tx.query(BEHIND, params![number, left]).await?);
            }
            ready.iter().take(limit).map(|row| waiting(&pool, row)).collect()
        };
        Ok(self.store().read_with((self.ground().clone(), pool.to_owned(), limit), read).await?)
    }

    /// As [`upcoming`](Self::upcoming), and no more than where each stands.
    pub async fn pending(&self, pool: &str, limit: usize) -> Result<Vec<Status>> {
        Ok(self.upcoming(pool, limit).await?.into_iter().map(|item| item.status).collect())
    }

    /// The keys of a pool that are in use, after one of them, and what waits of each.
    pub async fn keys(&self, pool: &str, after: Option<&str>, limit: usize) -> Result<KeyPage> {
        let limit = limit.clamp(1, MOST_KEYS);
        let read = async |tx: Tx, (ground, pool, after, limit): (Arc<Ground>, String, String, usize)| {
            let number = Directory::pool(&tx, &pool).await??;
            plan_by_index(&ground, &tx).await?;
            let mut rows = tx.query(KEYS, params![number, &after, limit as i64 + 1]).await?;
            let is_more = rows.len() > limit;
            rows.truncate(limit);
            let mut keys = BTreeMap::new();
            for row in rows {
                keys.insert(row.get::<String>(0)?, row.get::<i64>(1)?);
            }
            let mut fronts = running(&tx, number, &pool, &keys).await?;
            look_for_fronts(&ground, &tx, number, &pool, &keys, &mut fronts).await?;
            let mut page = KeyPage::default();
            for (key, behind) in keys {
                let first = match behind {
                    0 => None,
                    _ => tx.query_optional(FIRST_BEHIND, params![number, &key]).await?,
                };
                let first =
                    first.map(|row| Ok::<_, mainstay_store::Error>(Item::read(row.get(0)?).enqueued_at));
                let front: Option<Front> = fronts.remove(&key);
                let known =
                    first.transpose()?.into_iter().chain(front.as_ref().map(|front| front.enqueued_at));
                page.keys.push(KeyQueue {
                    depth: u64::try_from(behind + 1).unwrap_or(1),
                    is_running: front.as_ref().is_some_and(|front| front.native == Native::Running),
                    oldest_at: known.min(),
                    front,
                    key,
                });
            }
            page.next = page.keys.last().filter(|_| is_more).map(|last| last.key.clone());
            Ok(page)
        };
        let after = after.unwrap_or_default().to_owned();
        Ok(self.store().read_with((self.ground().clone(), pool.to_owned(), after, limit), read).await?)
    }
}

/// A row of `id, state, due_at, item`.
fn waiting(pool: &str, row: &Row) -> mainstay_store::Result<Details> {
    let (id, native) = (uuid(row.get(0)?), native_of(row.get(1)?));
    Ok(Details::of(id, pool, Item::read(row.get(3)?), native, Some(row.get(2)?)))
}

/// Items of these keys that run.
async fn running(
    tx: &Tx,
    pool: i64,
    name: &str,
    keys: &BTreeMap<String, i64>,
) -> mainstay_store::Result<HashMap<String, Front>> {
    let mut fronts = HashMap::new();
    for row in tx.query(HELD_OF, params![pool]).await? {
        let ids: &[u8] = row.get(1)?;
        let done = row.get::<Option<Vec<u8>>>(3)?.unwrap_or_default();
        let held = Held { batch: row.get(0)?, lease: 0, size: ids.len() / 16, done };
        for taken in unpack(ids, row.get(2)?)? {
            let Some(key) = taken.item.key.clone().filter(|key| keys.contains_key(key)) else { continue };
            if !held.is_done(taken.index) {
                let status = of_item(taken.id, name, Arc::unwrap_or_clone(taken.item), Native::Running, None);
                fronts.insert(key, status.into());
            }
        }
    }
    Ok(fronts)
}

/// Looks for the fronts that wait, where those are that can start soon.
async fn look_for_fronts(
    ground: &Ground,
    tx: &Tx,
    pool: i64,
    name: &str,
    keys: &BTreeMap<String, i64>,
    fronts: &mut HashMap<String, Front>,
) -> mainstay_store::Result<()> {
    let mut rows = Vec::new();
    if fronts.len() < keys.len() {
        for lane in Directory::lanes_of(tx, pool, |_| true).await?.into_iter().flatten() {
            rows.extend(tx.query(READY, params![lane, ground.reached(&[lane]), MOST_FRONTS]).await?);
        }
        rows.extend(tx.query(&delayed(MOST_ROWS), params![pool, MOST_FRONTS]).await?);
    }
    for row in rows {
        let Some(key) = row.get::<Option<String>>(4)?.filter(|key| keys.contains_key(key)) else { continue };
        let (id, native) = (uuid(row.get(0)?), native_of(row.get(1)?));
        let status = of_item(id, name, Item::read(row.get(3)?), native, Some(row.get(2)?));
        fronts.entry(key).or_insert_with(|| status.into());
    }
    Ok(())
}
