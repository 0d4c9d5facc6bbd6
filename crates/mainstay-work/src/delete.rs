//! Deleting what callers have named and nothing uses any more.
//!
//! A transaction that enqueues holds the rows of its pools in place, and a deletion holds its pool alone. So an item is
//! either committed before the pool is looked at, which refuses the deletion, or refused with `UNKNOWN_POOL`.
//!
//! A function is kept by its lanes. Items make one, and so does what leads to items later: an `onComplete`, a cron, a timer,
//! the handler of an intent. New lanes and deletions of functions come one after another.

use crate::bounds;
use crate::claim::lock_pool;
use crate::crons;
use crate::directory::{Directory, pool_topic, pools_topic};
use crate::error::{Error, Result};
use crate::functions::FunctionKind;
use crate::pool::Pool;
use crate::work::{Ground, TOTALS, Work};
use mainstay_core::names::check_unreserved;
use mainstay_store::{Hold, Tx, Value, params};
use std::sync::Arc;

const HOLD: &str = "SELECT name FROM mainstay_pools WHERE number = $1";
const WORK_OF: &str = "SELECT 1 FROM mainstay_work WHERE pool = $1 LIMIT 1";
const BATCHES_OF: &str = "SELECT 1 FROM mainstay_batches WHERE pool = $1 LIMIT 1";
const LETTERS_OF: &str = "SELECT 1 FROM mainstay_letters WHERE status = 0 AND pool = $1 LIMIT 1";
const REMEMBER: &str = "INSERT INTO mainstay_deleted_pools (number, name, last_lane, deleted_at) \
     SELECT $1, $2, coalesce(max(number), 0), mainstay_now() FROM mainstay_lanes";
const DELETE: [&str; 8] = [
    "DELETE FROM mainstay_lanes WHERE pool = $1",
    "DELETE FROM mainstay_work_keys WHERE pool = $1",
    "DELETE FROM mainstay_dedupe WHERE pool = $1",
    "DELETE FROM mainstay_dedupe_of_tenants WHERE pool = $1",
    "DELETE FROM mainstay_slots WHERE pool = $1",
    "DELETE FROM mainstay_pool_changes WHERE pool = $1",
    "DELETE FROM mainstay_pool_totals WHERE pool = $1",
    "DELETE FROM mainstay_pools WHERE number = $1",
];
/// Deleted pools of which no item is kept any more. The last one stays: new numbers begin after it.
pub(crate) const FORGET_DELETED: &str = "DELETE FROM mainstay_deleted_pools WHERE deleted_at < $1 \
     AND number < (SELECT max(number) FROM mainstay_deleted_pools)";

const LANES_OF: &str = "SELECT 1 FROM mainstay_lanes WHERE function = $1 LIMIT 1";
const KIND: &str = "SELECT kind FROM mainstay_functions WHERE name = $1";
const DELETE_FUNCTION: &str = "DELETE FROM mainstay_functions WHERE name = $1";

impl Work {
    /// Deletes a pool that is empty: nothing of it waits or runs, it has no pending dead letter and no cron, and this
    /// program does not declare it.
    pub async fn delete_pool(&self, pool: &str) -> Result<()> {
        let refused = |reason| Error::InUse { what: "pool", name: pool.to_owned(), reason };
        if Pool::new(pool).is_platform() {
            return Err(refused("it is one of the platform's own"));
        }
        if self.ground().is_declared(pool) {
            return Err(refused("this program or its configuration declares it"));
        }
        let delete = async |tx: Tx, (ground, name): (Arc<Ground>, String)| delete(&ground, &tx, name).await;
        Ok(self.store().transact_with((self.ground().clone(), pool.to_owned()), delete).await?)
    }

    /// Deletes an action that was declared for programs elsewhere and that nothing names: no pool has had work of it, or items
    /// that tell it their ends; no cron calls it and no intent has it as its handler; this program does not register it.
    pub async fn delete_function(&self, function: &str) -> Result<()> {
        check_unreserved("function", function)?;
        fn refused(name: &str, reason: &'static str) -> Error {
            Error::InUse { what: "function", name: name.to_owned(), reason }
        }
        if self.ground().functions().get(function).is_some() {
            return Err(refused(function, "this program registers it"));
        }
        let delete = async |tx: Tx, (ground, name): (Arc<Ground>, String)| {
            bounds::lock(&tx).await?;
            let Some(row) = tx.query_optional(KIND, params![&name]).await? else {
                return Err(Error::UnknownFunction(name).into());
            };
            // Items do not make the lane of a mutation that they tell their ends.
            if row.get::<&str>(0)? == FunctionKind::Mutation.as_str() {
                return Err(refused(&name, "it is a mutation, which only a program can register").into());
            }
            if !tx.query(LANES_OF, params![&name]).await?.is_empty() {
                return Err(refused(&name, "a pool has had work of it, or will have").into());
            }
            if crons::any(&tx, |cron| cron.function == name).await? {
                return Err(refused(&name, "a cron calls it").into());
            }
            tx.execute(DELETE_FUNCTION, params![&name]).await?;
            tx.after_commit(Arc::new(move || ground.directory.forget_function(&name)))
        };
        Ok(self.store().transact_with((self.ground().clone(), function.to_owned()), delete).await?)
    }
}

async fn delete(ground: &Arc<Ground>, tx: &Tx, name: String) -> mainstay_store::Result<()> {
    let number = Directory::pool(tx, &name).await??;
    // In the order of claims: their lock first, then the row.
    lock_pool(tx, number).await?;
    let held = tx.query_holding(HOLD, params![number], Hold::Alone).await?;
    if held.is_empty() {
        return Err(Error::UnknownPool(name).into());
    }
    if let Some(reason) = use_of(ground, tx, number, &name).await? {
        return Err(Error::InUse { what: "pool", name, reason }.into());
    }
    tx.execute(REMEMBER, params![number, &name]).await?;
    // The sums are not folded meanwhile, so that both do not wait for each other.
    tx.lock("mainstay.work.tidy").await?;
    for sql in DELETE {
        tx.execute(sql, &[Value::Int(number)]).await?;
    }
    tx.wake(&pools_topic())?;
    tx.wake(&pool_topic(number))?;
    let ground = ground.clone();
    tx.after_commit(Arc::new(move || ground.forget_pool(number, &name)))
}

/// The first user of a pool: items, crons, or a registration.
async fn use_of(
    ground: &Ground,
    tx: &Tx,
    number: i64,
    name: &str,
) -> mainstay_store::Result<Option<&'static str>> {
    if ground.is_declared(name) {
        return Ok(Some("this program or its configuration declares it"));
    }
    let totals = tx.query_one(TOTALS, params![number]).await?;
    let (pending, started, ended): (i64, i64, i64) = (totals.get(0)?, totals.get(1)?, totals.get(2)?);
    // The sums alone would do while they are right; an item must not be lost when they are not.
    if pending > 0 || !tx.query(WORK_OF, params![number]).await?.is_empty() {
        return Ok(Some("work waits in it"));
    }
    if started > ended || !tx.query(BATCHES_OF, params![number]).await?.is_empty() {
        return Ok(Some("work of it runs"));
    }
    if !tx.query(LETTERS_OF, params![number]).await?.is_empty() {
        return Ok(Some("it has pending dead letters"));
    }
    Ok(crons::any(tx, |cron| cron.pool == name).await?.then_some("a cron enqueues into it"))
}
