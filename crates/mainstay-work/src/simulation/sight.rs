//! All that is in the tables, and what must hold of it after every step.

use super::shop::{FIRST_POOL, POOLS};
use crate::claim::{Held, Taken, unpack};
use crate::enqueue::{text, uuid};
use crate::item::Item;
use crate::schema::waiting;
use crate::{Canceled, Depth, NewWork, Work};
use mainstay_store::{Result, Tx, params};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// What is known of an item from the moment it was enqueued.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) order: usize,
    pool: String,
    function: String,
    key: Option<String>,
    on_complete: Option<String>,
    max_attempts: Option<u32>,
    /// The item whose end it tells.
    pub(super) completes: Option<String>,
}

impl Known {
    pub(super) fn of(new: &NewWork, order: usize) -> Self {
        Self {
            order,
            pool: new.pool.clone(),
            function: new.function.clone(),
            key: new.key.clone(),
            on_complete: new.on_complete.clone(),
            max_attempts: new.retry.map(|retry| retry.max_attempts()),
            completes: None,
        }
    }
}

#[derive(Debug, Clone)]
struct Waiting {
    place: i64,
    id: Uuid,
    pool: i64,
    state: i64,
    due_at: i64,
    key: Option<String>,
    item: Item,
}

#[derive(Debug, Clone)]
struct Taking {
    pool: i64,
    lease: i64,
    taken: Taken,
}

/// An item of a key, with its place if it is behind.
type Live = (Uuid, Option<i64>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Ended {
    state: i64,
    record: String,
}

/// The tables at one moment.
#[derive(Debug, Default)]
pub(super) struct Sight {
    now_ms: i64,
    waiting: Vec<Waiting>,
    held: Vec<Taking>,
    batches: BTreeSet<i64>,
    marks: BTreeSet<i64>,
    keys: BTreeMap<(i64, String), i64>,
    leases: BTreeSet<i64>,
    /// Of a pool and a lease.
    slots: BTreeMap<(i64, i64), i64>,
    paused: BTreeSet<String>,
    ended: BTreeMap<Uuid, Ended>,
    ended_count: usize,
    effects: BTreeMap<String, usize>,
    told: BTreeMap<String, usize>,
    depths: Vec<Depth>,
    pub(super) letters: u64,
    /// Running items that are to stop.
    cancels: BTreeSet<Uuid>,
}

macro_rules! must {
    ($holds:expr, $($wrong:tt)*) => {
        if !$holds {
            return Err(format!($($wrong)*));
        }
    };
}

impl Sight {
    /// Looks at everything; as for what only ever grows, at what came since `before`.
    pub(super) async fn of(work: &Work, now_ms: i64, before: &Self) -> Self {
        let since = (before.now_ms, before.ended.len() as i64, sum(&before.effects), sum(&before.told));
        let mut sight = work.store().read_with(since, read).await.expect("the tables can be read");
        sight.now_ms = now_ms;
        for (id, ended) in &before.ended {
            sight.ended.entry(*id).or_insert_with(|| ended.clone());
        }
        add(&mut sight.effects, &before.effects);
        add(&mut sight.told, &before.told);
        for (name, _) in POOLS {
            sight.depths.push(work.depth(name).await.expect("a depth"));
        }
        sight
    }

    /// Takes note of what enqueued itself: tellings.
    pub(super) fn learn(&self, known: &mut BTreeMap<Uuid, Known>) {
        for (id, pool, item) in self.items() {
            let order = known.len();
            known.entry(id).or_insert_with(|| Known {
                order,
                pool: POOLS[(pool - FIRST_POOL) as usize].0.to_owned(),
                function: item.function.clone(),
                key: item.key.clone(),
                on_complete: item.on_complete.clone(),
                max_attempts: None,
                completes: item.completes.clone(),
            });
        }
    }

    fn items(&self) -> impl Iterator<Item = (Uuid, i64, &Item)> {
        let waiting = self.waiting.iter().map(|one| (one.id, one.pool, &one.item));
        waiting.chain(self.held.iter().map(|one| (one.taken.id, one.pool, &*one.taken.item)))
    }

    pub(super) fn is_all_done(&self) -> bool {
        self.waiting.is_empty() && self.batches.is_empty() && self.keys.is_empty() && self.marks.is_empty()
    }

    /// What somebody works on.
    pub(super) fn held(&self) -> impl Iterator<Item = Uuid> {
        self.held.iter().map(|one| one.taken.id)
    }

    /// What cancelling an item should answer.
    pub(super) fn canceling(&self, id: Uuid) -> Option<Canceled> {
        let is_waiting = self.waiting.iter().any(|one| one.id == id);
        let is_held = self.held.iter().any(|one| one.taken.id == id);
        match (is_waiting, is_held) {
            (true, _) => Some(Canceled::AtOnce),
            (_, true) => Some(Canceled::Asked),
            _ => self.ended.contains_key(&id).then_some(Canceled::TooLate),
        }
    }

    pub(super) fn check(
        &self,
        known: &BTreeMap<Uuid, Known>,
        before: &Self,
    ) -> std::result::Result<(), String> {
        must!(
            self.ended.len() == self.ended_count,
            "{} had ended, {} have",
            self.ended.len(),
            self.ended_count
        );
        self.check_places(known)?;
        self.check_ends(known, before)?;
        self.check_keys(known)?;
        self.check_lost(before)?;
        self.check_counts()
    }

    /// What a lease that is over had taken: an action was carried out, as far as anybody knows, and a mutation was not.
    fn check_lost(&self, before: &Self) -> std::result::Result<(), String> {
        for one in before.held.iter().filter(|one| !self.leases.contains(&one.lease)) {
            let (id, item) = (one.taken.id, &one.taken.item);
            let counted = item.attempts + u32::from(["act", "told_away"].contains(&item.function.as_str()));
            let goes_on = self.waiting.iter().find(|waiting| waiting.id == id);
            let is_right = match (goes_on, self.ended.get(&id)) {
                (Some(waiting), None) => waiting.item.attempts == counted,
                (None, Some(ended)) => ended.state == 2 || (ended.state == 1 && counted > item.attempts),
                _ => false,
            };
            must!(is_right, "{item:?} was lost, and became {goes_on:?}, {:?}", self.ended.get(&id));
        }
        Ok(())
    }

    /// Whether an item ended because it was cancelled.
    pub(super) fn is_canceled(&self, id: Uuid) -> bool {
        self.ended.get(&id).is_some_and(|ended| ended.state == 2)
    }

    /// Every item is in one place, and nothing else is anywhere.
    fn check_places(&self, known: &BTreeMap<Uuid, Known>) -> std::result::Result<(), String> {
        let mut places: BTreeMap<Uuid, usize> = BTreeMap::new();
        let ended = self.ended.keys().copied();
        for id in self.items().map(|(id, _, _)| id).chain(ended) {
            *places.entry(id).or_default() += 1;
        }
        for (id, known) in known {
            let count = places.remove(id).unwrap_or(0);
            must!(count == 1, "{id} is in {count} places: {known:?}");
        }
        must!(places.is_empty(), "nobody enqueued {places:?}");
        for one in &self.waiting {
            let is_early = one.state == waiting::READY && one.due_at > self.now_ms;
            must!(!is_early, "{} is ready before its time", one.id);
            must!(!self.cancels.contains(&one.id), "{} is to stop and waits to start anew", one.id);
        }
        for (id, pool, item) in self.items() {
            let known = &known[&id];
            let is_same =
                (POOLS[(pool - FIRST_POOL) as usize].0, &item.key) == (known.pool.as_str(), &known.key);
            must!(is_same, "{id} is another one: {known:?}, {item:?}");
            let most = known.max_attempts.unwrap_or(u32::MAX);
            must!(item.attempts < most, "{id} had all of its {most} executions and goes on");
        }
        Ok(())
    }

    /// What ended stays ended, and was told once; what a mutation did, it did once and only if it ended well.
    fn check_ends(&self, known: &BTreeMap<Uuid, Known>, before: &Self) -> std::result::Result<(), String> {
        for (id, ended) in &before.ended {
            must!(self.ended.get(id) == Some(ended), "{id} had ended as {ended:?}: {:?}", self.ended.get(id));
        }
        let mut tellings: BTreeMap<&str, usize> = BTreeMap::new();
        for known in known.values() {
            if let Some(of) = &known.completes {
                *tellings.entry(of).or_default() += 1;
            }
        }
        let going: BTreeSet<&str> =
            self.items().filter_map(|(_, _, item)| item.completes.as_deref()).collect();
        for (id, known) in known {
            let name = text(*id);
            let end = self.ended.get(id).map(|ended| ended.state);
            let effects = self.effects.get(&name).copied().unwrap_or(0);
            let expected = usize::from(known.function == "put" && end == Some(0));
            must!(effects == expected, "{id} ended {end:?} and took effect {effects} times");
            let told = self.told.get(&name).copied().unwrap_or(0);
            let telling = tellings.get(name.as_str()).copied().unwrap_or(0);
            let is_told = match (known.on_complete.as_deref(), end) {
                (Some("told"), Some(_)) => told + usize::from(going.contains(name.as_str())) == 1,
                (Some(_), Some(_)) => (told, telling) == (0, 1),
                _ => (told, telling) == (0, 0),
            };
            must!(is_told, "{id} ended {end:?} and was told {told} times, by {telling} items: {known:?}");
        }
        Ok(())
    }

    /// One item of a key is in front, all others are behind it in their order, and the key's row says how many.
    fn check_keys(&self, known: &BTreeMap<Uuid, Known>) -> std::result::Result<(), String> {
        let mut live: BTreeMap<(i64, &str), Vec<Live>> = BTreeMap::new();
        for one in &self.held {
            if let Some(key) = &one.taken.item.key {
                live.entry((one.pool, key)).or_default().push((one.taken.id, None));
            }
        }
        for one in &self.waiting {
            must!(one.key == one.item.key, "{} has the key {:?} in its row", one.id, one.key);
            if let Some(key) = &one.key {
                let behind = (one.state == waiting::BEHIND).then_some(one.place);
                live.entry((one.pool, key)).or_default().push((one.id, behind));
            } else {
                must!(one.state != waiting::BEHIND, "{} is behind nobody", one.id);
            }
        }
        must!(live.len() == self.keys.len(), "keys in use: {live:?}, rows: {:?}", self.keys);
        for ((pool, key), mut items) in live {
            let behind = items.iter().filter(|(_, behind)| behind.is_some()).count();
            must!(items.len() == behind + 1, "in front of {key} are {}: {items:?}", items.len() - behind);
            let said = self.keys.get(&(pool, key.to_owned()));
            must!(said == Some(&(behind as i64)), "behind {key} are {behind}, its row says {said:?}");
            items.sort_by_key(|(_, place)| *place);
            let order: Vec<usize> = items.iter().map(|(id, _)| known[id].order).collect();
            must!(order.is_sorted(), "{key} has lost its order: {order:?}");
        }
        Ok(())
    }

    /// What is counted without looking is what there is.
    fn check_counts(&self) -> std::result::Result<(), String> {
        for (number, ((name, at_once), depth)) in (FIRST_POOL..).zip(POOLS.iter().zip(&self.depths)) {
            let pending = self.waiting.iter().filter(|one| one.pool == number).count() as u64;
            let held = || self.held.iter().filter(|one| one.pool == number);
            let running = held().count() as u64;
            let counted = (depth.pending, depth.running);
            must!(counted == (pending, running), "{name} has {pending} and {running}, counted {counted:?}");
            must!(running <= u64::from(*at_once), "{running} run at once in {name}");
            let slots: i64 = self.slots.iter().filter(|((pool, _), _)| *pool == number).map(|(_, s)| s).sum();
            must!(slots <= i64::from(*at_once), "{slots} places of {name} are given out");
            for lease in self.leases.iter() {
                let own = held().filter(|one| one.lease == *lease).count() as i64;
                let slots = self.slots.get(&(number, *lease)).copied().unwrap_or(0);
                must!(own <= slots, "{own} run in {slots} places of {name} under {lease}");
            }
        }
        for one in &self.held {
            must!(self.leases.contains(&one.lease), "{} is held under a lease that is gone", one.taken.id);
        }
        must!(self.marks.is_subset(&self.batches), "marks without a batch: {:?}", self.marks);
        Ok(())
    }

    /// A claim took the most urgent that there were, in their order, and left nothing that it could have had.
    pub(super) fn check_claim(
        &self,
        pool: &str,
        cannot: &str,
        taken: &[Taken],
        most: usize,
    ) -> std::result::Result<(), String> {
        must!(taken.is_empty() || !self.paused.contains(pool), "{pool} is paused");
        let number = POOLS.iter().position(|(name, _)| *name == pool).map(|at| at as i64 + FIRST_POOL);
        let mut ready: Vec<&Waiting> = self
            .waiting
            .iter()
            .filter(|one| Some(one.pool) == number && one.state == waiting::READY)
            .filter(|one| one.item.function != cannot)
            .collect();
        ready.sort_by_key(|one| (one.item.priority, one.place));
        let front: Vec<Uuid> = ready.iter().take(taken.len()).map(|one| one.id).collect();
        let ids: Vec<Uuid> = taken.iter().map(|taken| taken.id).collect();
        must!(ids == front, "taken were {ids:?}, in front are {front:?}");
        let at_once =
            POOLS.iter().find(|(name, _)| *name == pool).map_or(0, |(_, at_once)| *at_once as usize);
        must!(taken.len() <= most.min(at_once), "{} of {most} were taken", taken.len());
        Ok(())
    }
}

fn sum(counts: &BTreeMap<String, usize>) -> i64 {
    counts.values().sum::<usize>() as i64
}

fn add(counts: &mut BTreeMap<String, usize>, more: &BTreeMap<String, usize>) {
    more.iter().for_each(|(id, count)| *counts.entry(id.clone()).or_default() += count);
}

async fn read(tx: Tx, (since_ms, ended, effects, told): (i64, i64, i64, i64)) -> Result<Sight> {
    let mut sight = Sight::default();
    for row in
        tx.query("SELECT place, id, pool, state, due_at, work_key, item FROM mainstay_work", &[]).await?
    {
        sight.waiting.push(Waiting {
            place: row.get(0)?,
            id: uuid(row.get(1)?),
            pool: row.get(2)?,
            state: row.get(3)?,
            due_at: row.get(4)?,
            key: row.get(5)?,
            item: serde_json::from_str(row.get(6)?).expect("an item"),
        });
    }
    let batches = "SELECT batch.number, batch.lease, batch.pool, batch.ids, batch.items, marks.done \
         FROM mainstay_batches AS batch LEFT JOIN mainstay_batch_marks AS marks ON marks.batch = batch.number";
    for row in tx.query(batches, &[]).await? {
        let (batch, lease, pool): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let taken = unpack(row.get(3)?, row.get(4)?)?;
        let done: Option<Vec<u8>> = row.get(5)?;
        let held = Held { batch, lease, size: taken.len(), done: done.unwrap_or_default() };
        let undone = taken.into_iter().filter(|taken| !held.is_done(taken.index));
        sight.held.extend(undone.map(|taken| Taking { pool, lease, taken }));
        sight.batches.insert(batch);
    }
    for row in tx.query("SELECT pool, work_key, behind FROM mainstay_work_keys", &[]).await? {
        sight.keys.insert((row.get(0)?, row.get(1)?), row.get(2)?);
    }
    for row in tx.query("SELECT pool, lease, slots FROM mainstay_slots", &[]).await? {
        sight.slots.insert((row.get(0)?, row.get(1)?), row.get(2)?);
    }
    let count: i64 = tx.query_one("SELECT count(*) FROM mainstay_ended", &[]).await?.get(0)?;
    sight.ended_count = count as usize;
    // Once in a while all of it, since what ended must not change either.
    let since_ms = if ended % 16 == 0 { 0 } else { since_ms };
    let recently = "SELECT id, state, record FROM mainstay_ended WHERE ended_at >= $1";
    for row in tx.query(recently, params![since_ms]).await? {
        sight.ended.insert(uuid(row.get(0)?), Ended { state: row.get(1)?, record: row.get(2)? });
    }
    for row in tx.query("SELECT name FROM mainstay_pools WHERE is_paused = 1", &[]).await? {
        sight.paused.insert(row.get(0)?);
    }
    for row in tx.query("SELECT id FROM mainstay_work_cancels", &[]).await? {
        sight.cancels.insert(uuid(row.get(0)?));
    }
    sight.marks = numbers(&tx, "SELECT batch FROM mainstay_batch_marks").await?;
    sight.leases = numbers(&tx, "SELECT number FROM mainstay_leases").await?;
    sight.effects = counts(&tx, "SELECT id FROM effects WHERE rowid > $1", effects).await?;
    sight.told = counts(&tx, "SELECT id FROM told WHERE rowid > $1", told).await?;
    sight.letters = tx.query_one("SELECT count(*) FROM mainstay_letters", &[]).await?.get(0)?;
    Ok(sight)
}

async fn numbers(tx: &Tx, sql: &str) -> Result<BTreeSet<i64>> {
    tx.query(sql, &[]).await?.iter().map(|row| row.get(0)).collect()
}

async fn counts(tx: &Tx, sql: &str, after: i64) -> Result<BTreeMap<String, usize>> {
    let mut counts = BTreeMap::new();
    for row in tx.query(sql, params![after]).await? {
        *counts.entry(row.get(0)?).or_default() += 1;
    }
    Ok(counts)
}
