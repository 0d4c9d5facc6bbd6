//! Pull workers: programs in any language that ask for work and say what came of it.
//!
//! Every claim has a lease of its own, which the worker shows with all that it does about the items.

use crate::blame::{Blame, Part, Progress, blame};
use crate::claim::{Group, Held, Taken, Wish, claim, is_any_ready, read, unpack};
use crate::directory::{Directory, pool_topic};
use crate::engine::{canceled_ones, reap_in};
use crate::enqueue::{parse, text};
use crate::error::{Error, Result};
use crate::figures::Ended;
use crate::fronts::look_behind;
use crate::functions::Cancel;
use crate::item::{check_value, name, own_name};
use crate::next::Outcome;
use crate::settle::{Ending, Plan, Settlement, settle};
use crate::work::{Ground, Work};
use crate::{MAX_VALUE_BYTES, lease};
use mainstay_core::failure::Failure;
use mainstay_core::json::Bounds;
use mainstay_core::trace::TraceContext;
use mainstay_store::{Hold, Tx, params};
use serde::Serialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Shortest lease that can be asked for.
const MIN_LEASE: Duration = Duration::from_secs(1);
/// Longest lease that can be asked for.
const MAX_LEASE: Duration = Duration::from_secs(3_600);
/// Most items of one claim.
const MAX_PULLED: usize = 500;
/// Longest wait for work.
pub const MAX_WAIT: Duration = Duration::from_secs(60);
/// How long to wait for a wake-up before looking by oneself: a node may die between its commit and its wake-up.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Most functions that a worker can offer.
const MAX_FUNCTIONS: usize = 100;

/// What a pull worker asks for.
#[derive(Debug, Clone)]
pub struct Pull {
    /// From which pool.
    pub pool: String,
    /// What it can do. Functions that are not known yet are declared by this.
    pub functions: Vec<String>,
    /// Those of `functions` that the claim does not declare: one that is not known refuses the claim.
    pub must_be_known: Vec<String>,
    /// How many items at most.
    pub most: usize,
    /// For how long, unless it is extended.
    pub lease: Duration,
    /// How long to wait when there is nothing.
    pub wait: Duration,
    /// Who asks.
    pub worker: String,
}

/// What a pull worker was given.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pulled {
    /// The lease of these items: a secret text that the worker sends with all that it does about them. Nothing when there
    /// are none.
    pub lease: Option<String>,
    /// When the lease is over, by the database's clock.
    pub until_ms: Option<i64>,
    /// The items.
    pub items: Vec<PulledItem>,
}

/// What came of extending a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Extended {
    /// When the lease is over now, by the database's clock.
    pub until_ms: i64,
    /// Items of it that somebody has cancelled. Whoever fails them, or lets the lease run out, ends them cancelled.
    pub canceled: Vec<String>,
}

/// An item for a pull worker.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PulledItem {
    /// The item; also the idempotency key of its effects.
    pub work_id: String,
    /// What to do.
    pub function: String,
    /// Which execution this is, from 1.
    pub attempt: u32,
    /// With what.
    pub args: Box<RawValue>,
    /// What is kept beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Box<RawValue>>,
    /// Its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The trace that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
}

impl Pull {
    fn check(&self) -> Result<()> {
        own_name("pool", &self.pool)?;
        name("worker", &self.worker)?;
        if self.functions.is_empty() || self.functions.len() > MAX_FUNCTIONS {
            return Err(Error::invalid("functions", format!("must be 1 to {MAX_FUNCTIONS}")));
        }
        for (number, function) in self.functions.iter().enumerate() {
            own_name(&format!("functions[{number}]"), function)?;
        }
        if !(1..=MAX_PULLED).contains(&self.most) {
            return Err(Error::invalid("maxItems", format!("must be 1 to {MAX_PULLED}")));
        }
        if !(MIN_LEASE..=MAX_LEASE).contains(&self.lease) {
            return Err(lease_out_of_range("leaseMs"));
        }
        if self.wait > MAX_WAIT {
            return Err(Error::invalid("waitMs", format!("must be at most {}", MAX_WAIT.as_millis())));
        }
        Ok(())
    }
}

fn lease_out_of_range(field: &str) -> Error {
    let (least, most) = (MIN_LEASE.as_millis(), MAX_LEASE.as_millis());
    Error::invalid(field, format!("must be {least} to {most}"))
}

const HELD: &str = "SELECT batch.number, batch.pool, batch.ids, batch.items, marks.done FROM mainstay_batches AS batch \
     LEFT JOIN mainstay_batch_marks AS marks ON marks.batch = batch.number WHERE batch.lease = $1";
const STATE: &str = "SELECT settings, is_paused FROM mainstay_pools WHERE number = $1";
const SLOTS: &str = "SELECT CAST(coalesce(sum(slots), 0) AS BIGINT) FROM mainstay_slots WHERE pool = $1";

impl Work {
    /// Gives a pull worker what it asks for, or waits until there is something.
    pub async fn pull(&self, pull: Pull) -> Result<Pulled> {
        self.pull_until(pull, std::future::pending()).await
    }

    /// As [`pull`](Self::pull), but waits no longer once `stop` is ready. What has been claimed by then is given: whoever
    /// drops this instead may leave a claim behind until its lease is over.
    pub async fn pull_until(&self, pull: Pull, stop: impl Future<Output = ()>) -> Result<Pulled> {
        tokio::pin!(stop);
        pull.check()?;
        let pull = Arc::new(pull);
        let declare = async |tx: Tx, (ground, pull): (Arc<Ground>, Arc<Pull>)| {
            for (number, function) in pull.functions.iter().enumerate() {
                match ground.directory.function(&tx, function).await?.as_deref() {
                    Ok("mutation") => {
                        let field = format!("functions[{number}]");
                        return Err(
                            Error::invalid(field, "is a mutation, which nodes run by themselves").into()
                        );
                    }
                    Ok(_) => {}
                    Err(_) if pull.must_be_known.contains(function) => {
                        return Err(Error::UnknownFunction(function.clone()).into());
                    }
                    Err(_) => Directory::put_remote_action(&ground, &tx, function).await?,
                }
            }
            Ok(())
        };
        let find = async |tx: Tx, pull: Arc<Pull>| Ok(Directory::pool(&tx, &pull.pool).await??);
        let pool = self.store().read_with(pull.clone(), find).await?;
        if !self.ground().directory.are_actions(&pull.functions) {
            self.store().transact_with((self.ground().clone(), pull.clone()), declare).await?;
        }
        let mut woken = self.store().listen(pool_topic(pool));
        let deadline = tokio::time::Instant::now() + pull.wait;
        loop {
            let context = (self.ground().clone(), pull.clone(), pool);
            // Most who ask get nothing, and that should cost nobody a commit.
            let looked = self.store().read_with(context.clone(), async |tx, (ground, pull, pool)| {
                is_worth_it(&ground, &tx, &pull, pool).await
            });
            let (pulled, rate) = match looked.await? {
                false => (Pulled::default(), None),
                true => {
                    let taken = self.store().transact_with(context, async |tx, (ground, pull, pool)| {
                        take(&ground, &tx, &pull, pool).await
                    });
                    taken.await?
                }
            };
            if rate.is_some_and(|wait| wait.is_zero()) {
                continue;
            }
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            if !pulled.items.is_empty() {
                self.figures().taken.add(pulled.items.len() as u64);
                self.figures().claim_size.record(pulled.items.len() as u64);
            }
            if !pulled.items.is_empty() || left.is_zero() {
                return Ok(pulled);
            }
            tokio::select! {
                _ = woken.woken(left.min(rate.unwrap_or(LOOK_AGAIN))) => {}
                () = &mut stop => return Ok(pulled),
            }
        }
    }

    /// Checks pool and function of each item that a pull worker has under a lease. An item that `may` refuses makes the lease
    /// one that is lost.
    pub async fn check_pulled<M>(&self, lease: &str, may: M) -> Result<()>
    where
        M: Fn(&str, &str) -> bool + Clone + Send + Sync + 'static,
    {
        let check = async |tx: Tx, (ground, lease, may): (Arc<Ground>, lease::Pulled, M)| {
            let lost = || Error::LeaseLost(lease.number).into();
            if !lease::is_pulled(&tx, &lease).await? {
                return Err(lost());
            }
            let Some((_, pool, taken)) = held_under(&tx, lease.number).await? else { return Err(lost()) };
            let (pool, _) = ground.pool(&tx, pool).await?;
            let is_allowed = taken.iter().all(|taken| may(&pool, &taken.item.function));
            if is_allowed { Ok(()) } else { Err(lost()) }
        };
        let context = (self.ground().clone(), lease::Pulled::parse(lease)?, may);
        Ok(self.store().read_with(context, check).await?)
    }

    /// Makes a pull worker's lease last for so long from now, and tells which of its items are to stop.
    pub async fn extend(&self, lease: &str, by: Duration) -> Result<Extended> {
        let lease = lease::Pulled::parse(lease)?;
        if !(MIN_LEASE..=MAX_LEASE).contains(&by) {
            return Err(lease_out_of_range("byMs"));
        }
        let by_ms = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        let extend = async |tx: Tx, (lease, by_ms): (lease::Pulled, i64)| extend_in(&tx, &lease, by_ms).await;
        Ok(self.store().transact_with((lease, by_ms), extend).await?)
    }

    /// Gives back what has not ended under a pull worker's lease, as if it had never been claimed.
    pub async fn give_back(&self, lease: &str) -> Result<()> {
        let give_back = async |tx: Tx, (ground, lease): (Arc<Ground>, lease::Pulled)| {
            lease::hold_pulled(&tx, &lease, Hold::Alone).await?;
            let lease = lease.number;
            lease::fence(&ground, &tx, lease, Hold::InPlace).await?;
            lease::give_up(&tx, lease).await?;
            reap_in(&ground, &tx, lease, &Outcome::Unstarted).await.map(drop)
        };
        let context = (self.ground().clone(), lease::Pulled::parse(lease)?);
        Ok(self.store().transact_with(context, give_back).await?)
    }

    /// A pull worker has done an item.
    pub async fn complete(&self, lease: &str, work_id: &str, return_value: Box<RawValue>) -> Result<()> {
        check_value("returnValue", &return_value, Bounds::bytes(MAX_VALUE_BYTES))?;
        self.end_pulled(lease, work_id, Outcome::Success(return_value)).await
    }

    /// A pull worker could not do an item.
    pub async fn fail(&self, lease: &str, work_id: &str, failure: Failure) -> Result<()> {
        self.end_pulled(lease, work_id, Outcome::Failed(failure)).await
    }

    async fn end_pulled(&self, lease: &str, work_id: &str, outcome: Outcome) -> Result<()> {
        let lease = lease::Pulled::parse(lease)?;
        let not_held = || Error::NotHeld { id: work_id.to_owned(), lease: lease.number };
        let id = parse(work_id).ok_or_else(not_held)?;
        let mut is_told_later = false;
        loop {
            let progress: Arc<Progress> = Arc::default();
            let (lease, outcome_again) = (lease.clone(), outcome.clone());
            let end = End { lease, id, outcome: outcome_again, is_told_later, progress: progress.clone() };
            let run = async |tx: Tx, (ground, end): (Arc<Ground>, End)| end_in(&ground, &tx, &end).await;
            let error = match self.store().transact_with((self.ground().clone(), end), run).await {
                Ok((pool, function)) => {
                    let is_success = matches!(outcome, Outcome::Success(_));
                    let ended = if is_success { Ended::Succeeded } else { Ended::Failed };
                    self.figures().record(&pool, &function, ended);
                    return Ok(());
                }
                Err(error) => Error::from(error),
            };
            if matches!(error, Error::NotHeld { .. }) {
                return Err(error);
            }
            match blame(&error, 1, Some(Part::Tell), &progress) {
                // Its onComplete failed: that is not the worker's doing.
                Blame::Author(_) if !is_told_later => is_told_later = true,
                _ => return Err(error),
            }
        }
    }
}

async fn extend_in(tx: &Tx, lease: &lease::Pulled, by_ms: i64) -> mainstay_store::Result<Extended> {
    lease::hold_pulled(tx, lease, Hold::InPlace).await?;
    let lease = lease.number;
    let until_ms = lease::extend_pulled(tx, lease, by_ms).await?.ok_or(Error::LeaseLost(lease))?;
    let mut canceled = Vec::new();
    if let Some((held, _, taken)) = held_under(tx, lease).await? {
        let asked = canceled_ones(tx).await?;
        let mine = taken.iter().filter(|taken| !held.is_done(taken.index) && asked.contains(&taken.id));
        canceled.extend(mine.map(|taken| text(taken.id)));
    }
    Ok(Extended { until_ms, canceled })
}

/// What is held under a pull worker's lease, and in which pool.
async fn held_under(tx: &Tx, lease: i64) -> mainstay_store::Result<Option<(Held, i64, Vec<Taken>)>> {
    let Some(row) = tx.query_optional(HELD, params![lease]).await? else { return Ok(None) };
    let taken = unpack(row.get(2)?, row.get(3)?)?;
    let done: Option<Vec<u8>> = row.get(4)?;
    let held = Held { batch: row.get(0)?, lease, size: taken.len(), done: done.unwrap_or_default() };
    Ok(Some((held, row.get(1)?, taken)))
}

/// Whether a claim could give anything. It may be too late when it does, and is then looked at again.
async fn is_worth_it(ground: &Ground, tx: &Tx, pull: &Pull, pool: i64) -> mainstay_store::Result<bool> {
    // A pool that was deleted meanwhile has no more work.
    let row = tx.query_optional(STATE, params![pool]).await?;
    let row = row.ok_or_else(|| Error::UnknownPool(pull.pool.clone()))?;
    let is_offered = |function: &str| pull.functions.iter().any(|offered| offered == function);
    let lanes = Directory::lanes_of(tx, pool, is_offered).await?;
    for lanes in &lanes {
        look_behind(ground, tx, lanes).await?;
    }
    let groups = Group::all(ground, &lanes);
    if !is_any_ready(tx, &groups).await? {
        return Ok(false);
    }
    let (settings, is_paused): (_, bool) = (ground.settings(&pull.pool, row.get(0)?)?, row.get(1)?);
    let slots: i64 = tx.query_one(SLOTS, params![pool]).await?.get(0)?;
    Ok(!is_paused && slots < i64::from(settings.max_parallelism))
}

/// What was taken; when that is nothing, after how long it is worth looking again, as far as that is known.
type Given = (Pulled, Option<Duration>);

async fn take(ground: &Arc<Ground>, tx: &Tx, pull: &Pull, pool: i64) -> mainstay_store::Result<Given> {
    let is_offered = |function: &str| pull.functions.iter().any(|offered| offered == function);
    let lanes = Directory::lanes_of(tx, pool, is_offered).await?;
    let nothing = Pulled::default();
    if lanes.is_empty() {
        return Ok((nothing, None));
    }
    let lease_ms = i64::try_from(pull.lease.as_millis()).unwrap_or(i64::MAX);
    let taken = lease::take_pulled(tx, &pull.worker, lease_ms).await?;
    let (lease, shown) = (taken.number, taken.to_string());
    let wish = Wish { pool, lease, lanes: Arc::new(Group::all(ground, &lanes)), running: 0, most: pull.most };
    let claimed = claim(ground, tx, &wish).await?;
    if claimed.texts.is_empty() {
        lease::give_up(tx, lease).await?;
        lease::end(tx, lease).await?;
        let wait = claimed.wait_ms.map(|wait_ms| Duration::from_millis(wait_ms.unsigned_abs()));
        return Ok((nothing, wait));
    }
    let is_late = |taken: &Taken| taken.item.deadline_at.is_some_and(|deadline| deadline <= claimed.now_ms);
    let (late, taken): (Vec<Taken>, Vec<Taken>) = read(claimed.texts).partition(is_late);
    if !late.is_empty() {
        end_late(ground, tx, lease, pool, claimed.held, late).await?;
        if taken.is_empty() {
            lease::give_up(tx, lease).await?;
            lease::end(tx, lease).await?;
            return Ok((nothing, Some(Duration::ZERO)));
        }
    }
    let items = taken.into_iter().map(|Taken { id, item, .. }| {
        let item = Arc::unwrap_or_clone(item);
        PulledItem {
            work_id: text(id),
            function: item.function,
            attempt: item.attempts + 1,
            args: item.args,
            context: item.context,
            key: item.key,
            trace: item.trace,
        }
    });
    let until_ms = Some(claimed.now_ms + lease_ms);
    Ok((Pulled { lease: Some(shown), until_ms, items: items.collect() }, None))
}

/// Ends items that nobody may start any more.
async fn end_late(
    ground: &Arc<Ground>,
    tx: &Tx,
    lease: i64,
    pool: i64,
    held: Option<Held>,
    late: Vec<Taken>,
) -> mainstay_store::Result<()> {
    let Some(held) = held else { return Ok(()) };
    let (pool_name, settings) = ground.pool(tx, pool).await?;
    let ending = |taken| {
        let plan = Plan::Ended(Outcome::Failed(Failure::permanent("its deadline has passed")));
        (held.batch, Ending { is_told_later: true, ..Ending::new(taken, plan, Cancel::default()) })
    };
    let endings = late.into_iter().map(ending).collect();
    let held = vec![held.clone()];
    let progress = Arc::default();
    settle(ground, tx, &Settlement { pool, pool_name, settings, lease: Some(lease), endings, held, progress })
        .await
}

/// The end of an item that a pull worker had.
#[derive(Clone)]
struct End {
    lease: lease::Pulled,
    id: Uuid,
    outcome: Outcome,
    is_told_later: bool,
    progress: Arc<Progress>,
}

/// Ends an item; its pool and its function.
async fn end_in(ground: &Arc<Ground>, tx: &Tx, end: &End) -> mainstay_store::Result<(String, String)> {
    // Two ends under one lease must see each other's marks.
    lease::hold_pulled(tx, &end.lease, Hold::Alone).await?;
    let lease = end.lease.number;
    let not_held = || mainstay_store::Error::from(Error::NotHeld { id: text(end.id), lease });
    let (held, pool, taken) = held_under(tx, lease).await?.ok_or_else(not_held)?;
    let batch = held.batch;
    let taken = taken.into_iter().find(|taken| taken.id == end.id && !held.is_done(taken.index));
    let taken = taken.ok_or_else(not_held)?;
    let is_last = held.with_done(std::iter::once(taken.index)).is_none();
    let (pool_name, settings) = ground.pool(tx, pool).await?;
    let at_once = i64::from(settings.max_parallelism);
    let ended = (pool_name.clone(), taken.item.function.clone());
    let ending = Ending::new(taken, Plan::Ended(end.outcome.clone()), Cancel::default());
    let ending = Ending { is_told_later: end.is_told_later, ..ending };
    let settlement = Settlement {
        pool,
        pool_name,
        settings,
        lease: Some(lease),
        endings: vec![(batch, ending)],
        held: vec![held],
        progress: end.progress.clone(),
    };
    settle(ground, tx, &settlement).await?;
    if is_last {
        // Whoever waits for a place in a pool that was full hears of it.
        if tx.query_one(SLOTS, params![pool]).await?.get::<i64>(0)? >= at_once {
            tx.wake(&pool_topic(pool))?;
        }
        lease::give_up(tx, lease).await?;
        lease::end(tx, lease).await?;
    }
    Ok(ended)
}
