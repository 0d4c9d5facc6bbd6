//! Keeps the node's lease, takes back what others left, finds new pools, and tidies up.

use super::attendant::attend;
use super::{Bell, Shared};
use crate::claim::{Held, unpack};
use crate::delete::FORGET_DELETED;
use crate::directory::{cancels_topic, pools_topic};
use crate::enqueue::uuid;
use crate::error::Error;
use crate::functions::Cancel;
use crate::lease;
use crate::next::Outcome;
use crate::settle::{Ending, Plan, Settlement, settle};
use crate::work::{Ground, LATELY_MS};
use mainstay_store::Column::Int;
use mainstay_store::{Bulk, Tx, Value, params};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use uuid::Uuid;

/// How long what came of an item is kept.
const KEEP_MS: i64 = 7 * 24 * 3_600_000;
/// How often is tidied up.
const TIDY_EVERY: Duration = Duration::from_secs(30);
/// For how long, before the lease is looked after again.
const TIDY_FOR: Duration = Duration::from_secs(1);
/// How many are forgotten in one transaction: a few milliseconds.
const FORGET_AT_ONCE: u64 = 1_000;

const POOLS: &str = "SELECT number, name FROM mainstay_pools";
const READY: &str = "SELECT lane.pool FROM mainstay_lanes AS lane WHERE EXISTS (SELECT 1 FROM mainstay_work AS item \
     WHERE item.lane = lane.number AND item.state = 0)";
const CANCELS: &str = "SELECT id FROM mainstay_work_cancels";
const BATCHES: &str = "SELECT batch.number, batch.pool, batch.ids, batch.items, marks.done FROM mainstay_batches AS batch \
     LEFT JOIN mainstay_batch_marks AS marks ON marks.batch = batch.number WHERE batch.lease = $1";
const FOLD: &str =
    "DELETE FROM mainstay_pool_changes WHERE changed_at < $1 RETURNING pool, pending, started, ended";
const OLD: &str = "SELECT id FROM mainstay_ended WHERE id < $1 AND ended_at < $2 ORDER BY id LIMIT $3";
const FORGET_DEDUPE: [&str; 2] = [
    "DELETE FROM mainstay_dedupe WHERE until_ms < $1",
    "DELETE FROM mainstay_dedupe_of_tenants WHERE until_ms < $1",
];
const FORGET_CANCELS: &str = "DELETE FROM mainstay_work_cancels WHERE asked_at < $1";

/// Keeps until the engine stops.
pub(super) async fn keep(shared: Arc<Shared>, tasks: Weak<Mutex<JoinSet<()>>>) {
    let mut cancels = shared.ground.store.listen(cancels_topic());
    let mut pools = shared.ground.store.listen(pools_topic());
    let mut look = shared.look.subscribe();
    let mut tidied = Instant::now();
    let mut looked: Option<Instant> = None;
    while !shared.is_stopping() {
        let lease = shared.lease.load(Ordering::Acquire);
        let is_look_due = looked.is_none_or(|at| at.elapsed() >= 3 * shared.extend_every());
        if is_look_due {
            looked = Some(Instant::now());
        }
        if let Err(error) = round(&shared, lease, is_look_due, &tasks).await {
            shared.recover(lease, &error, "keeping the lease").await;
            continue;
        }
        if tidied.elapsed() > TIDY_EVERY {
            match tidy_up(&shared).await {
                Ok(true) => {}
                Ok(false) => tidied = Instant::now(),
                Err(error) => {
                    tidied = Instant::now();
                    tracing::warn!(%error, "tidying up failed");
                }
            }
        }
        let until = Instant::now() + shared.extend_every();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            tokio::select! {
                is_woken = cancels.woken(left) => {
                    if is_woken {
                        ask(&shared).await;
                        continue;
                    }
                }
                // A new pool has no attendant yet, and one that was deleted needs none.
                _ = pools.woken(left) => {}
                () = shared.stopped() => {}
                _ = look.changed() => looked = None,
            }
            break;
        }
    }
    // What still runs keeps its lease until it has ended; the engine's tasks say when that is.
    while shared.ground.figures.running.get() > 0 && !shared.floor.is_empty() {
        let lease = shared.lease.load(Ordering::Acquire);
        if !shared.extend(lease).await.unwrap_or(false) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Tidies up, a little at a time and not for long; whether something is left.
async fn tidy_up(shared: &Shared) -> mainstay_store::Result<bool> {
    let until = Instant::now() + TIDY_FOR;
    loop {
        let tidy = async |tx: Tx, ground: Arc<Ground>| tidy(&ground, &tx).await;
        let is_more = shared.ground.store.transact_with(shared.ground.clone(), tidy).await?;
        if !is_more || Instant::now() > until || shared.is_stopping() {
            return Ok(is_more);
        }
    }
}

async fn round(
    shared: &Arc<Shared>,
    lease: i64,
    is_look_due: bool,
    tasks: &Weak<Mutex<JoinSet<()>>>,
) -> Result<(), Error> {
    // While items are taken, attendants look by themselves, and looking costs the more the longer a snapshot is open.
    let taken = shared.ground.figures.taken.get();
    let is_quiet = is_look_due && shared.taken.swap(taken, Ordering::Relaxed) == taken;
    let extend = async |tx: Tx, (lease, for_ms): (i64, i64)| {
        let is_ours = lease::extend(&tx, lease, for_ms).await?;
        let expired = lease::expired(&tx).await?;
        let mut pools: Vec<(i64, String)> = Vec::new();
        for row in tx.query(POOLS, &[]).await? {
            pools.push((row.get(0)?, row.get(1)?));
        }
        Ok((is_ours, expired, pools))
    };
    let (is_ours, expired, pools) =
        shared.ground.store.transact_with((lease, shared.ground.lease_ms), extend).await?;
    if !is_ours {
        return Err(Error::LeaseLost(lease));
    }
    for lease in expired {
        let reap = async |tx: Tx, (ground, lease): (Arc<Ground>, i64)| {
            reap_in(&ground, &tx, lease, &Outcome::Lost).await
        };
        match shared.ground.store.transact_with((shared.ground.clone(), lease), reap).await {
            Ok(true) => shared.ground.figures.reaped.increment(),
            Ok(false) => {}
            Err(error) if error.is_retryable() => return Err(error.into()),
            // What one node has left must not keep this one from all the rest.
            Err(error) => tracing::error!(%error, lease, "taking back the work of a lease failed"),
        }
    }
    see_to(shared, pools, tasks);
    ask(shared).await;
    if is_quiet {
        nudge(shared, &ready(shared).await);
    }
    Ok(())
}

/// Pools that have something to do, looked at from the very front. It may take long, so nothing depends on it.
async fn ready(shared: &Shared) -> Vec<i64> {
    let read = async |tx: Tx| tx.query(READY, &[]).await?.iter().map(|row| row.get(0)).collect();
    shared.ground.store.read(read).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "looking for what waits failed");
        Vec::new()
    })
}

/// Starts an attendant for every new pool, and ends those of deleted ones.
fn see_to(shared: &Arc<Shared>, pools: Vec<(i64, String)>, tasks: &Weak<Mutex<JoinSet<()>>>) {
    let Some(tasks) = tasks.upgrade() else { return };
    let mut tasks = tasks.lock().unwrap_or_else(PoisonError::into_inner);
    let mut attended = shared.pools.lock().unwrap_or_else(PoisonError::into_inner);
    let listed: HashSet<i64> = pools.iter().map(|(pool, _)| *pool).collect();
    attended.retain(|pool, bell| {
        let is_listed = listed.contains(pool);
        if !is_listed {
            bell.delete();
            shared.ground.forget_pool(*pool, &bell.name);
        }
        is_listed
    });
    for (pool, name) in pools {
        let Entry::Vacant(place) = attended.entry(pool) else { continue };
        let bell = place.insert(Arc::new(Bell::new(name))).clone();
        tasks.spawn(attend(shared.clone(), pool, bell));
    }
    // Attendants of deleted pools leave nothing behind.
    while tasks.try_join_next().is_some() {}
}

/// Wakes the attendants of pools that have something to do. A node may die between its commit and its wake-up, so what is
/// ready is looked for now and then.
fn nudge(shared: &Shared, ready: &[i64]) {
    let attended = shared.pools.lock().unwrap_or_else(PoisonError::into_inner);
    ready.iter().filter_map(|pool| attended.get(pool)).for_each(|bell| bell.nudge.notify_one());
}

/// The items that are to stop.
pub(crate) async fn canceled_ones(tx: &Tx) -> mainstay_store::Result<HashSet<Uuid>> {
    tx.query(CANCELS, &[]).await?.iter().map(|row| row.get(0).map(uuid)).collect()
}

/// Tells items of this node that they are to stop.
async fn ask(shared: &Shared) {
    if shared.floor.is_empty() {
        return;
    }
    match shared.ground.store.read(async |tx| canceled_ones(&tx).await).await {
        Ok(asked) => shared.floor.ask(&asked),
        Err(error) => tracing::warn!(%error, "reading what is to stop failed"),
    }
}

/// What a lease has left of one pool.
#[derive(Default)]
struct Left {
    endings: Vec<(i64, Ending)>,
    held: Vec<Held>,
}

/// Takes back what was taken under a lease that is over, each item with this outcome; whether the lease is gone by that.
///
/// A batch that cannot be read is left as it is, with its lease: for a newer program, or for a person.
pub(crate) async fn reap_in(
    ground: &Arc<Ground>,
    tx: &Tx,
    lease: i64,
    outcome: &Outcome,
) -> mainstay_store::Result<bool> {
    if !lease::hold_expired(tx, lease).await? {
        return Ok(false);
    }
    let (mut pools, mut is_read): (BTreeMap<i64, Left>, bool) = (BTreeMap::new(), true);
    for row in tx.query(BATCHES, params![lease]).await? {
        let (batch, pool): (i64, i64) = (row.get(0)?, row.get(1)?);
        let taken = match unpack(row.get(2)?, row.get(3)?) {
            Ok(taken) => taken,
            Err(error) => {
                tracing::error!(%error, batch, lease, "a batch cannot be read; it is left as it is");
                is_read = false;
                continue;
            }
        };
        let done: Option<Vec<u8>> = row.get(4)?;
        let held = Held { batch, lease, size: taken.len(), done: done.unwrap_or_default() };
        let Left { endings, held: all_held } = pools.entry(pool).or_default();
        for taken in taken.into_iter().filter(|taken| !held.is_done(taken.index)) {
            let plan = Plan::Ended(outcome.clone());
            endings
                .push((batch, Ending { is_told_later: true, ..Ending::new(taken, plan, Cancel::default()) }));
        }
        all_held.push(held);
    }
    for (pool, Left { endings, held }) in pools {
        let pool_name = ground.directory.pool_name(tx, pool).await?;
        let row =
            tx.query_one("SELECT settings FROM mainstay_pools WHERE number = $1", params![pool]).await?;
        let settings = ground.settings(&pool_name, row.get(0)?)?;
        let settlement =
            Settlement { pool, pool_name, settings, lease: None, endings, held, progress: Arc::default() };
        settle(ground, tx, &settlement).await?;
    }
    if is_read {
        return lease::end(tx, lease).await;
    }
    // Nobody works under it any more, whatever is left.
    lease::drop_slots(tx, lease).await?;
    Ok(false)
}

static ADD_TOTALS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::insert(
        "INSERT INTO mainstay_pool_totals (pool, pending, started, ended) VALUES {rows} ON CONFLICT (pool) DO UPDATE \
         SET pending = mainstay_pool_totals.pending + excluded.pending, \
         started = mainstay_pool_totals.started + excluded.started, \
         ended = mainstay_pool_totals.ended + excluded.ended",
        &[Int, Int, Int, Int],
    )
});

/// Sums up changes and forgets what is old; whether there is more to forget.
pub(crate) async fn tidy(ground: &Ground, tx: &Tx) -> mainstay_store::Result<bool> {
    tx.lock("mainstay.work.tidy").await?;
    let now_ms = tx.now_ms().await?;
    let mut sums: BTreeMap<i64, [i64; 3]> = BTreeMap::new();
    for row in tx.query(FOLD, params![now_ms - LATELY_MS * 2]).await? {
        let sum = sums.entry(row.get(0)?).or_default();
        for (index, sum) in sum.iter_mut().enumerate() {
            *sum += row.get::<i64>(index + 1)?;
        }
    }
    let rows: Vec<Value> =
        sums.into_iter().flat_map(|(pool, sum)| [pool, sum[0], sum[1], sum[2]].map(Value::Int)).collect();
    ADD_TOTALS.execute(tx, &rows).await?;
    let before = now_ms - KEEP_MS;
    // Ids begin with the time they were made at, so the oldest are in front.
    let oldest =
        uuid::Builder::from_unix_timestamp_millis(before.max(0).cast_unsigned(), &[0; 10]).into_uuid();
    let params = params![&oldest.as_bytes()[..], before, FORGET_AT_ONCE as i64];
    let forget = format!("DELETE FROM mainstay_ended WHERE {}", ground.among("id", OLD));
    let forgotten = tx.execute(&forget, params).await?;
    for forget in FORGET_DEDUPE {
        tx.execute(forget, params![now_ms]).await?;
    }
    tx.execute(FORGET_DELETED, params![before]).await?;
    tx.execute(FORGET_CANCELS, params![now_ms - 24 * 3_600_000]).await?;
    Ok(forgotten == FORGET_AT_ONCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{COMPONENT, Functions, Work};
    use mainstay_store::Options;

    /// As many go as have come, however many that are.
    #[tokio::test]
    async fn what_is_old_is_forgotten_a_little_at_a_time_until_nothing_is_left() {
        let store = Options::new("sqlite::memory:").component(COMPONENT).open().await.unwrap();
        let work = Work::open(&store, Functions::new()).await.unwrap();
        let fill = async |tx: Tx, ground: Arc<Ground>| {
            let sql =
                "INSERT INTO mainstay_ended (id, pool, state, ended_at, record) VALUES ($1, 1, 0, $2, '')";
            let new = ground.ids.uuid();
            for number in 0..2_500_u128 {
                let id = Uuid::from_u128(number);
                tx.execute(sql, params![&id.as_bytes()[..], 0]).await?;
            }
            tx.execute(sql, params![&new.as_bytes()[..], tx.now_ms().await?]).await
        };
        store.transact_with(work.ground().clone(), fill).await.unwrap();
        let mut rounds = Vec::new();
        for _ in 0..3 {
            let run = async |tx: Tx, ground: Arc<Ground>| tidy(&ground, &tx).await;
            rounds.push(store.transact_with(work.ground().clone(), run).await.unwrap());
        }
        assert_eq!(rounds, [true, true, false]);
        let count =
            async |tx: Tx| tx.query_one("SELECT count(*) FROM mainstay_ended", &[]).await?.get::<i64>(0);
        assert_eq!(store.read(count).await.unwrap(), 1, "the new one");
    }
}
