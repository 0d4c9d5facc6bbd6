//! Leases: who may work, and until when. The database's clock alone judges them.
//!
//! A lease's number is the fencing token: numbers never come again. Whatever is done under a lease first holds its row in
//! place and looks at its time, so it is either done before the lease is taken away, or not at all.

use crate::error::Error;
use crate::work::Ground;
use mainstay_store::{Hold, Result, Tx, params};

const TAKE: &str = "INSERT INTO mainstay_leases (holder, until_ms) \
     VALUES ($1, mainstay_now() + CAST($2 AS BIGINT)) RETURNING number";
const EXTEND: &str = "UPDATE mainstay_leases SET until_ms = mainstay_now() + CAST($2 AS BIGINT) \
     WHERE number = $1 AND until_ms > mainstay_now()";
const FENCE: &str = "SELECT until_ms, mainstay_now() FROM mainstay_leases WHERE number = $1";
const EXPIRED: &str =
    "SELECT number FROM mainstay_leases WHERE until_ms <= mainstay_now() ORDER BY number LIMIT 100";
const HOLD_EXPIRED: &str =
    "SELECT number FROM mainstay_leases WHERE number = $1 AND until_ms <= mainstay_now()";
const END: &str = "DELETE FROM mainstay_leases WHERE number = $1 AND until_ms <= mainstay_now()";
const GIVE_UP: &str = "UPDATE mainstay_leases SET until_ms = 0 WHERE number = $1";
const GIVE_UP_ALL: &str = "UPDATE mainstay_leases SET until_ms = 0";
const DROP_SLOTS: &str = "DELETE FROM mainstay_slots WHERE lease = $1";

/// What the holder of a pull worker's lease begins with: nobody ends work under the lease of a node.
pub(crate) const PULL: &str = "pull:";

/// Takes a lease for so long; its number.
pub(crate) async fn take(tx: &Tx, holder: &str, for_ms: i64) -> Result<i64> {
    tx.query_one(TAKE, params![holder, for_ms]).await?.get(0)
}

/// Makes a lease last for so long from now; false when it is over.
pub(crate) async fn extend(tx: &Tx, lease: i64, for_ms: i64) -> Result<bool> {
    Ok(tx.execute(EXTEND, params![lease, for_ms]).await? > 0)
}

/// Holds a lease until the transaction ends, and tells the time; fails when the lease is over.
///
/// In place, so that nobody takes it away meanwhile; alone, so that everything that was begun under it is over.
pub(crate) async fn fence(ground: &Ground, tx: &Tx, lease: i64, hold: Hold) -> Result<i64> {
    // Taken away by tests that must see what it keeps out.
    if ground.store.failpoints().hit("work.fence").is_err() {
        return ground.now_ms(tx).await;
    }
    let held = tx.query_holding(FENCE, params![lease], hold).await?;
    let Some(row) = held.first() else { return Err(Error::LeaseLost(lease).into()) };
    let (until, now): (i64, i64) = (row.get(0)?, row.get(1)?);
    if until > now { Ok(now) } else { Err(Error::LeaseLost(lease).into()) }
}

/// Leases that are over and whose work was not yet taken back.
pub(crate) async fn expired(tx: &Tx) -> Result<Vec<i64>> {
    tx.query(EXPIRED, &[]).await?.iter().map(|row| row.get(0)).collect()
}

/// Holds a lease that is over until the transaction ends; false when it is not, or somebody has ended it.
pub(crate) async fn hold_expired(tx: &Tx, lease: i64) -> Result<bool> {
    Ok(!tx.query_holding(HOLD_EXPIRED, params![lease], Hold::Alone).await?.is_empty())
}

/// Gives back a lease's share of all pools.
pub(crate) async fn drop_slots(tx: &Tx, lease: i64) -> Result<()> {
    tx.execute(DROP_SLOTS, params![lease]).await.map(drop)
}

/// Ends a lease that is over, together with its slots; false when it is not, or somebody else has.
pub(crate) async fn end(tx: &Tx, lease: i64) -> Result<bool> {
    let is_over = tx.execute(END, params![lease]).await? > 0;
    if is_over {
        drop_slots(tx, lease).await?;
    }
    Ok(is_over)
}

/// Declares a lease over.
pub(crate) async fn give_up(tx: &Tx, lease: i64) -> Result<()> {
    tx.execute(GIVE_UP, params![lease]).await.map(drop)
}

/// Declares all leases over: whoever held them was a process that is gone.
pub(crate) async fn give_up_all(tx: &Tx) -> Result<()> {
    tx.execute(GIVE_UP_ALL, &[]).await.map(drop)
}
