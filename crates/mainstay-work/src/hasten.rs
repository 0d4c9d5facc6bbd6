//! Letting an item start that waits for its time.

use crate::directory::pool_topic;
use crate::enqueue::{INSERT_WORK, parse};
use crate::error::{Error, Result};
use crate::schema::waiting;
use crate::status::{ENDED, LOOKS, WAITING, held};
use crate::work::Work;
use mainstay_store::{Tx, Value, params};
use serde::Serialize;
use uuid::Uuid;

/// What came of letting an item start now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Hastened {
    /// It waited for its time, and may start.
    Now,
    /// It could start at any moment anyway.
    Already,
    /// It waits for nothing but the items of its key that are before it.
    Behind,
}

const TAKE_DELAYED: &str =
    "DELETE FROM mainstay_work WHERE id = $1 AND state = 1 RETURNING pool, lane, work_key, item";
const SET_DUE: &str = "UPDATE mainstay_work SET due_at = $2 WHERE id = $1 AND state = 2 AND due_at > $2";

impl Work {
    /// Lets an item that waits for its time, be that a delay or a retry, start now. It goes to the end of its lane; one
    /// that is behind another of its key stays there. What runs or has ended is refused.
    pub async fn run_now(&self, work_id: &str) -> Result<Hastened> {
        let id = parse(work_id).ok_or_else(|| Error::NotFound(work_id.to_owned()))?;
        let hasten = async |tx: Tx, (id, work_id): (Uuid, String)| {
            for _ in 0..LOOKS {
                if let Some(hastened) = hasten(&tx, id, &work_id).await? {
                    return Ok(hastened);
                }
            }
            Err(Error::NotFound(work_id).into())
        };
        Ok(self.store().transact_with((id, work_id.to_owned()), hasten).await?)
    }
}

async fn hasten(tx: &Tx, id: Uuid, work_id: &str) -> mainstay_store::Result<Option<Hastened>> {
    let (own, now_ms) = (&id.as_bytes()[..], tx.now_ms().await?);
    if let Some(row) = tx.query(TAKE_DELAYED, params![own]).await?.pop() {
        let pool: i64 = row.get(0)?;
        let again = [
            Value::Blob(own.to_vec()),
            Value::Int(pool),
            Value::Int(row.get(1)?),
            Value::Int(waiting::READY),
            Value::Int(now_ms),
            Value::from(row.get::<Option<String>>(2)?),
            Value::Text(row.get(3)?),
        ];
        INSERT_WORK.execute(tx, &again).await?;
        tx.wake(&pool_topic(pool))?;
        return Ok(Some(Hastened::Now));
    }
    if tx.execute(SET_DUE, params![own, now_ms]).await? > 0 {
        return Ok(Some(Hastened::Behind));
    }
    if let Some(row) = tx.query_optional(WAITING, params![own]).await? {
        return Ok(match row.get::<i64>(1)? {
            waiting::READY => Some(Hastened::Already),
            waiting::BEHIND => Some(Hastened::Behind),
            // It has come to wait for its time since it was looked for.
            _ => None,
        });
    }
    let state = match tx.query_optional(ENDED, params![own]).await? {
        Some(_) => "has ended",
        None if held(tx, id).await?.is_some() => "runs",
        None => return Ok(None),
    };
    Err(Error::NotWaiting { id: work_id.to_owned(), state }.into())
}
