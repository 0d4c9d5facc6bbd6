//! Pools and how they are doing, page by page. However many pools and lanes a page has, it costs the same few statements.

use crate::error::Result;
use crate::pool::{Depth, PoolStatus};
use crate::work::{Ground, LATELY_MS, Work};
use mainstay_store::Column::Int;
use mainstay_store::{Bulk, Row, Tx, Value, params};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// Most pools of one page.
const MAX_PAGE: usize = crate::MAX_PAGE;

const POOLS: &str = "SELECT number, name, settings, is_paused, changed_at FROM mainstay_pools";
/// Counts of the pools whose names lie between two, and those of the time since a moment.
const TOTALS: &str = "SELECT pool, CAST(sum(pending) AS BIGINT), CAST(sum(started) AS BIGINT), CAST(sum(ended) AS BIGINT), \
     CAST(sum(started_lately) AS BIGINT), CAST(sum(ended_lately) AS BIGINT) FROM (\
     SELECT t.pool, t.pending, t.started, t.ended, 0 AS started_lately, 0 AS ended_lately FROM mainstay_pool_totals t \
     WHERE t.pool IN (SELECT p.number FROM mainstay_pools p WHERE p.name >= $1 AND p.name <= $2) UNION ALL \
     SELECT c.pool, c.pending, c.started, c.ended, CASE WHEN c.changed_at > $3 THEN c.started ELSE 0 END, \
     CASE WHEN c.changed_at > $3 THEN c.ended ELSE 0 END FROM mainstay_pool_changes c \
     WHERE c.pool IN (SELECT p.number FROM mainstay_pools p WHERE p.name >= $1 AND p.name <= $2)) AS parts GROUP BY pool";
const LANES: &str = "SELECT l.pool, l.number FROM mainstay_lanes l \
     WHERE l.pool IN (SELECT p.number FROM mainstay_pools p WHERE p.name >= $1 AND p.name <= $2)";
/// When the first item of each pool could start that is ready.
const OLDEST: &str = "SELECT l.pool, min((SELECT w.due_at FROM mainstay_work w WHERE w.lane = l.number AND w.state = 0 \
     ORDER BY w.place LIMIT 1)) FROM mainstay_lanes l \
     WHERE l.pool IN (SELECT p.number FROM mainstay_pools p WHERE p.name >= $1 AND p.name <= $2) GROUP BY l.pool";
/// The same behind the places up to which lanes were taken, see `fronts`.
static OLDEST_BEHIND: LazyLock<Bulk> = LazyLock::new(|| {
    let text = "WITH lanes (pool, lane, reached) AS (VALUES {rows}) SELECT lanes.pool, \
                min((SELECT w.due_at FROM mainstay_work w WHERE w.lane = lanes.lane AND w.state = 0 \
                AND w.place > lanes.reached ORDER BY w.place LIMIT 1)) FROM lanes GROUP BY lanes.pool";
    Bulk::rows(text, &[Int, Int, Int])
});

/// A page of pools.
#[derive(Debug, Clone, Default)]
pub struct PoolPage {
    /// The pools, by their names.
    pub pools: Vec<PoolStatus>,
    /// The name after which the next page begins; nothing when there is none.
    pub next: Option<String>,
}

impl Work {
    /// All pools, and how they are doing.
    pub async fn pools(&self) -> Result<Vec<PoolStatus>> {
        let (mut pools, mut after) = (Vec::new(), None);
        loop {
            let page = self.pool_page(after, MAX_PAGE).await?;
            pools.extend(page.pools);
            after = page.next;
            if after.is_none() {
                return Ok(pools);
            }
        }
    }

    /// A page of pools, by their names; those after a name, if one is given.
    pub async fn pool_page(&self, after: Option<String>, limit: usize) -> Result<PoolPage> {
        let read = async |tx: Tx, (ground, after, limit): (Arc<Ground>, String, usize)| {
            let sql = format!("{POOLS} WHERE name > $1 ORDER BY name LIMIT $2");
            let rows = tx.query(&sql, params![after, limit as i64]).await?;
            let pools = statuses(&ground, &tx, &rows).await?;
            let next = pools.last().filter(|_| pools.len() == limit).map(|last| last.name.clone());
            Ok(PoolPage { pools, next })
        };
        let context = (self.ground().clone(), after.unwrap_or_default(), limit.clamp(1, MAX_PAGE));
        Ok(self.store().read_with(context, read).await?)
    }

    /// A pool, and how it is doing.
    pub async fn pool_status(&self, pool: &str) -> Result<PoolStatus> {
        let read = async |tx: Tx, (ground, pool): (Arc<Ground>, String)| {
            let rows = tx.query(&format!("{POOLS} WHERE name = $1"), params![&pool]).await?;
            let found = statuses(&ground, &tx, &rows).await?.pop();
            Ok(found.ok_or(crate::Error::UnknownPool(pool))?)
        };
        Ok(self.store().read_with((self.ground().clone(), pool.to_owned()), read).await?)
    }

    /// How much waits in a pool.
    pub async fn depth(&self, pool: &str) -> Result<Depth> {
        self.pool_status(pool).await.map(|status| status.depth)
    }
}

/// How the pools of these rows are doing, which are all whose names lie between the first and the last.
async fn statuses(ground: &Ground, tx: &Tx, rows: &[Row]) -> mainstay_store::Result<Vec<PoolStatus>> {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(Vec::new()) };
    let between: [Value; 2] = [Value::from(first.get::<&str>(1)?), Value::from(last.get::<&str>(1)?)];
    let now_ms = tx.now_ms().await?;
    let mut depths = depths(tx, &between, now_ms).await?;
    for (pool, due_at) in oldest(ground, tx, &between).await? {
        depths.entry(pool).or_default().oldest_age_ms = Some((now_ms - due_at).max(0));
    }
    let status = |row: &Row| {
        let settings = ground.settings(row.get(1)?, row.get(2)?)?;
        Ok(PoolStatus {
            name: row.get(1)?,
            settings: (*settings).clone(),
            is_paused: row.get(3)?,
            changed_at: row.get(4)?,
            depth: depths.remove(&row.get(0)?).unwrap_or_default(),
        })
    };
    rows.iter().map(status).collect()
}

/// What waits and runs of each pool, by its number.
async fn depths(tx: &Tx, between: &[Value; 2], now_ms: i64) -> mainstay_store::Result<HashMap<i64, Depth>> {
    let [first, last] = between.clone();
    let rows = tx.query(TOTALS, &[first, last, Value::Int(now_ms - LATELY_MS)]).await?;
    let per_second = |count: i64| count as f64 * 1_000.0 / LATELY_MS as f64;
    let depth = |row: &Row| {
        let (pending, started, ended): (i64, i64, i64) = (row.get(1)?, row.get(2)?, row.get(3)?);
        let depth = Depth {
            pending: u64::try_from(pending).unwrap_or(0),
            running: u64::try_from(started - ended).unwrap_or(0),
            started_per_second: per_second(row.get(4)?),
            ended_per_second: per_second(row.get(5)?),
            ..Depth::default()
        };
        Ok((row.get(0)?, depth))
    };
    rows.iter().map(depth).collect()
}

/// When the first item of each pool could start that is ready, by the pool's number.
async fn oldest(ground: &Ground, tx: &Tx, between: &[Value; 2]) -> mainstay_store::Result<Vec<(i64, i64)>> {
    let rows = match ground.store.capabilities().concurrent_writers {
        false => tx.query(OLDEST, between).await?,
        true => {
            let mut lanes = Vec::new();
            for row in tx.query(LANES, between).await? {
                let (pool, lane): (i64, i64) = (row.get(0)?, row.get(1)?);
                lanes.extend([pool, lane, ground.reached(&[lane])].map(Value::Int));
            }
            if lanes.is_empty() { Vec::new() } else { OLDEST_BEHIND.query(tx, &lanes).await? }
        }
    };
    let oldest = |row: &Row| Ok(row.get::<Option<i64>>(1)?.map(|due_at| (row.get::<i64>(0), due_at)));
    let found = rows.iter().filter_map(|row| oldest(row).transpose());
    found.map(|found| found.and_then(|(pool, due_at)| Ok((pool?, due_at)))).collect()
}
