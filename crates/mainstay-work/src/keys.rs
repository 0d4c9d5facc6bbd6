//! Keys: one item at a time, in order.
//!
//! A key that is in use has a row. The item in front is ready, delayed or taken; the others wait behind it, and the
//! row says how many. Whoever enqueues or ends an item of a key holds its row to the end of the transaction, so the order
//! of a key's items is the order of their commits. Rows are taken in their order, so that nobody waits in a circle.

use crate::schema::waiting;
use futures_util::future::try_join_all;
use mainstay_store::{Hold, Result, Tx, Value, params};
use std::collections::BTreeMap;

const ENTER: &str = "INSERT INTO mainstay_work_keys (pool, work_key, behind) VALUES ($1, $2, CAST($3 AS BIGINT) - 1) \
     ON CONFLICT (pool, work_key) DO UPDATE SET behind = mainstay_work_keys.behind + CAST($3 AS BIGINT) RETURNING behind";
const BEHIND: &str = "SELECT behind FROM mainstay_work_keys WHERE pool = $1 AND work_key = $2";
const LEAVE: &str = "DELETE FROM mainstay_work_keys WHERE pool = $1 AND work_key = $2";
const ADVANCE: &str = "UPDATE mainstay_work_keys SET behind = behind - 1 WHERE pool = $1 AND work_key = $2";
const TAKE_NEXT: &str = "DELETE FROM mainstay_work WHERE place = (SELECT place FROM mainstay_work \
     WHERE pool = $1 AND work_key = $2 AND state = 2 ORDER BY place LIMIT 1) RETURNING id, lane, due_at, item";

/// Enters items of keys, given how many there are of each; which keys were free, so that their first item is in front.
pub(crate) async fn enter(
    tx: &Tx,
    counts: &BTreeMap<(i64, String), i64>,
) -> Result<BTreeMap<(i64, String), bool>> {
    let enter = counts.iter().map(|((pool, key), count)| async move {
        let row = tx.query(ENTER, params![*pool, key, *count]).await?;
        let behind: i64 = row.first().map_or(Ok(0), |row| row.get(0))?;
        Ok::<_, mainstay_store::Error>(((*pool, key.clone()), behind == count - 1))
    });
    Ok(try_join_all(enter).await?.into_iter().collect())
}

/// Lets the next item of each key come to the front; how many did, as rows to be written.
pub(crate) async fn release(tx: &Tx, keys: &BTreeMap<(i64, String), i64>, now_ms: i64) -> Result<Vec<Value>> {
    let release = keys.keys().map(|(pool, key)| release_one(tx, *pool, key, now_ms));
    Ok(try_join_all(release).await?.into_iter().flatten().flatten().collect())
}

async fn release_one(tx: &Tx, pool: i64, key: &str, now_ms: i64) -> Result<Option<[Value; 7]>> {
    let own = params![pool, key];
    let held = tx.query_holding(BEHIND, own, Hold::Alone).await?;
    let behind: i64 = held.first().map_or(Ok(0), |row| row.get(0))?;
    if behind == 0 {
        tx.execute(LEAVE, own).await?;
        return Ok(None);
    }
    let Some(next) = tx.query(TAKE_NEXT, own).await?.pop() else {
        // The count was wrong, which nothing should make it; the key must not stay shut for that.
        tracing::error!(key, "a key has nobody behind although its row says so");
        tx.execute(LEAVE, own).await?;
        return Ok(None);
    };
    tx.execute(ADVANCE, own).await?;
    let due_at: i64 = next.get(2)?;
    let state = if due_at > now_ms { waiting::DELAYED } else { waiting::READY };
    Ok(Some([
        Value::Blob(next.get(0)?),
        Value::Int(pool),
        Value::Int(next.get(1)?),
        Value::Int(state),
        Value::Int(due_at),
        Value::from(key),
        Value::Text(next.get(3)?),
    ]))
}

/// One item behind is gone.
pub(crate) async fn leave_behind(tx: &Tx, pool: i64, key: &str) -> Result<()> {
    tx.execute(ADVANCE, params![pool, key]).await.map(drop)
}
