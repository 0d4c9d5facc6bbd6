//! Who there is, and what a step may be.

use super::shop::{FIRST_POOL, POOLS, TABLES, any_item, functions};
use super::sight::{Known, Sight};
use crate::claim::{Group, Held, Taken, Wish, claim, read};
use crate::directory::Directory;
use crate::engine::parts::{Blame, adjust, blame, make_ready, reap_in, suspect, tidy};
use crate::enqueue::parse;
use crate::functions::{Body, Cancel};
use crate::next::Outcome;
use crate::settle::{Ending, Plan, Settlement, settle};
use crate::work::Ground;
use crate::{COMPONENT, Canceled, Error, Failure, LetterFilter, NewWork, Pool, Work, lease};
use mainstay_core::clock::{Clock, ManualClock};
use mainstay_core::failpoints::{Action, Failpoints, Point};
use mainstay_core::random::{Random, SeededRandom};
use mainstay_store::{Options, Tx};
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

const LEASE_MS: i64 = 1_000;
const WORKERS: u64 = 3;

/// What has happened, so that one can see whether anything did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) enqueued: u64,
    pub(super) duplicates: u64,
    pub(super) claimed: u64,
    pub(super) settled: u64,
    pub(super) author_failed: u64,
    pub(super) stale: u64,
    pub(super) reaped: u64,
    pub(super) canceled: u64,
    pub(super) asked: u64,
    pub(super) letters: u64,
    pub(super) retried: u64,
}

impl Tally {
    fn numbers(&mut self) -> [&mut u64; 11] {
        let Self { enqueued, duplicates, claimed, settled, author_failed, .. } = self;
        let Self { stale, reaped, canceled, asked, letters, retried, .. } = self;
        [
            enqueued,
            duplicates,
            claimed,
            settled,
            author_failed,
            stale,
            reaped,
            canceled,
            asked,
            letters,
            retried,
        ]
    }

    pub(super) fn is_telling(mut self) -> bool {
        self.numbers().into_iter().all(|number| *number > 20)
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, mut other: Self) {
        self.numbers().into_iter().zip(other.numbers()).for_each(|(sum, number)| *sum += *number);
    }
}

/// A batch in a worker's hands.
struct Hand {
    lease: i64,
    pool: usize,
    held: Held,
    items: Vec<(Taken, Cancel)>,
}

struct Worker {
    lease: i64,
    /// Also those of leases that it has lost, and would still like to end.
    hands: Vec<Hand>,
    /// A function that it does not know.
    cannot: &'static str,
}

pub(super) struct World {
    work: Work,
    ground: Arc<Ground>,
    clock: Arc<ManualClock>,
    random: Arc<SeededRandom>,
    workers: Vec<Worker>,
    /// Until when leases last, as far as they were not taken away.
    leases: BTreeMap<i64, i64>,
    known: BTreeMap<Uuid, Known>,
    dedupe: BTreeMap<(usize, String), (Uuid, i64)>,
    /// What was just ended by somebody who had heard that it is to stop.
    stopped: Vec<Uuid>,
    is_fenced: bool,
    before: Sight,
    tally: Tally,
}

type Verdict<T = ()> = Result<T, String>;

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl World {
    pub(super) async fn new(seed: u64) -> Self {
        let (clock, random) =
            (Arc::new(ManualClock::at(1_767_225_600_000)), Arc::new(SeededRandom::new(seed)));
        let options = Options::new("sqlite::memory:").clock(clock.clone()).component(COMPONENT);
        let options = options.random(Arc::new(SeededRandom::new(!seed))).failpoints(Failpoints::default());
        let store = options.open().await.unwrap();
        let tables = async |tx: Tx| {
            for sql in TABLES {
                tx.execute(sql, &[]).await?;
            }
            Ok(())
        };
        store.transact(tables).await.unwrap();
        let work = Work::open_with_lease(&store, functions(), Duration::from_millis(LEASE_MS as u64));
        let work = work.await.unwrap();
        for (name, at_once) in POOLS {
            work.pool(Pool::new(name).max_parallelism(at_once)).await.unwrap();
        }
        let mut world = Self {
            ground: work.ground().clone(),
            work,
            clock,
            random,
            workers: Vec::new(),
            leases: BTreeMap::new(),
            known: BTreeMap::new(),
            dedupe: BTreeMap::new(),
            stopped: Vec::new(),
            is_fenced: true,
            before: Sight::default(),
            tally: Tally::default(),
        };
        for number in 0..WORKERS {
            let lease = world.take_lease().await.unwrap();
            let cannot = if number == 0 { "act" } else { "" };
            world.workers.push(Worker { lease, hands: Vec::new(), cannot });
        }
        world
    }

    /// Lets whoever lost its lease go on.
    pub(super) fn take_fence_away(&mut self) {
        self.is_fenced = false;
        self.work.store().failpoints().arm(Point::WorkFence, Action::Error, 0, u64::MAX);
    }

    /// Looks at everything, and remembers it.
    pub(super) async fn look(&mut self) -> Verdict {
        let sight = Sight::of(&self.work, self.clock.now_ms(), &self.before).await;
        sight.learn(&mut self.known);
        sight.check(&self.known, &self.before)?;
        if let Some(going) = self.stopped.drain(..).find(|id| !sight.is_canceled(*id)) {
            return Err(format!("{going} was to stop, and did not"));
        }
        self.before = sight;
        Ok(())
    }

    /// Does something; what it was.
    pub(super) async fn step(&mut self) -> Verdict<String> {
        let (number, worker) = (self.random.below(100), self.random.below(WORKERS) as usize);
        match number {
            0..18 => self.enqueue().await,
            18..38 => self.claim(worker).await,
            38..66 => self.end_some(worker).await,
            66..73 => self.extend(worker).await,
            73..79 => self.reap().await,
            79..87 => Ok(self.advance()),
            87..91 => self.make_ready().await,
            91..94 => self.cancel().await,
            94..95 => self.retry_letter().await,
            95..96 => {
                // Dead; another one begins in its place.
                self.workers[worker].hands.clear();
                self.begin_anew(worker).await
            }
            96..97 => self.begin_anew(worker).await,
            97..98 => self.stop(worker).await,
            98..99 => self.pause().await,
            _ => {
                let run = async |tx: Tx, ground: Arc<Ground>| tidy(&ground, &tx).await;
                self.transact(run).await?;
                Ok("tidy".to_owned())
            }
        }
    }

    async fn transact<T: Send + 'static, F: Future<Output = mainstay_store::Result<T>> + Send + 'static>(
        &self,
        run: impl Fn(Tx, Arc<Ground>) -> F + Send + 'static,
    ) -> Verdict<T> {
        self.work.store().transact_with(self.ground.clone(), run).await.map_err(said)
    }

    fn is_over(&self, lease: i64) -> bool {
        self.leases.get(&lease).is_none_or(|until| *until <= self.clock.now_ms())
    }

    // --- leases -------------------------------------------------------------------------------------------------

    async fn take_lease(&mut self) -> Verdict<i64> {
        let take = async |tx: Tx, _: Arc<Ground>| lease::take(&tx, "somebody", LEASE_MS).await;
        let lease = self.transact(take).await?;
        self.leases.insert(lease, self.clock.now_ms() + LEASE_MS);
        Ok(lease)
    }

    /// Works on under a new lease, with what it had under the old one still in its hands.
    async fn begin_anew(&mut self, worker: usize) -> Verdict<String> {
        self.workers[worker].lease = self.take_lease().await?;
        Ok(format!("worker {worker} begins anew"))
    }

    async fn extend(&mut self, worker: usize) -> Verdict<String> {
        let lease = self.workers[worker].lease;
        let extend = move |tx: Tx, _: Arc<Ground>| async move { lease::extend(&tx, lease, LEASE_MS).await };
        let is_extended = self.transact(extend).await?;
        if is_extended == self.is_over(lease) {
            return Err(format!("lease {lease} is over: {}, extended: {is_extended}", self.is_over(lease)));
        }
        if !is_extended {
            return self.begin_anew(worker).await;
        }
        self.leases.insert(lease, self.clock.now_ms() + LEASE_MS);
        Ok(format!("worker {worker} extends"))
    }

    async fn reap(&mut self) -> Verdict<String> {
        let expired = self.transact(async |tx: Tx, _: Arc<Ground>| lease::expired(&tx).await).await?;
        for lease in &expired {
            self.reap_one(*lease).await?;
        }
        Ok(format!("reaping {expired:?}"))
    }

    async fn reap_one(&mut self, lease: i64) -> Verdict {
        let run = move |tx: Tx, ground: Arc<Ground>| async move {
            reap_in(&ground, &tx, lease, &Outcome::Lost).await
        };
        self.transact(run).await?;
        self.leases.remove(&lease);
        self.tally.reaped += 1;
        Ok(())
    }

    async fn stop(&mut self, worker: usize) -> Verdict<String> {
        let lease = self.workers[worker].lease;
        let run = move |tx: Tx, _: Arc<Ground>| async move { lease::give_up(&tx, lease).await };
        self.transact(run).await?;
        self.reap_one(lease).await?;
        self.begin_anew(worker).await
    }

    // --- time and orders ----------------------------------------------------------------------------------------

    fn advance(&self) -> String {
        let by = self.random.below(LEASE_MS as u64) as i64;
        self.clock.advance(by);
        format!("{by} ms pass")
    }

    async fn make_ready(&self) -> Verdict<String> {
        self.transact(async |tx: Tx, ground: Arc<Ground>| make_ready(&ground, &tx).await).await?;
        Ok("time is looked at".to_owned())
    }

    async fn pause(&self) -> Verdict<String> {
        let (name, _) = POOLS[self.random.below(2) as usize];
        let is_paused = self.random.below(3) == 0;
        let paused = if is_paused { self.work.pause(name).await } else { self.work.resume(name).await };
        paused.map_err(said)?;
        Ok(format!("{name} is paused: {is_paused}"))
    }

    async fn enqueue(&mut self) -> Verdict<String> {
        let count = 1 + self.random.below(4);
        let (pools, items): (Vec<usize>, Vec<NewWork>) = (0..count).map(|_| any_item(&*self.random)).unzip();
        let enqueued = self.work.enqueue_all(items.clone()).await.map_err(said)?;
        let now = self.clock.now_ms();
        for ((pool, new), answer) in pools.into_iter().zip(&items).zip(enqueued) {
            let id = parse(&answer.work_id).ok_or("no id")?;
            if let Some((key, window)) = &new.dedupe {
                let entry = (pool, key.clone());
                let earlier = self.dedupe.get(&entry).filter(|(_, until)| *until > now).map(|(id, _)| *id);
                if answer.is_duplicate != earlier.is_some() || earlier.is_some_and(|earlier| earlier != id) {
                    return Err(format!("{entry:?} is a repetition of {earlier:?}, said: {answer:?}"));
                }
                if earlier.is_some() {
                    self.tally.duplicates += 1;
                    continue;
                }
                self.dedupe.insert(entry, (id, now + window.as_millis() as i64));
            } else if answer.is_duplicate {
                return Err(format!("{id} is no repetition"));
            }
            self.know(id, new);
        }
        Ok(format!("enqueueing {count}"))
    }

    fn know(&mut self, id: Uuid, new: &NewWork) {
        self.tally.enqueued += 1;
        let order = self.known.len();
        self.known.insert(id, Known::of(new, order));
    }

    async fn cancel(&mut self) -> Verdict<String> {
        // Tellings are left alone: whether they arrive is looked at.
        let is_of_user = |id: &Uuid| self.known[id].completes.is_none();
        let ids: Vec<Uuid> = match self.random.below(2) {
            0 => self.before.held().filter(is_of_user).collect(),
            _ => self.known.keys().copied().filter(is_of_user).collect(),
        };
        let Some(id) = ids.get(self.random.below(ids.len() as u64) as usize).copied() else {
            return Ok("nothing to cancel".to_owned());
        };
        let answer = self.work.cancel(&crate::enqueue::text(id)).await.map_err(said)?;
        let expected = self.before.canceling(id);
        if Some(answer) != expected {
            return Err(format!("cancelling {id} answers {answer:?} instead of {expected:?}"));
        }
        match answer {
            Canceled::AtOnce => self.tally.canceled += 1,
            Canceled::Asked => self.tally.asked += 1,
            Canceled::TooLate => {}
        }
        // Whoever works on it may hear of it, or not in time.
        let items = self.workers.iter().flat_map(|worker| &worker.hands).flat_map(|hand| &hand.items);
        if answer == Canceled::Asked && self.random.below(2) == 0 {
            items.filter(|(taken, _)| taken.id == id).for_each(|(_, cancel)| cancel.ask());
        }
        Ok(format!("cancelling {id}: {answer:?}"))
    }

    async fn retry_letter(&mut self) -> Verdict<String> {
        let letters = self.work.letters(LetterFilter::default(), 10).await.map_err(said)?;
        let Some(letter) = letters.iter().find(|letter| letter.kind == "work") else {
            return Ok("no letter".to_owned());
        };
        let id = self.work.retry_letter(&letter.work_id).await.map_err(said)?;
        let first = parse(&letter.work_id).and_then(|id| self.known.get(&id)).ok_or("an unknown letter")?;
        let mut again = first.clone();
        again.order = self.known.len();
        self.known.insert(parse(&id).ok_or("no id")?, again);
        self.tally.retried += 1;
        Ok(format!("trying {} again", letter.work_id))
    }

    // --- work ---------------------------------------------------------------------------------------------------

    async fn claim(&mut self, worker: usize) -> Verdict<String> {
        let pool = self.random.below(2) as usize;
        let most = 1 + self.random.below(6) as usize;
        self.claim_from(worker, pool, most).await
    }

    async fn claim_from(&mut self, worker: usize, pool: usize, most: usize) -> Verdict<String> {
        let Worker { lease, hands, cannot } = &self.workers[worker];
        let (lease, cannot) = (*lease, *cannot);
        let running = hands.iter().filter(|hand| hand.pool == pool).map(|hand| hand.items.len()).sum();
        let take = move |tx: Tx, ground: Arc<Ground>| async move {
            let number = Directory::pool(&tx, POOLS[pool].0).await??;
            let lanes = Directory::lanes_of(&tx, number, |function| function != cannot).await?;
            let wish =
                Wish { pool: number, lease, lanes: Arc::new(Group::all(&ground, &lanes)), running, most };
            claim(&ground, &tx, &wish).await
        };
        let claimed = self.work.store().transact_with(self.ground.clone(), take).await;
        let claimed = match claimed.map_err(Error::from) {
            Ok(claimed) => claimed,
            Err(Error::LeaseLost(_)) if self.is_over(lease) => return self.begin_anew(worker).await,
            Err(error) => return Err(said(error)),
        };
        let count = claimed.texts.len();
        let taken: Vec<Taken> = read(claimed.texts).collect();
        self.before.check_claim(POOLS[pool].0, cannot, &taken, most)?;
        self.tally.claimed += count as u64;
        if let Some(held) = claimed.held {
            let items = taken.into_iter().map(|taken| (taken, Cancel::default())).collect();
            self.workers[worker].hands.push(Hand { lease, pool, held, items });
        }
        Ok(format!("worker {worker} takes {count} of {} under {lease}", POOLS[pool].0))
    }

    fn any_plan(&self, taken: &Taken, cancel: &Cancel, is_good: bool) -> Plan {
        let functions = self.ground.functions();
        let function = functions.get(&taken.item.function);
        let is_mutation = function.is_some_and(|function| matches!(function.body, Body::Mutation(_)));
        match self.random.below(10) {
            _ if is_mutation => Plan::Run,
            _ if cancel.is_asked() => Plan::Ended(Outcome::Canceled),
            0..2 if !is_good => Plan::Ended(Outcome::Failed(Failure::retryable("again"))),
            2 if !is_good => Plan::Ended(Outcome::Failed(Failure::permanent("never"))),
            3 if !is_good => Plan::Ended(Outcome::Unstarted),
            _ => Plan::Ended(Outcome::Success(RawValue::NULL.to_owned())),
        }
    }

    /// Ends some of what a worker has in its hands, whether or not it still may.
    async fn end_some(&mut self, worker: usize) -> Verdict<String> {
        let hands = &self.workers[worker].hands;
        let Some(first) = hands.get(self.random.below(hands.len() as u64) as usize) else {
            return Ok(format!("worker {worker} has nothing to end"));
        };
        let (lease, pool, half) = (first.lease, first.pool, self.random.below(3));
        let mut done = Vec::new();
        for hand in hands.iter().filter(|hand| (hand.lease, hand.pool) == (lease, pool)) {
            for (taken, cancel) in hand.items.iter().filter(|_| self.random.below(3) >= half) {
                let plan = self.any_plan(taken, cancel, false);
                let ending = Ending::new(taken.clone(), plan, cancel.clone()).prepared();
                done.push((hand.held.batch, ending));
            }
        }
        self.end(worker, lease, pool, done).await
    }

    /// Ends them as a settler does: whoever fails in it is settled again without that.
    async fn end(
        &mut self,
        worker: usize,
        lease: i64,
        pool: usize,
        mut done: Vec<(i64, Ending)>,
    ) -> Verdict<String> {
        let count = done.len();
        if count == 0 {
            return Ok(format!("worker {worker} ends nothing"));
        }
        loop {
            let batches: BTreeSet<i64> = done.iter().map(|(batch, _)| *batch).collect();
            let hands = self.workers[worker].hands.iter();
            let held = hands.map(|hand| &hand.held).filter(|held| batches.contains(&held.batch)).cloned();
            let settlement = Arc::new(Settlement {
                pool: pool as i64 + FIRST_POOL,
                pool_name: POOLS[pool].0.to_owned(),
                settings: Arc::new(Pool::new(POOLS[pool].0)),
                lease: Some(lease),
                endings: done.clone(),
                held: held.collect(),
                progress: Arc::default(),
            });
            let of = settlement.clone();
            let run = move |tx: Tx, ground: Arc<Ground>| {
                let of = of.clone();
                async move { settle(&ground, &tx, &of).await }
            };
            let settled = self.work.store().transact_with(self.ground.clone(), run).await;
            let Err(error) = settled.map_err(Error::from) else { break };
            let suspect = suspect(&self.ground.functions(), &settlement.endings[0].1);
            match blame(&error, settlement.endings.len(), suspect, &settlement.progress) {
                Blame::Lease if self.is_over(lease) => {
                    self.tally.stale += count as u64;
                    self.workers[worker].hands.retain(|hand| hand.lease != lease);
                    return Ok(format!("worker {worker} may not end {count} under {lease}"));
                }
                Blame::Author(failed) => {
                    self.tally.author_failed += 1;
                    adjust(&mut done[failed.index].1, &failed);
                }
                _ => return Err(format!("ending {count} under {lease}: {error}")),
            }
        }
        // Without the fence, the tables must tell.
        if self.is_over(lease) && self.is_fenced {
            return Err(format!("{count} were ended under {lease}, which is over"));
        }
        self.tally.settled += count as u64;
        let stopped = done.iter().filter(|(_, ending)| ending.cancel.is_asked());
        self.stopped.extend(stopped.map(|(_, ending)| ending.taken.id));
        let ids: BTreeSet<Uuid> = done.iter().map(|(_, ending)| ending.taken.id).collect();
        for hand in &mut self.workers[worker].hands {
            let (ended, left) = std::mem::take(&mut hand.items)
                .into_iter()
                .partition::<Vec<_>, _>(|(taken, _)| ids.contains(&taken.id) && hand.lease == lease);
            hand.items = left;
            if let Some(done) = hand.held.with_done(ended.iter().map(|(taken, _)| taken.index)) {
                hand.held.done = done;
            }
        }
        self.workers[worker].hands.retain(|hand| !hand.items.is_empty());
        Ok(format!("worker {worker} ends {count} of {} under {lease}", POOLS[pool].0))
    }

    // --- the end ------------------------------------------------------------------------------------------------

    /// Lets one worker do all that is left.
    pub(super) async fn drain(mut self) -> Verdict<Tally> {
        for (name, _) in POOLS {
            self.work.resume(name).await.map_err(said)?;
        }
        self.workers.iter_mut().for_each(|worker| worker.hands.clear());
        let last = self.workers.len() - 1;
        for _ in 0..200 {
            self.clock.advance(LEASE_MS);
            self.begin_anew(last).await?;
            self.reap().await?;
            self.make_ready().await?;
            self.look().await?;
            for pool in 0..POOLS.len() {
                self.claim_from(last, pool, 100).await?;
            }
            for hand in 0..self.workers[last].hands.len() {
                // Those that have ended leave no gap behind.
                let Some(hand) = self.workers[last].hands.get(hand.min(self.workers[last].hands.len() - 1))
                else {
                    break;
                };
                let plans = hand.items.iter().map(|(taken, cancel)| {
                    let plan = self.any_plan(taken, cancel, true);
                    let ending = Ending::new(taken.clone(), plan, cancel.clone()).prepared();
                    (hand.held.batch, ending)
                });
                let (lease, pool, done) = (hand.lease, hand.pool, plans.collect());
                self.end(last, lease, pool, done).await?;
            }
            self.look().await?;
            if self.before.is_all_done() {
                self.tally.letters = self.before.letters;
                return Ok(self.tally);
            }
        }
        Err(format!("something is never done: {:?}", self.before))
    }
}
