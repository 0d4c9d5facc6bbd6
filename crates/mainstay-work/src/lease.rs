//! Leases: who may work, and until when. The database's clock alone judges them.
//!
//! A lease's number is the fencing token: numbers never come again. Whatever is done under a lease first holds its row in
//! place and looks at its time, so it is either done before the lease is taken away, or not at all.
//!
//! A pull worker's lease has a secret beside its number, so that no other caller can guess it.

use crate::error::{self, Error};
use crate::work::Ground;
use mainstay_core::failpoints::Point;
use mainstay_store::{Hold, Result, Row, Tx, params};
use std::fmt;
use subtle::ConstantTimeEq;

const TAKE: &str = "INSERT INTO mainstay_leases (holder, until_ms) \
     VALUES ($1, mainstay_now() + CAST($2 AS BIGINT)) RETURNING number";
const TAKE_PULLED: &str = "INSERT INTO mainstay_leases (holder, until_ms, token) \
     VALUES ($1, mainstay_now() + CAST($2 AS BIGINT), $3) RETURNING number";
const TOKEN: &str = "SELECT token FROM mainstay_leases WHERE number = $1 AND token IS NOT NULL";
const EXTEND: &str = "UPDATE mainstay_leases SET until_ms = mainstay_now() + CAST($2 AS BIGINT) \
     WHERE number = $1 AND until_ms > mainstay_now()";
const EXTEND_PULLED: &str = "UPDATE mainstay_leases SET until_ms = mainstay_now() + CAST($2 AS BIGINT) \
     WHERE number = $1 AND until_ms > mainstay_now() RETURNING until_ms";
const FENCE: &str = "SELECT until_ms, mainstay_now() FROM mainstay_leases WHERE number = $1";
const EXPIRED: &str =
    "SELECT number FROM mainstay_leases WHERE until_ms <= mainstay_now() ORDER BY number LIMIT 100";
const HOLD_EXPIRED: &str =
    "SELECT number FROM mainstay_leases WHERE number = $1 AND until_ms <= mainstay_now()";
const END: &str = "DELETE FROM mainstay_leases WHERE number = $1 AND until_ms <= mainstay_now()";
const GIVE_UP: &str = "UPDATE mainstay_leases SET until_ms = 0 WHERE number = $1";
const GIVE_UP_ALL: &str = "UPDATE mainstay_leases SET until_ms = 0";
const DROP_SLOTS: &str = "DELETE FROM mainstay_slots WHERE lease = $1";

/// Prefix of the holder of a pull worker's lease.
const PULL: &str = "pull:";
/// Bytes of the secret part of a pull worker's lease.
const SECRET_BYTES: usize = 16;

/// A pull worker's lease, as the worker is told: its number and a secret of 128 random bits.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Pulled {
    pub(crate) number: i64,
    secret: String,
}

impl fmt::Display for Pulled {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.number, self.secret)
    }
}

impl Pulled {
    /// Reads what a worker sends.
    pub(crate) fn parse(text: &str) -> error::Result<Self> {
        let parts = text.split_once('.').and_then(|(number, secret)| {
            let is_secret =
                secret.len() == 2 * SECRET_BYTES && secret.bytes().all(|byte| byte.is_ascii_hexdigit());
            Some(Self { number: number.parse().ok()?, secret: is_secret.then(|| secret.to_owned())? })
        });
        parts.ok_or_else(|| Error::invalid("lease", "is not the `lease` of a claim"))
    }
}

/// Takes a lease for a pull worker.
pub(crate) async fn take_pulled(tx: &Tx, worker: &str, for_ms: i64) -> Result<Pulled> {
    let mut random = [0_u8; SECRET_BYTES];
    getrandom::fill(&mut random).map_err(mainstay_store::Error::application)?;
    let secret: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let holder = format!("{PULL}{worker}");
    let number = tx.query_one(TAKE_PULLED, params![holder, for_ms, &secret]).await?.get(0)?;
    Ok(Pulled { number, secret })
}

/// Holds a pull worker's lease; fails as if it were over when the secret is wrong. No caller ends work under the lease of
/// a node, which has no secret.
pub(crate) async fn hold_pulled(tx: &Tx, lease: &Pulled, hold: Hold) -> Result<()> {
    let is_it = has_secret(&tx.query_holding(TOKEN, params![lease.number], hold).await?, lease)?;
    if is_it { Ok(()) } else { Err(Error::LeaseLost(lease.number).into()) }
}

/// Whether there is a pull worker's lease with this secret.
pub(crate) async fn is_pulled(tx: &Tx, lease: &Pulled) -> Result<bool> {
    has_secret(&tx.query(TOKEN, params![lease.number]).await?, lease)
}

fn has_secret(rows: &[Row], lease: &Pulled) -> Result<bool> {
    let Some(row) = rows.first() else { return Ok(false) };
    Ok(row.get::<&str>(0)?.as_bytes().ct_eq(lease.secret.as_bytes()).into())
}

/// Takes a lease for so long; its number.
pub(crate) async fn take(tx: &Tx, holder: &str, for_ms: i64) -> Result<i64> {
    tx.query_one(TAKE, params![holder, for_ms]).await?.get(0)
}

/// Makes a lease last for so long from now; false when it is over.
pub(crate) async fn extend(tx: &Tx, lease: i64, for_ms: i64) -> Result<bool> {
    Ok(tx.execute(EXTEND, params![lease, for_ms]).await? > 0)
}

/// Makes a pull worker's lease last for so long from now; until when. Nothing when it is over.
pub(crate) async fn extend_pulled(tx: &Tx, lease: i64, for_ms: i64) -> Result<Option<i64>> {
    tx.query(EXTEND_PULLED, params![lease, for_ms]).await?.first().map(|row| row.get(0)).transpose()
}

/// Holds a lease until the transaction ends, and tells the time; fails when the lease is over.
///
/// In place, so that nobody takes it away meanwhile; alone, so that everything that was begun under it is over.
pub(crate) async fn fence(ground: &Ground, tx: &Tx, lease: i64, hold: Hold) -> Result<i64> {
    // Taken away by tests that must see what it keeps out.
    if ground.store.failpoints().hit(Point::WorkFence).is_err() {
        return tx.now_ms().await;
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
