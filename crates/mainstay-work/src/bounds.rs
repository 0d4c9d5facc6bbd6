//! Bounds of the sets of names that callers choose.
//!
//! Every name costs memory on every node, so each set has a bound. A name that exists is never counted again. Names of the
//! platform, of the program and of its configuration are neither refused nor counted, so that callers cannot use up their
//! room.

use crate::error::Error;
use mainstay_store::{Result, Tx, Value};

/// Treatment of a new name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// Name of a caller: refused when the set is full.
    Held,
    /// Name of the platform or of the program: never refused.
    Waived,
    /// Lane of an item that is kept already: never refused, whatever became of its function.
    Kept,
}

/// Most pools of a store that callers make, unless [`Work::max_pools`](crate::Work::max_pools) says otherwise.
pub const MAX_POOLS: usize = 1_000;
/// Most functions that callers declare. Functions that the program registers itself are never refused.
pub const MAX_FUNCTIONS: usize = 10_000;
/// Most lanes of a pool that callers make: functions times priorities. A claim looks at each.
pub const MAX_LANES_OF_POOL: usize = 400;
/// Most lanes of a store that callers make.
pub const MAX_LANES: usize = 20_000;
/// Most crons of a store that callers make.
pub const MAX_CRONS: usize = 1_000;

/// Serializes the transactions that add a name. It is taken before names are counted, so that two nodes cannot pass a
/// bound together.
pub(crate) async fn lock(tx: &Tx) -> Result<()> {
    tx.lock("mainstay.work.directory").await
}

/// Refuses another name of a caller in a set that is full. `names` is a statement, run under [`lock`]; `is_counted` says
/// whether a name is a caller's.
pub(crate) async fn room_among(
    tx: &Tx,
    what: &'static str,
    most: usize,
    names: &str,
    is_counted: impl Fn(&str) -> bool,
) -> Result<()> {
    let mut found = 0;
    for row in tx.query(names, &[]).await? {
        found += usize::from(is_counted(row.get(0)?));
    }
    if found >= most { Err(Error::TooManyNames { what, most }.into()) } else { Ok(()) }
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
