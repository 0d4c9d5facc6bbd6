//! Takes items of one pool and hands them to their functions.

use super::floor::{Entrance, Execution, Ticket};
use super::settler::{self, Done};
use super::{Bell, Desk, Shared};
use crate::claim::{Claimed, Group, MAX_CLAIM, Taken, Wish, claim, claimed_after, read};
use crate::directory::{Directory, lanes_topic, pool_topic};
use crate::error::{Error, Result};
use crate::fronts::{self, look_behind, look_between};
use crate::functions::{ActionBody, Body, Call, Cancel};
use crate::item::UNREADABLE;
use crate::next::Outcome;
use crate::settle::{Ending, Plan, call};
use crate::span;
use crate::work::Ground;
use futures_util::FutureExt;
use mainstay_core::circuit::{Admitted, Circuit, Ended, Gate, Rejected};
use mainstay_core::failure::{Class, Failure};
use mainstay_core::names::Reserved;
use mainstay_store::{Listener, Tx};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, watch};
use tracing::Instrument;

/// How long to wait for a wake-up before looking by oneself. The keeper looks far more often, for all pools at once.
const LOOK_AGAIN: Duration = Duration::from_secs(300);
/// After this time without work a pool is idle: its attendant and its settler are dropped until it is woken. One of which
/// nothing was taken is idle at once.
const IDLE_AFTER: Duration = Duration::from_secs(10);

/// How often from the very front while there is always something to do; while there is not, the keeper does.
const SWEEP_ALL_EVERY: Duration = Duration::from_secs(300);

/// Wake-up of a pool's attendant. An idle pool holds nothing else in memory.
struct Alarm {
    bell: Arc<Bell>,
    work: Listener,
    look: watch::Receiver<u64>,
}

/// Serves one pool until the engine stops and everything has ended, or the pool is deleted.
pub(super) async fn attend(shared: Arc<Shared>, pool: i64, bell: Arc<Bell>) {
    let work = shared.ground.store.listen(pool_topic(pool));
    let mut alarm = Alarm { bell, work, look: shared.look.subscribe() };
    let (mut last_batch, mut from_front) = (0, false);
    while !shared.is_stopping() && !alarm.bell.is_deleted() {
        // Boxed, so that an idle pool has no room for it.
        last_batch = Box::pin(serve(&shared, pool, &mut alarm, (last_batch, from_front))).await;
        from_front = tokio::select! {
            is_woken = alarm.work.woken(LOOK_AGAIN) => !is_woken,
            // The keeper has seen something, wherever that is.
            () = alarm.bell.nudge.notified() => true,
            _ = alarm.look.changed() => true,
            () = shared.stopped() => false,
        };
    }
}

/// Serves one pool until it is idle or served no more, after the batch that was taken last, at first from the very front if
/// asked; the number of the batch that was taken last then.
async fn serve(
    shared: &Arc<Shared>,
    pool: i64,
    alarm: &mut Alarm,
    (last_batch, from_front): (i64, bool),
) -> i64 {
    let desk = Arc::new(Desk {
        pool,
        name: alarm.bell.name.clone(),
        held: Mutex::default(),
        settings: Mutex::default(),
        running: Default::default(),
        freed: Notify::new(),
    });
    let (done, ended) = unbounded_channel();
    let settling = tokio::spawn(settler::settle_all(shared.clone(), desk.clone(), ended));
    let mut attendant = Attendant {
        alarm,
        new_lanes: shared.ground.store.listen(lanes_topic()),
        lanes: Vec::new(),
        probe_lanes: Vec::new(),
        is_probing: false,
        has_taken: false,
        sweep_all_at: Instant::now() + SWEEP_ALL_EVERY,
        at_once: MAX_CLAIM,
        last_batch,
        shared: shared.clone(),
        desk,
        done,
    };
    attendant.serve(from_front).await;
    let last_batch = attendant.last_batch;
    // The settler ends when every sender is dropped; of an idle pool nothing runs, so that is at once.
    drop(attendant);
    drop(settling.await);
    last_batch
}

struct Attendant<'a> {
    shared: Arc<Shared>,
    desk: Arc<Desk>,
    done: UnboundedSender<Done>,
    alarm: &'a mut Alarm,
    new_lanes: Listener,
    /// In groups of the same priority, the most urgent first.
    lanes: Vec<Vec<i64>>,
    /// Lanes of functions whose circuits are half open: of these one item is taken, and it is the probe.
    probe_lanes: Vec<Vec<i64>>,
    /// Whether such an item was taken and nothing has been heard since.
    is_probing: bool,
    /// Whether anything was taken since the pool was idle.
    has_taken: bool,
    /// When is to be looked from the very front.
    sweep_all_at: Instant,
    at_once: usize,
    /// The number of the batch that was taken last.
    last_batch: i64,
}

/// Why an attendant does not claim at this moment.
enum Rest {
    /// There was more than it could take, or may be.
    No,
    /// There was nothing left.
    UntilWork,
    /// There was nothing left where it looked.
    UntilSweep,
    /// Everything that may run does.
    UntilFreed,
    /// The pool's rate.
    For(Duration),
}

impl Attendant<'_> {
    async fn serve(&mut self, mut from_front: bool) {
        let mut are_lanes_known = false;
        while !self.shared.is_stopping() && !self.alarm.bell.is_deleted() {
            let lease = self.shared.lease.load(Ordering::Acquire);
            // Also while there is always more to do: a new lane may be the most urgent of all.
            are_lanes_known &= !self.new_lanes.is_woken();
            if self.alarm.look.has_changed().unwrap_or(false) {
                self.alarm.look.mark_unchanged();
                are_lanes_known = false;
            }
            if !are_lanes_known {
                match self.read_lanes().await {
                    Ok([lanes, probe_lanes]) => {
                        (self.lanes, self.probe_lanes) = (lanes, probe_lanes);
                        self.is_probing = false;
                        are_lanes_known = true;
                    }
                    Err(error) => {
                        self.shared.recover(lease, &error, "reading the lanes").await;
                        continue;
                    }
                }
            }
            if std::mem::take(&mut from_front) {
                look_from_front(&self.shared, self.all_lanes()).await;
            }
            let claiming = async {
                self.look_behind().await?;
                self.claim_probe(lease).await?;
                self.claim(lease).await
            };
            let rest = match claiming.await {
                Ok(rest) => rest,
                Err(error) => {
                    if matches!(&error, Error::Store(error) if error.is_outcome_unknown()) {
                        self.adopt(lease).await;
                    }
                    self.shared.recover(lease, &error, "claiming").await;
                    continue;
                }
            };
            if self.rest(rest, &mut are_lanes_known).await {
                return;
            }
        }
    }

    /// The lanes that this node may take from, and those from which it may take a probe.
    async fn read_lanes(&self) -> Result<[Vec<Vec<i64>>; 2]> {
        let read = async |tx: Tx, (ground, pool): (Arc<Ground>, i64)| {
            let functions = ground.functions();
            let mut lanes = [Vec::new(), Vec::new()];
            for (lanes, gate) in lanes.iter_mut().zip([Gate::Open, Gate::OneProbe]) {
                let may = |function: &str| functions.gate(function) == Some(gate);
                *lanes = Directory::lanes_of(&tx, pool, may).await?;
            }
            Ok(lanes)
        };
        let context = (self.shared.ground.clone(), self.desk.pool);
        Ok(self.shared.ground.store.read_with(context, read).await?)
    }

    /// Takes one item of those whose circuits are half open. The others wait until it is known how that went, which the
    /// circuit tells.
    async fn claim_probe(&mut self, lease: i64) -> Result<()> {
        let running = self.desk.running.load(Ordering::Acquire);
        if self.probe_lanes.is_empty() || running >= self.at_once {
            return Ok(());
        }
        let claimed = self.take(lease, &self.probe_lanes, running, 1).await?;
        if !claimed.texts.is_empty() {
            (self.probe_lanes, self.is_probing) = (Vec::new(), true);
        }
        self.hand_out(claimed);
        Ok(())
    }

    async fn take(&self, lease: i64, lanes: &[Vec<i64>], running: usize, most: usize) -> Result<Claimed> {
        let lanes = Arc::new(Group::all(&self.shared.ground, lanes));
        let wish = Wish { pool: self.desk.pool, lease, lanes, running, most };
        let take = async |tx: Tx, (ground, wish): (Arc<Ground>, Wish)| claim(&ground, &tx, &wish).await;
        let context = (self.shared.ground.clone(), wish);
        let claimed = self.shared.ground.store.transact_with(context, take).await?;
        if let Some(settings) = &claimed.settings {
            *self.desk.settings.lock().unwrap_or_else(PoisonError::into_inner) = Some(settings.clone());
        }
        Ok(claimed)
    }

    async fn claim(&mut self, lease: i64) -> Result<Rest> {
        let running = self.desk.running.load(Ordering::Acquire);
        let most = self.at_once.saturating_sub(running).min(MAX_CLAIM);
        if self.lanes.is_empty() {
            return Ok(self.rest_of_lanes());
        }
        if most == 0 {
            return Ok(Rest::UntilFreed);
        }
        let claimed = self.take(lease, &self.lanes, running, most).await?;
        if let Some(settings) = &claimed.settings {
            self.at_once = settings.max_parallelism as usize;
        }
        let rest = match claimed.wait_ms {
            Some(wait_ms) if !claimed.is_more => Rest::For(Duration::from_millis(wait_ms as u64)),
            _ if claimed.is_more => Rest::No,
            _ => self.rest_of_lanes(),
        };
        self.hand_out(claimed);
        Ok(rest)
    }

    /// All lanes that something may be taken from.
    fn all_lanes(&self) -> Vec<i64> {
        self.lanes.iter().chain(&self.probe_lanes).flatten().copied().collect()
    }

    /// How long to rest when nothing is left: not long while somebody may come late.
    fn rest_of_lanes(&self) -> Rest {
        let now = Instant::now();
        let is_settled = |lane: i64| {
            let (low, high) = self.shared.ground.fronts.unsettled(lane, now);
            low == high
        };
        if self.all_lanes().into_iter().all(is_settled) { Rest::UntilWork } else { Rest::UntilSweep }
    }

    /// Looks for those who came late to a place that was passed by.
    async fn look_behind(&mut self) -> Result<()> {
        let now = Instant::now();
        let (ground, lanes) = (&self.shared.ground, self.all_lanes());
        if !ground.fronts.is_look_due(&lanes, now) {
            return Ok(());
        }
        if now >= self.sweep_all_at {
            self.sweep_all_at = now + SWEEP_ALL_EVERY;
            // It may take long, and must keep nobody from working.
            let (shared, desk, lanes) = (self.shared.clone(), self.desk.clone(), lanes.clone());
            tokio::spawn(async move {
                look_from_front(&shared, lanes).await;
                desk.freed.notify_one();
            });
        }
        let look =
            async |tx: Tx, (ground, lanes): (Arc<Ground>, Vec<i64>)| look_behind(&ground, &tx, &lanes).await;
        Ok(ground.store.read_with((ground.clone(), lanes), look).await?)
    }

    /// A claim may have been committed without anybody having heard of it.
    async fn adopt(&mut self, lease: i64) {
        let find = async |tx: Tx, (ground, of): (Arc<Ground>, (i64, i64, i64))| {
            claimed_after(&ground, &tx, of).await
        };
        loop {
            let context = (self.shared.ground.clone(), (self.desk.pool, lease, self.last_batch));
            match self.shared.ground.store.transact_with(context, find).await.map_err(Error::from) {
                Ok(found) => return found.into_iter().for_each(|claimed| self.hand_out(claimed)),
                Err(Error::LeaseLost(_)) => return,
                Err(_) if self.shared.is_stopping() => return,
                Err(error) => self.shared.endure(&error, "looking for a claim of unknown outcome").await,
            }
        }
    }

    fn hand_out(&mut self, claimed: Claimed) {
        let Claimed { texts, held: Some(held), now_ms, .. } = claimed else { return };
        let figures = &self.shared.ground.figures;
        figures.taken.add(texts.len() as u64);
        figures.claim_size.record(texts.len() as u64);
        figures.running.add(texts.len() as i64);
        self.desk.running.fetch_add(texts.len(), Ordering::AcqRel);
        let batch = held.batch;
        (self.last_batch, self.has_taken) = (batch, true);
        self.desk.held().insert(batch, held);
        let taken: Vec<Taken> = read(texts).collect();
        let mut floor = self.shared.floor.enter();
        for taken in taken {
            if taken.item.attempts == 0 && taken.item.function != UNREADABLE {
                let waited_ms = u64::try_from(now_ms - taken.item.enqueued_at).unwrap_or(0);
                figures.start_delay.record_duration(Duration::from_millis(waited_ms));
            }
            self.start(&mut floor, batch, taken, now_ms);
        }
    }

    fn start(&self, floor: &mut Entrance<'_>, batch: i64, taken: Taken, now_ms: i64) {
        let (id, cancel) = (taken.id, Cancel::default());
        let functions = self.shared.ground.functions();
        let function = functions.get(&taken.item.function);
        let is_late = taken.item.deadline_at.is_some_and(|deadline| deadline <= now_ms);
        let plan = match function.map(|function| &function.body) {
            _ if taken.item.function == UNREADABLE => {
                Plan::Ended(Outcome::Failed(Failure::permanent("the item cannot be read")))
            }
            _ if is_late => Plan::Ended(Outcome::Failed(Failure::permanent("its deadline has passed"))),
            _ if let Err(reserved) = functions.check_call(&taken.item) => {
                Plan::Ended(Outcome::Failed(refused(&reserved)))
            }
            None => Plan::Ended(Outcome::Unstarted),
            Some(Body::Mutation(_)) => Plan::Run,
            Some(Body::Action { run, timeout }) => {
                let call = call(&self.shared.ground, id, &taken.item, cancel.clone());
                let span = span::span(&self.desk.name, &taken.item, &call);
                let circuit = functions.circuit(&taken.item.function).cloned();
                let ticket = Ticket { batch, taken, done: self.done.clone() };
                let execution = Arc::new(Execution::of_action(cancel, ticket, *timeout));
                floor.add(id, execution.clone());
                let acting = act(execution, run.clone(), call, circuit);
                tokio::spawn(acting.instrument(span));
                return;
            }
        };
        floor.add(id, Arc::new(Execution::of_mutation(cancel.clone())));
        let _ = self.done.send((batch, Ending::new(taken, plan, cancel)));
    }

    /// Waits until it is worth claiming again; true when the pool is idle instead.
    async fn rest(&mut self, rest: Rest, are_lanes_known: &mut bool) -> bool {
        let freed = self.desk.freed.notified();
        match rest {
            Rest::No => {}
            Rest::UntilFreed => {
                tokio::select! {
                    () = freed => *are_lanes_known &= !self.is_probing,
                    () = self.shared.stopped() => {}
                    _ = self.alarm.look.changed() => *are_lanes_known = false,
                }
            }
            Rest::For(wait) => self.shared.pause(wait).await,
            Rest::UntilWork | Rest::UntilSweep => {
                let is_any_running = self.desk.running.load(Ordering::Acquire) > 0;
                let (until, may_idle) = match rest {
                    Rest::UntilSweep => (fronts::LOOK_EVERY, false),
                    _ if is_any_running => (LOOK_AGAIN, false),
                    _ if !self.has_taken => return true,
                    _ => (IDLE_AFTER, true),
                };
                tokio::select! {
                    is_woken = self.alarm.work.woken(until) => return may_idle && !is_woken,
                    is_new = self.new_lanes.woken(until) => {
                        *are_lanes_known &= !is_new;
                        return may_idle && !is_new;
                    }
                    // The keeper has seen something, wherever that is.
                    () = self.alarm.bell.nudge.notified() => {
                        look_from_front(&self.shared, self.all_lanes()).await;
                    }
                    // What ended since the claim has left room for others, and a last look gives back what they may use.
                    () = freed => *are_lanes_known &= !self.is_probing,
                    () = self.shared.stopped() => {}
                    _ = self.alarm.look.changed() => *are_lanes_known = false,
                }
            }
        }
        false
    }
}

/// The failure of an item that may not call its function.
fn refused(reserved: &Reserved) -> Failure {
    Failure::new(Class::ValidationError, format!("{}: {reserved}", reserved.entry().code))
}

/// Looks for what was left behind anywhere.
async fn look_from_front(shared: &Shared, lanes: Vec<i64>) {
    let look = async |tx: Tx, (ground, lanes): (Arc<Ground>, Vec<i64>)| {
        for lane in lanes {
            let reached = ground.reached(&[lane]);
            look_between(&ground, &tx, lane, (0, reached)).await?;
        }
        Ok(())
    };
    if let Err(error) = shared.ground.store.read_with((shared.ground.clone(), lanes), look).await {
        tracing::warn!(%error, "looking for what came very late failed");
    }
}

/// Lets an action run if its circuit lets it, and tells both how it ended.
async fn act(execution: Arc<Execution>, run: Arc<ActionBody>, call: Call, circuit: Option<Arc<dyn Circuit>>) {
    // Also when what is left of the function panics as it is dropped.
    let _leaving = Leaving(execution.clone());
    let cancel = &execution.cancel;
    let admitted = match circuit.as_deref() {
        None => None,
        Some(circuit) => tokio::select! {
            biased;
            admitted = Admitted::by(circuit) => match admitted {
                Ok(admitted) => Some(admitted),
                Err(Rejected { retry_after_ms, .. }) => {
                    tracing::Span::current().record("outcome", "postponed");
                    return execution.end(Outcome::Postponed { after_ms: retry_after_ms });
                }
            },
            () = cancel.asked() => return execution.end(stopped(cancel)),
        },
    };
    let mut running = std::pin::pin!(
        AssertUnwindSafe(call.cause.clone().scope(async move { run(call).await })).catch_unwind()
    );
    let turns = std::future::poll_fn(|context| execution.turn(|| running.as_mut().poll(context)));
    let ended = tokio::select! {
        biased;
        ended = turns => Some(ended.unwrap_or_else(|_panic| Err(Failure::retryable("the function panicked")))),
        () = cancel.asked() => None,
    };
    if let Some(admitted) = admitted {
        match &ended {
            _ if cancel.is_late() => {
                admitted
                    .record(Ended::Failed(&Failure::new(Class::NetworkTimeout, "it did not return in time")));
            }
            Some(ended) => admitted.record(ended.into()),
            None => {}
        }
    }
    tracing::Span::current().record(
        "outcome",
        match &ended {
            Some(Ok(_)) => "success",
            Some(Err(_)) => "failed",
            None if cancel.is_canceled() => "canceled",
            None => "lost",
        },
    );
    execution.end(match ended {
        Some(Ok(value)) => Outcome::Success(value),
        Some(Err(failure)) => Outcome::Failed(failure),
        None => stopped(cancel),
    });
}

/// How an execution ends that is to stop.
fn stopped(cancel: &Cancel) -> Outcome {
    match cancel.is_canceled() {
        true => Outcome::Canceled,
        // Somebody else has told, or will.
        false => Outcome::Lost,
    }
}

struct Leaving(Arc<Execution>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.leave();
    }
}
