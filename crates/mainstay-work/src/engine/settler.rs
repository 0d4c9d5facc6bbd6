//! Ends executions of one pool: as many in one transaction as have ended since the last one.

use super::{Desk, Shared};
use crate::blame::{Blame, adjust, blame, suspect};
use crate::claim::Held;
use crate::error::Error;
use crate::figures::Ended;
use crate::functions::Cancel;
use crate::next::Outcome;
use crate::pool::Pool;
use crate::settle::{Ending, Plan, Settlement, settle};
use crate::work::Ground;
use mainstay_store::{Hold, Tx, params};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use tokio::sync::mpsc::UnboundedReceiver;
use uuid::Uuid;

/// An item whose execution has ended, with the number of its batch.
pub(super) type Done = (i64, Ending);

/// Most items of one transaction.
const MAX_SETTLED: usize = 1_000;
/// Most items of one transaction that an author's code runs for: it may fail, and then all of them run again.
const MAX_AUTHORS: usize = 200;
/// So many failures of authors' code in one transaction are tried around; then everybody has one of its own.
const MAX_FAILURES: usize = 3;

/// Settles until nobody can tell of another end.
pub(super) async fn settle_all(shared: Arc<Shared>, desk: Arc<Desk>, mut ended: UnboundedReceiver<Done>) {
    let settler = Settler { shared, desk };
    // It grows with what ends: room for the most would cost every idle pool 150 KB.
    let mut done = Vec::new();
    while ended.recv_many(&mut done, MAX_SETTLED).await > 0 {
        let count = done.len();
        let over: Vec<(Uuid, Cancel)> =
            done.iter().map(|(_, ending)| (ending.taken.id, ending.cancel.clone())).collect();
        let (alone, together): (Vec<Done>, Vec<Done>) =
            done.drain(..).partition(|(_, ending)| settler.runs_authors_code(ending));
        settler.settle(together).await;
        let mut alone = alone.into_iter().peekable();
        while alone.peek().is_some() {
            settler.settle(alone.by_ref().take(MAX_AUTHORS).collect()).await;
        }
        settler.shared.floor.forget(&over);
        settler.shared.ground.figures.running.add(-(count as i64));
        settler.desk.running.fetch_sub(count, Ordering::AcqRel);
        settler.desk.freed.notify_one();
    }
}

struct Settler {
    shared: Arc<Shared>,
    desk: Arc<Desk>,
}

impl Settler {
    fn runs_authors_code(&self, ending: &Ending) -> bool {
        suspect(&self.shared.ground.functions(), ending).is_some()
    }

    async fn settle(&self, mut done: Vec<Done>) {
        let mut failures = 0;
        let mut is_unknown = false;
        loop {
            let lease = self.shared.lease.load(Ordering::Acquire);
            {
                // What was taken under a lease that is over belongs to somebody else now. Later leases have higher
                // numbers.
                let mut held = self.desk.held();
                held.retain(|_, held| held.lease >= lease);
                done.retain(|(batch, ending)| {
                    held.get(batch).is_some_and(|held| !held.is_done(ending.taken.index))
                });
            }
            if self.shared.is_gone() {
                done.retain(|(_, ending)| !matches!(ending.plan, Plan::Ended(Outcome::Lost)));
            }
            if done.is_empty() {
                return;
            }
            let suspect = suspect(&self.shared.ground.functions(), &done[0].1);
            let settlement = self.settlement(lease, done);
            let Err(error) = self.settle_once(&settlement, is_unknown).await else {
                return self.settled(&settlement);
            };
            let blame = blame(&error, settlement.endings.len(), suspect, &settlement.progress);
            done = Arc::unwrap_or_clone(settlement).endings;
            match blame {
                Blame::Lease => return self.shared.renew(lease).await,
                Blame::Author(failed) if !done[failed.index].1.has_been_adjusted_for(&failed) => {
                    adjust(&mut done[failed.index].1, &failed);
                    failures += 1;
                    if failures >= MAX_FAILURES && done.len() > 1 {
                        return self.settle_each(done).await;
                    }
                }
                Blame::Somebody => return self.settle_each(done).await,
                blame @ (Blame::Store { .. } | Blame::Author(_)) => {
                    is_unknown |= matches!(blame, Blame::Store { is_unknown: true });
                    self.shared.endure(&error, &format!("ending work of {}", self.desk.name)).await;
                    if self.shared.is_stopping() {
                        return;
                    }
                }
            }
        }
    }

    async fn settle_each(&self, done: Vec<Done>) {
        for one in done {
            Box::pin(self.settle(vec![one])).await;
        }
    }

    fn settlement(&self, lease: i64, done: Vec<Done>) -> Arc<Settlement> {
        let batches: BTreeSet<i64> = done.iter().map(|(batch, _)| *batch).collect();
        let held: Vec<Held> = {
            let known = self.desk.held();
            batches.iter().filter_map(|batch| known.get(batch).cloned()).collect()
        };
        Arc::new(Settlement {
            pool: self.desk.pool,
            pool_name: self.desk.name.clone(),
            settings: self.settings(),
            lease: Some(lease),
            endings: done,
            held,
            progress: Arc::default(),
        })
    }

    async fn settle_once(&self, settlement: &Arc<Settlement>, is_unknown: bool) -> Result<(), Error> {
        let run = async |tx: Tx, (ground, settlement, is_unknown): (Arc<Ground>, Arc<Settlement>, bool)| {
            if is_unknown && is_settled(&ground, &tx, &settlement).await? {
                return Ok(());
            }
            settle(&ground, &tx, &settlement).await
        };
        let ground = &self.shared.ground;
        let context = (ground.clone(), settlement.clone(), is_unknown);
        Ok(ground.store.transact_with(context, run).await?)
    }

    /// The pool's settings as they were read last.
    fn settings(&self) -> Arc<Pool> {
        let of_claim = || self.desk.settings.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let known = self.shared.ground.settings_of(&self.desk.name).or_else(of_claim);
        known.unwrap_or_else(|| Arc::new(Pool::new(&self.desk.name)))
    }

    fn settled(&self, settlement: &Settlement) {
        let figures = &self.shared.ground.figures;
        figures.settle_size.record(settlement.endings.len() as u64);
        for (_, ending) in &settlement.endings {
            let ended = match &ending.plan {
                Plan::Run | Plan::Ended(Outcome::Success(_)) => Ended::Succeeded,
                Plan::Ended(Outcome::Canceled) => Ended::Canceled,
                Plan::Ended(Outcome::Postponed { .. }) => Ended::Postponed,
                Plan::Ended(_) => Ended::Failed,
            };
            figures.record(&settlement.pool_name, &ending.taken.item.function, ended);
        }
        let mut held = self.desk.held();
        for (batch, indices) in settlement.ended() {
            if let Some(of) = held.get_mut(&batch) {
                match of.with_done(indices.into_iter()) {
                    Some(done) => of.done = done,
                    None => drop(held.remove(&batch)),
                }
            }
        }
    }
}

/// Whether a commit of unknown outcome has happened.
async fn is_settled(ground: &Ground, tx: &Tx, settlement: &Settlement) -> mainstay_store::Result<bool> {
    const DONE: &str = "SELECT marks.done FROM mainstay_batches AS batch \
         LEFT JOIN mainstay_batch_marks AS marks ON marks.batch = batch.number WHERE batch.number = $1";
    // Alone: the commit may be on its way to the server still.
    let lease = settlement.lease.unwrap_or_default();
    crate::lease::fence(ground, tx, lease, Hold::Alone).await?;
    let Some((batch, ending)) = settlement.endings.first() else { return Ok(true) };
    let Some(row) = tx.query_optional(DONE, params![*batch]).await? else { return Ok(true) };
    let done: Option<Vec<u8>> = row.get(0)?;
    let held = Held { batch: *batch, lease, size: usize::MAX, done: done.unwrap_or_default() };
    Ok(held.is_done(ending.taken.index))
}
