//! Bounds of the sets of names that callers choose.
//!
//! Every name costs memory on every node, so each set has a bound. A name that exists is never counted again.

use crate::error::Error;
use mainstay_store::{Result, Tx, Value};

/// Most pools of a store, unless [`Work::max_pools`](crate::Work::max_pools) says otherwise.
pub const MAX_POOLS: usize = 1_000;
/// Most functions that callers declare. Functions that the program registers itself are never refused.
pub const MAX_FUNCTIONS: usize = 10_000;
/// Most lanes of a pool: functions times priorities. SQLite joins at most 500 queries, and a claim has one for each lane.
pub const MAX_LANES_OF_POOL: usize = 400;
/// Most lanes of a store.
pub const MAX_LANES: usize = 20_000;
/// Most crons of a store.
pub const MAX_CRONS: usize = 1_000;

/// Serializes the transactions that add a name. It is taken before names are counted, so that two nodes cannot pass a
/// bound together.
pub(crate) async fn lock(tx: &Tx) -> Result<()> {
    tx.lock("mainstay.work.directory").await
}

/// Refuses another name of a set that is full. `count` is a statement, run under [`lock`].
pub(crate) async fn room(
    tx: &Tx,
    what: &'static str,
    most: usize,
    count: &str,
    params: &[Value],
) -> Result<()> {
    let found: u64 = tx.query_one(count, params).await?.get(0)?;
    if found >= most as u64 {
        return Err(Error::TooManyNames { what, most }.into());
    }
    Ok(())
}
