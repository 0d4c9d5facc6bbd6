//! Taking items: as many as may run, the most urgent first.
//!
//! Claims of one pool are made one after another on all nodes, under the pool's lock; that is what makes `maxParallelism`
//! hold, and it is held for a few statements only. What was taken leaves the table of what waits and is kept in a batch,
//! so that a claim never passes by what others work on.

use crate::directory::pool_topic;
use crate::enqueue::{change, uuid};
use crate::item::Item;
use crate::lease;
use crate::pool::Pool;
use crate::work::Ground;
use mainstay_store::{Hold, Result, Row, Tx, Value, params};
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Instant;
use tokio::try_join;
use uuid::Uuid;

/// Most items of one claim: beyond this the cost of a commit is spread thin already.
pub(crate) const MAX_CLAIM: usize = 1_000;

/// Who wants how much.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    pub(crate) pool: i64,
    pub(crate) lease: i64,
    /// Lanes in groups of the same priority.
    pub(crate) lanes: Arc<Vec<Group>>,
    /// How many of the lease's items run already.
    pub(crate) running: usize,
    pub(crate) most: usize,
}

/// Lanes of the same priority.
#[derive(Debug, Clone, Default)]
pub(crate) struct Group {
    pub(crate) lanes: Vec<i64>,
    /// Everything up to this place was taken before, so it need not be passed by again.
    pub(crate) after: i64,
}

impl Group {
    /// Groups of lanes, from where they were last taken.
    pub(crate) fn all(ground: &Ground, lanes: &[Vec<i64>]) -> Vec<Self> {
        lanes.iter().map(|lanes| Self { after: ground.reached(lanes), lanes: lanes.clone() }).collect()
    }
}

/// An item that was taken.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    pub(crate) id: Uuid,
    pub(crate) item: Arc<Item>,
    /// Where it stands in its batch.
    pub(crate) index: usize,
}

/// What was taken together.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) batch: i64,
    /// Whoever has another one may not end it.
    pub(crate) lease: i64,
    pub(crate) size: usize,
    /// A bit for each item that has ended.
    pub(crate) done: Vec<u8>,
}

impl Held {
    pub(crate) fn is_done(&self, index: usize) -> bool {
        self.done.get(index / 8).is_some_and(|byte| byte & (1 << (index % 8)) != 0)
    }

    /// The same with these items ended too; nothing when that are all.
    pub(crate) fn with_done(&self, indices: impl Iterator<Item = usize>) -> Option<Vec<u8>> {
        let mut done = self.done.clone();
        done.resize(self.size.div_ceil(8), 0);
        indices.for_each(|index| done[index / 8] |= 1 << (index % 8));
        let ended: u32 = done.iter().map(|byte| byte.count_ones()).sum();
        (ended as usize != self.size).then_some(done)
    }
}

/// What came of a claim.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claimed {
    /// The items, as they are kept. Reading them need not keep others from writing.
    pub(crate) texts: Vec<(Uuid, String)>,
    pub(crate) held: Option<Held>,
    pub(crate) now_ms: i64,
    /// How the pool is set at this moment.
    pub(crate) settings: Option<Arc<Pool>>,
    /// Whether there may be more that could be taken at once.
    pub(crate) is_more: bool,
    /// The rate lets the next one start so much later.
    pub(crate) wait_ms: Option<i64>,
}

const STATE: &str = "SELECT name, settings, is_paused, started_until FROM mainstay_pools WHERE number = $1";
const SLOTS: &str = "SELECT lease, slots, is_short FROM mainstay_slots WHERE pool = $1";
const SET_SLOTS: &str = "INSERT INTO mainstay_slots (pool, lease, slots, is_short) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (pool, lease) DO UPDATE SET slots = excluded.slots, is_short = excluded.is_short";
const SET_STARTED: &str = "UPDATE mainstay_pools SET started_until = $2 WHERE number = $1";
const KEEP: &str = "INSERT INTO mainstay_batches (lease, pool, taken_at, ids, items) VALUES ($1, $2, $3, $4, $5) \
     RETURNING number";
const KEPT: &str = "SELECT number, taken_at, ids, items FROM mainstay_batches \
     WHERE lease = $1 AND pool = $2 AND number > $3 ORDER BY number";

const BY_INDEX: &str = "SELECT set_config('enable_seqscan', 'off', true)";

/// Lets the server take by the index, however little waits while it makes its plan: it keeps that when much does.
pub(crate) async fn plan_by_index(ground: &Ground, tx: &Tx) -> Result<()> {
    if ground.store.capabilities().plans_by_statistics {
        tx.query(BY_INDEX, &[]).await?;
    }
    Ok(())
}

/// Holds a pool against other claims, also an earlier one of one's own that is not over; tells the time.
async fn take_turn(ground: &Ground, tx: &Tx, pool: i64, lease: i64) -> Result<i64> {
    // Sent at once, and done in this order.
    let ((), now_ms) =
        try_join!(biased; lock_pool(tx, pool), lease::fence(ground, tx, lease, Hold::InPlace))?;
    Ok(now_ms)
}

/// Holds a pool against claims.
pub(crate) async fn lock_pool(tx: &Tx, pool: i64) -> Result<()> {
    tx.lock(&format!("mainstay.work.pool.{pool}")).await
}

/// What was taken under a lease after the batch of this number, of which nobody may have heard: the outcome of a claim
/// can be unknown.
pub(crate) async fn claimed_after(
    ground: &Ground,
    tx: &Tx,
    (pool, lease, batch): (i64, i64, i64),
) -> Result<Vec<Claimed>> {
    // A commit that is still on its way is waited for.
    take_turn(ground, tx, pool, lease).await?;
    let mut found = Vec::new();
    for row in tx.query(KEPT, params![lease, pool, batch]).await? {
        let texts = texts(row.get(2)?, row.get(3)?)?;
        let held = Held { batch: row.get(0)?, lease, size: texts.len(), done: Vec::new() };
        found.push(Claimed { texts, held: Some(held), now_ms: row.get(1)?, ..Claimed::default() });
    }
    Ok(found)
}

/// Takes what may be taken.
pub(crate) async fn claim(ground: &Ground, tx: &Tx, wish: &Wish) -> Result<Claimed> {
    let pool = params![wish.pool];
    let (now_ms, row, slots, ()) = try_join!(
        biased;
        take_turn(ground, tx, wish.pool, wish.lease),
        tx.query_optional(STATE, pool),
        tx.query(SLOTS, pool),
        plan_by_index(ground, tx)
    )?;
    // A pool that was deleted has nothing to take.
    let Some(row) = row else { return Ok(Claimed { now_ms, ..Claimed::default() }) };
    let settings = ground.settings(row.get(0)?, row.get(1)?)?;
    let is_paused: bool = row.get(2)?;
    let mut claimed = Claimed { now_ms, settings: Some(settings.clone()), ..Claimed::default() };
    let mut most = if is_paused { 0 } else { wish.most.min(MAX_CLAIM) };
    let until_us: i64 = row.get(3)?;
    let mut rate = settings.rate_per_second.map(|rate| Rate::new(rate.into(), until_us, now_ms));
    if let Some(rate) = &rate {
        let allowed = rate.allowed(now_ms);
        claimed.wait_ms = (allowed < most).then(|| rate.wait_ms(now_ms));
        most = most.min(allowed);
    }
    let share = share(&slots, wish, settings.max_parallelism as usize, most)?;
    most = most.min(share.allowed);
    let (texts, reached) = take(ground, tx, &wish.lanes, most).await?;
    let count = texts.len();
    claimed.is_more = count == most && most > 0 && claimed.wait_ms.is_none();
    // Somebody who wants and gets nothing must be heard, but only if there is something to be had.
    let is_short = share.is_short
        && count == share.allowed
        && (count > 0 || (!is_paused && is_any_ready(tx, &wish.lanes).await?));
    if count == 0 {
        share.settle(tx, wish, count, is_short).await?;
        return Ok(claimed);
    }
    let (ids, items) = pack(&texts);
    if let Some(rate) = &mut rate {
        rate.start(now_ms, count);
        tx.execute(SET_STARTED, params![wish.pool, rate.until_us]).await?;
    }
    let batch = params![wish.lease, wish.pool, now_ms, ids, items];
    let (kept, (), ()) = try_join!(
        biased;
        tx.query_one(KEEP, batch),
        share.settle(tx, wish, count, is_short),
        change(tx, wish.pool, now_ms, -(count as i64), count as i64, 0)
    )?;
    claimed.held = Some(Held { batch: kept.get(0)?, lease: wish.lease, size: count, done: Vec::new() });
    claimed.texts = texts;
    if ground.store.capabilities().concurrent_writers {
        let (fronts, groups) = (ground.fronts.clone(), wish.lanes.clone());
        tx.after_commit(Arc::new(move || {
            let now = Instant::now();
            for (group, reached) in groups.iter().zip(&reached) {
                fronts.advance(&group.lanes, *reached, now);
            }
        }))?;
    }
    Ok(claimed)
}

/// Reads items that were taken.
pub(crate) fn read(texts: Vec<(Uuid, String)>) -> impl Iterator<Item = Taken> {
    let taken =
        |(index, (id, text)): (usize, (Uuid, String))| Taken { id, item: Arc::new(Item::read(&text)), index };
    texts.into_iter().enumerate().map(taken)
}

/// The ids and the items of a batch, as they are kept. An item that is not even JSON stands there as a text, so that it
/// harms none of the others.
fn pack(texts: &[(Uuid, String)]) -> (Vec<u8>, String) {
    let bytes: usize = texts.iter().map(|(_, item)| item.len() + 1).sum();
    let (mut ids, mut items) = (Vec::with_capacity(texts.len() * 16), String::with_capacity(bytes + 1));
    items.push('[');
    for (index, (id, item)) in texts.iter().enumerate() {
        ids.extend(id.as_bytes());
        if index > 0 {
            items.push(',');
        }
        match serde_json::from_str::<IgnoredAny>(item) {
            Ok(_) => items.push_str(item),
            Err(_) => items.push_str(&serde_json::Value::from(item.as_str()).to_string()),
        }
    }
    items.push(']');
    (ids, items)
}

/// The items of a batch that was kept, as they are kept.
fn texts(ids: &[u8], items: &str) -> Result<Vec<(Uuid, String)>> {
    let items: Vec<&RawValue> = serde_json::from_str(items).map_err(mainstay_store::Error::application)?;
    if ids.len() != items.len() * 16 {
        let wrong = format!("{} items and {} bytes of ids", items.len(), ids.len());
        return Err(mainstay_store::Error::application(wrong));
    }
    Ok(ids.chunks_exact(16).map(uuid).zip(items.iter().map(|item| item.get().to_owned())).collect())
}

/// The items of a batch that was kept.
pub(crate) fn unpack(ids: &[u8], items: &str) -> Result<Vec<Taken>> {
    Ok(read(texts(ids, items)?).collect())
}

/// An item that waits, with its place.
type Placed = (i64, (Uuid, String));

/// Takes items from the front, and tells up to where each group was taken.
async fn take(
    ground: &Ground,
    tx: &Tx,
    groups: &[Group],
    most: usize,
) -> Result<(Vec<(Uuid, String)>, Vec<i64>)> {
    let mut taken: Vec<(Uuid, String)> = Vec::new();
    let mut reached: Vec<i64> = groups.iter().map(|group| group.after).collect();
    for (group, reached) in groups.iter().zip(&mut reached) {
        if taken.len() >= most {
            break;
        }
        let mut params = vec![Value::Int((most - taken.len()) as i64), Value::Int(group.after)];
        params.extend(group.lanes.iter().map(|lane| Value::Int(*lane)));
        let front = match ground.store.capabilities().concurrent_writers {
            true => take_among_others(tx, group, &params).await?,
            false => take_alone(tx, group, &params).await?,
        };
        *reached = front.last().map_or(*reached, |(place, _)| *place);
        taken.extend(front.into_iter().map(|(_, item)| item));
    }
    Ok((taken, reached))
}

/// Takes the front of a group in one statement, since others write between two.
async fn take_among_others(tx: &Tx, group: &Group, params: &[Value]) -> Result<Vec<Placed>> {
    let rows = tx.query(&take_sql(group.lanes.len()), params).await?;
    let mut front = rows.into_iter().map(placed).collect::<Result<Vec<_>>>()?;
    // A deletion gives its rows back in any order.
    front.sort_unstable_by_key(|(place, _)| *place);
    Ok(front)
}

/// The same on SQLite, where nobody does: half the cost of a deletion that tells what it deletes.
async fn take_alone(tx: &Tx, group: &Group, params: &[Value]) -> Result<Vec<Placed>> {
    let rows = tx.query(&front_sql("place, id, item", READY, group.lanes.len()), params).await?;
    let front = rows.into_iter().map(placed).collect::<Result<Vec<_>>>()?;
    if let Some((last, _)) = front.last() {
        for lane in &group.lanes {
            tx.execute(DROP_FRONT, params![*lane, group.after, *last]).await?;
        }
    }
    Ok(front)
}

/// A row of `place, id, item`.
fn placed(row: Row) -> Result<Placed> {
    let (place, id) = (row.get(0)?, uuid(row.get(1)?));
    match row.into_values().pop() {
        Some(Value::Text(item)) => Ok((place, (id, item))),
        _ => Ok((place, (id, String::new()))),
    }
}

/// `$1` how many, `$2` after which place, `$3…` the lanes.
fn take_sql(lanes: usize) -> String {
    let places = front_sql("place", "mainstay_work", lanes);
    // As a list that is made first: how many items the server believes there to be must not matter.
    format!("DELETE FROM mainstay_work WHERE place = ANY (ARRAY({places})) RETURNING place, id, item")
}

/// The front of several lanes. `$1` how many, `$2` after which place, `$3…` the lanes.
fn front_sql(columns: &str, table: &str, lanes: usize) -> String {
    let front = |lane: usize| {
        let lane = lane + 3;
        format!(
            "SELECT {columns} FROM {table} WHERE lane = ${lane} AND state = 0 AND place > $2 ORDER BY place LIMIT $1"
        )
    };
    if lanes == 1 {
        return front(0);
    }
    let fronts: Vec<String> =
        (0..lanes).map(|lane| format!("SELECT {columns} FROM ({}) AS front_{lane}", front(lane))).collect();
    let mut joined: Vec<String> =
        fronts.chunks(MAX_JOINED).map(|fronts| fronts.join(" UNION ALL ")).collect();
    if joined.len() > 1 {
        let each = |(number, fronts): (usize, &String)| {
            format!(
                "SELECT {columns} FROM (SELECT {columns} FROM ({fronts}) AS some_{number} ORDER BY place LIMIT $1) AS part_{number}"
            )
        };
        joined = vec![joined.iter().enumerate().map(each).collect::<Vec<_>>().join(" UNION ALL ")];
    }
    format!("SELECT {columns} FROM ({}) AS fronts ORDER BY place LIMIT $1", joined.concat())
}

/// Most queries that are joined by one UNION; SQLite takes 500. There are more lanes when the program has so many functions.
const MAX_JOINED: usize = 400;

const READY: &str = "mainstay_work INDEXED BY mainstay_work_ready";
const DROP_FRONT: &str = "DELETE FROM mainstay_work INDEXED BY mainstay_work_ready \
     WHERE lane = $1 AND state = 0 AND place > $2 AND place <= $3";

/// How many of a pool's places a lease has.
struct Share {
    /// As the table has it.
    kept: Option<(usize, bool)>,
    slots: usize,
    is_short: bool,
    /// Whether another lease has too little.
    is_other_short: bool,
    /// How many more may run.
    allowed: usize,
}

/// Finds a lease's share of what may run at once. The slots of all leases together are never more than that.
fn share(kept_slots: &[Row], wish: &Wish, at_once: usize, wanted: usize) -> Result<Share> {
    let (mut kept, mut others, mut leases, mut is_other_short) = (None, 0_usize, 1_usize, false);
    for row in kept_slots {
        let slots = row.get::<i64>(1)?.max(0) as usize;
        if row.get::<i64>(0)? == wish.lease {
            kept = Some((slots, row.get(2)?));
        } else {
            others += slots;
            leases += 1;
            is_other_short |= row.get::<bool>(2)?;
        }
    }
    let left = at_once.saturating_sub(others);
    // Where somebody has too little, nobody takes more than a fair share; what runs already runs on.
    let fair = if is_other_short { at_once.div_ceil(leases).min(left) } else { left };
    let need = wish.running + wanted;
    let before = kept.map_or(0, |(slots, _)| slots);
    let slots = need.max(if is_other_short { 0 } else { before }).min(fair).max(wish.running.min(left));
    let is_short = need > slots && slots < at_once.div_ceil(leases);
    Ok(Share { kept, slots, is_short, is_other_short, allowed: slots.saturating_sub(wish.running) })
}

impl Share {
    /// Writes down what is needed after `taken` items were taken: everything while there is work, and no more than what
    /// runs when there is none.
    async fn settle(&self, tx: &Tx, wish: &Wish, taken: usize, is_short: bool) -> Result<()> {
        let slots = if taken == 0 { wish.running.min(self.slots) } else { self.slots };
        let kept = self.kept.unwrap_or((0, false));
        if kept == (slots, is_short) {
            return Ok(());
        }
        if self.is_other_short && slots < kept.0 {
            // Whoever has too little would not look before long.
            tx.wake(&pool_topic(wish.pool))?;
        }
        let params = params![wish.pool, wish.lease, slots as i64, i64::from(is_short)];
        tx.execute(SET_SLOTS, params).await.map(drop)
    }
}

const IS_READY: &str =
    "SELECT place FROM mainstay_work WHERE lane = $1 AND state = 0 AND place > $2 ORDER BY place LIMIT 1";

pub(crate) async fn is_any_ready(tx: &Tx, groups: &[Group]) -> Result<bool> {
    for group in groups {
        for lane in &group.lanes {
            if !tx.query(IS_READY, params![*lane, group.after]).await?.is_empty() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// So many starts per second, and a tenth of a second's worth at once.
struct Rate {
    per_second: i64,
    /// Starts are given out up to this moment, in microseconds.
    until_us: i64,
}

impl Rate {
    /// Nobody starts anything further ahead than this allows, so whatever is beyond was written before the clock was set
    /// back, and would hold the pool for as long as that.
    fn new(per_second: i64, until_us: i64, now_ms: i64) -> Self {
        let rate = Self { per_second, until_us };
        let most_us = now_ms * 1_000 + rate.ahead_us() + rate.interval_us();
        Self { until_us: until_us.min(most_us), ..rate }
    }

    fn interval_us(&self) -> i64 {
        (1_000_000 / self.per_second).max(1)
    }

    fn ahead_us(&self) -> i64 {
        100_000.max(self.interval_us())
    }

    fn allowed(&self, now_ms: i64) -> usize {
        let from = self.until_us.max(now_ms * 1_000);
        let room = now_ms * 1_000 + self.ahead_us() - from;
        usize::try_from(room / self.interval_us()).unwrap_or(0)
    }

    fn wait_ms(&self, now_ms: i64) -> i64 {
        let ready_at = self.until_us + self.interval_us() - self.ahead_us();
        ((ready_at - now_ms * 1_000).max(1_000) + 999) / 1_000
    }

    fn start(&mut self, now_ms: i64, count: usize) {
        self.until_us = self.until_us.max(now_ms * 1_000) + self.interval_us() * count as i64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_gives_out_as_many_starts_as_it_says() {
        for per_second in [1, 7, 100, 5_000] {
            let (mut rate, mut started) = (Rate { per_second, until_us: 0 }, 0);
            for now_ms in 0..10_000 {
                let allowed = rate.allowed(now_ms);
                rate.start(now_ms, allowed);
                started += allowed as i64;
            }
            let most = per_second * 10 + (per_second / 10).max(1) + 1;
            assert!((per_second * 99 / 10..=most).contains(&started), "{per_second}: {started}");
        }
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_hold_a_pool() {
        for per_second in [1, 7, 100, 5_000] {
            let (day_ms, mut rate) = (86_400_000, Rate::new(per_second, 0, 200_000_000));
            rate.start(200_000_000, rate.allowed(200_000_000));
            let back_ms = 200_000_000 - day_ms;
            let rate = Rate::new(per_second, rate.until_us, back_ms);
            let wait_ms = rate.wait_ms(back_ms);
            assert!(wait_ms <= 2_000, "{per_second} per second: {wait_ms} ms");
            assert!(rate.allowed(back_ms + wait_ms) > 0);
        }
    }

    #[test]
    fn an_item_that_is_no_json_harms_no_other_of_its_batch() {
        let [good, bad] =
            [r#"{"function":"f","args":1,"enqueuedAt":2}"#, "what \"is this"].map(str::to_owned);
        let (ids, items) = pack(&[(Uuid::from_u128(1), bad), (Uuid::from_u128(2), good)]);
        let taken = unpack(&ids, &items).unwrap();
        assert_eq!((taken[1].id, taken[1].item.function.as_str()), (Uuid::from_u128(2), "f"));
        assert_eq!(taken[0].item.function, crate::item::UNREADABLE);
        assert!(taken[0].item.args.get().contains("is this"), "{}", taken[0].item.args);
    }

    #[test]
    fn a_batch_is_done_when_all_of_it_is() {
        let held = Held { batch: 1, lease: 1, size: 9, done: Vec::new() };
        let done = held.with_done([0, 8].into_iter()).unwrap();
        let held = Held { done, ..held };
        assert!(held.is_done(0) && held.is_done(8) && !held.is_done(1));
        assert_eq!(held.with_done(1..8), None);
    }
}
