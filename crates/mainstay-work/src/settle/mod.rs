//! Ending executions: what came of them, who is told, and what becomes possible by it, in one transaction.
//!
//! - `one`: ends one item, or lets it start anew; ends an item that could not be enqueued
//! - `author`: lets authors' code run: a mutation, and whoever is told of an end
//! - `record`: what is kept of an item that ended
//! - `writes`: what a settlement writes, collected and written

mod author;
mod one;
mod record;
mod writes;

pub(crate) use author::call;
pub(crate) use one::{fail_unstarted, recording};

use self::one::settle_one;
use self::record::record;
use self::writes::{Writes, write};
use crate::blame::Progress;
use crate::claim::{Held, Taken};
use crate::error::Error;
use crate::functions::Cancel;
use crate::item::WorkResult;
use crate::lease;
use crate::next::Outcome;
use crate::pool::Pool;
use crate::work::Ground;
use mainstay_store::{Hold, Result, Tx, params};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::try_join;

/// What is to be done about an item.
#[derive(Debug, Clone)]
pub(crate) enum Plan {
    /// Its execution has ended.
    Ended(Outcome),
    /// It is a mutation, and runs now.
    Run,
}

/// An item whose execution ends.
#[derive(Debug, Clone)]
pub(crate) struct Ending {
    pub(crate) taken: Taken,
    pub(crate) plan: Plan,
    pub(crate) cancel: Cancel,
    /// Its `onComplete` has failed in a transaction like this one, and is enqueued instead.
    pub(crate) is_told_later: bool,
    /// What will be kept of it, if that was made before.
    pub(crate) record: Option<String>,
}

impl Ending {
    /// An execution of which nothing more is known than how it ended.
    pub(crate) fn new(taken: Taken, plan: Plan, cancel: Cancel) -> Self {
        Self { taken, plan, cancel, is_told_later: false, record: None }
    }

    /// Makes what will be kept of an execution that succeeded, so that others need not wait for it in the transaction.
    pub(crate) fn prepared(mut self) -> Self {
        if let Plan::Ended(Outcome::Success(return_value)) = &self.plan {
            let result = WorkResult::Success { return_value: return_value.clone() };
            self.record = record(&self.taken.item, &result).ok();
        }
        self
    }
}

/// What ends together.
#[derive(Debug, Clone)]
pub(crate) struct Settlement {
    pub(crate) pool: i64,
    pub(crate) pool_name: String,
    pub(crate) settings: Arc<Pool>,
    /// The lease they were taken under, unless that is over.
    pub(crate) lease: Option<i64>,
    /// Each with the number of its batch.
    pub(crate) endings: Vec<(i64, Ending)>,
    pub(crate) held: Vec<Held>,
    pub(crate) progress: Arc<Progress>,
}

impl Settlement {
    /// Where the items of each batch stand that end.
    pub(crate) fn ended(&self) -> BTreeMap<i64, Vec<usize>> {
        let mut ended = BTreeMap::<i64, Vec<usize>>::new();
        for (batch, ending) in &self.endings {
            ended.entry(*batch).or_default().push(ending.taken.index);
        }
        ended
    }
}

const DROP_BATCH: &str = "DELETE FROM mainstay_batches WHERE number = $1";
const DROP_MARKS: &str = "DELETE FROM mainstay_batch_marks WHERE batch = $1";
const MARK: &str = "INSERT INTO mainstay_batch_marks (batch, done) VALUES ($1, $2) \
     ON CONFLICT (batch) DO UPDATE SET done = excluded.done";

/// Ends items. Fails as a whole: with [`AuthorFailed`](crate::blame::AuthorFailed) when an author's code does.
pub(crate) async fn settle(ground: &Arc<Ground>, tx: &Tx, settlement: &Settlement) -> Result<()> {
    settlement.progress.leave();
    let now_ms = match settlement.lease {
        Some(lease) => lease::fence(ground, tx, lease, Hold::InPlace).await?,
        None => tx.now_ms().await?,
    };
    let mut writes = Writes::default();
    for (index, (_, ending)) in settlement.endings.iter().enumerate() {
        settle_one(ground, tx, settlement, index, ending, now_ms, &mut writes).await?;
    }
    let count = settlement.endings.len() as i64;
    try_join!(biased; mark(tx, settlement), write(tx, settlement.pool, now_ms, writes, count))?;
    Ok(())
}

/// Notes which items of their batches have ended.
async fn mark(tx: &Tx, settlement: &Settlement) -> Result<()> {
    let ended = settlement.ended();
    for held in &settlement.held {
        let indices = ended.get(&held.batch).into_iter().flatten().copied();
        match held.with_done(indices) {
            Some(done) => drop(tx.execute(MARK, params![held.batch, done]).await?),
            None => {
                if tx.execute(DROP_BATCH, params![held.batch]).await? == 0 {
                    return Err(Error::LeaseLost(settlement.lease.unwrap_or_default()).into());
                }
                if !held.done.is_empty() {
                    tx.execute(DROP_MARKS, params![held.batch]).await?;
                }
            }
        }
    }
    Ok(())
}

/// Ends an item that was taken out of what waits, without anybody having worked on it.
pub(crate) async fn end_waiting(
    ground: &Arc<Ground>,
    tx: &Tx,
    settlement: &Settlement,
    now_ms: i64,
) -> Result<()> {
    let mut writes = Writes::default();
    for (index, (_, ending)) in settlement.endings.iter().enumerate() {
        settle_one(ground, tx, settlement, index, ending, now_ms, &mut writes).await?;
    }
    write(tx, settlement.pool, now_ms, writes, 0).await
}
