//! What a settlement writes, collected, so that each table is written once.

use super::record::state_of;
use crate::directory::{ended_topic, pool_topic, time_topic};
use crate::enqueue::{INSERT_WORK, change, uuid};
use crate::item::WorkResult;
use crate::schema::waiting;
use crate::{inbox, keys, letters};
use mainstay_store::Column::{Blob, Int, Text};
use mainstay_store::{Bulk, Column, Result, Tx, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use tokio::try_join;
use uuid::Uuid;

static INSERT_ENDED: LazyLock<Bulk> = LazyLock::new(|| {
    const COLUMNS: &[Column] = &[Blob, Int, Int, Int, Text];
    Bulk::insert("INSERT INTO mainstay_ended (id, pool, state, ended_at, record) VALUES {rows}", COLUMNS)
});
const CANCELS: &str = "SELECT id FROM mainstay_work_cancels";

/// What a settlement writes, collected.
#[derive(Default)]
pub(super) struct Writes {
    ended: Vec<Value>,
    pub(super) work: Vec<Value>,
    pub(super) keys: BTreeMap<(i64, String), i64>,
    pub(super) letters: Vec<Value>,
    pub(super) inbox: inbox::write::Ended,
    /// Items with a failure that this settlement has recorded.
    pub(super) recorded: Vec<String>,
    /// Items whose letters wait again, because those that were to try them again were cancelled.
    pub(super) returned: Vec<Value>,
    /// Running items that are to stop, once somebody has asked.
    cancels: Option<BTreeSet<Uuid>>,
    pub(super) is_any_ready: bool,
    pub(super) is_any_delayed: bool,
}

impl Writes {
    /// Adds what is kept of an item that ended.
    pub(super) fn end(&mut self, (pool, id): (i64, Uuid), result: &WorkResult, now_ms: i64, record: String) {
        self.ended.extend([
            Value::Blob(id.into_bytes().to_vec()),
            Value::Int(pool),
            Value::Int(state_of(result)),
            Value::Int(now_ms),
            Value::Text(record),
        ]);
    }

    pub(super) async fn is_to_stop(&mut self, tx: &Tx, id: Uuid) -> Result<bool> {
        let cancels = match self.cancels.take() {
            Some(cancels) => cancels,
            None => {
                let rows = tx.query(CANCELS, &[]).await?;
                rows.iter().map(|row| Ok(uuid(row.get(0)?))).collect::<Result<_>>()?
            }
        };
        Ok(self.cancels.insert(cancels).contains(&id))
    }
}

pub(super) async fn write(
    tx: &Tx,
    pool: i64,
    now_ms: i64,
    mut writes: Writes,
    executions: i64,
) -> Result<()> {
    let requeued = (writes.work.len() / 7) as i64;
    if !writes.keys.is_empty() {
        let freed = keys::release(tx, &writes.keys, now_ms).await?;
        for row in freed.chunks_exact(7) {
            let is_ready = row[3] == Value::Int(waiting::READY);
            writes.is_any_ready |= is_ready;
            writes.is_any_delayed |= !is_ready;
        }
        writes.work.extend(freed);
    }
    try_join!(
        biased;
        INSERT_ENDED.execute(tx, &writes.ended),
        INSERT_WORK.execute(tx, &writes.work),
        letters::INSERT.execute(tx, &writes.letters),
        change(tx, pool, now_ms, requeued, 0, executions)
    )?;
    if !writes.returned.is_empty() {
        letters::RETURN.execute(tx, &writes.returned).await?;
    }
    if !writes.recorded.is_empty() {
        letters::recorded(tx, &writes.recorded, &mut writes.inbox, now_ms).await?;
    }
    writes.inbox.write(tx).await?;
    if !writes.ended.is_empty() {
        tx.wake(&ended_topic())?;
    }
    if writes.is_any_ready {
        tx.wake(&pool_topic(pool))?;
    }
    if writes.is_any_delayed {
        tx.wake(&time_topic())?;
    }
    Ok(())
}
