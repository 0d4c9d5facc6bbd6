//! One chunk of a replay: an item of work.

use super::row::{self, Replay, ReplayStatus};
use super::switch;
use crate::completion;
use crate::error::Error;
use crate::projections::apply::{self, Blame, Stage};
use crate::projections::checkpoints::{self, LaneState};
use crate::projections::definition::Projection;
use crate::projections::failures::{self, Verdict};
use crate::projections::lifecycle::Move;
use crate::projections::opened::{REPLAY_POOL, Shared};
use crate::projections::projector::tell;
use crate::projections::status;
use crate::service::ServiceRef;
use mainstay_core::failpoints::Point;
use mainstay_core::failure::Failure;
use mainstay_events::{Event, Selection};
use mainstay_store::{Store, Tx};
use mainstay_work::{Call, Functions, NewWork, OnComplete, WorkResult};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const CHUNK: &str = "mainstay.replay.chunk";
const ENDED: &str = "mainstay.replay.ended";
/// How long a chunk may take (item 202). One that takes longer is ended: nothing of it is applied, and it is tried again.
pub const CHUNK_BUDGET: Duration = Duration::from_secs(10);

/// Which item of a replay. Each enqueues the next one in the transaction that ends its chunk; until then it goes on, also
/// after a crash in the middle of a chunk whose events were applied one by one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Args {
    replay_id: String,
    step: i64,
}

/// Enqueues what goes on with a replay, in the transaction that has brought it where it is and that writes its row.
pub(super) fn enqueue(tx: &Tx, shared: &Shared, replay: &mut Replay, after_ms: u64) -> Result<(), Error> {
    replay.step += 1;
    let args = Args { replay_id: replay.replay_id.clone(), step: replay.step };
    let item = NewWork::platform(REPLAY_POOL, CHUNK, &args)?
        .key(format!("replay:{}", replay.projection))
        .tell_platform(ENDED)
        .context(&args)?
        .run_after(Duration::from_millis(after_ms));
    let receipt = shared.work.enqueue_in(tx, [item])?;
    replay.item = completion::item(replay.step, receipt.work_ids());
    Ok(())
}

/// Adds the functions; a chunk may take as long as `budget`.
pub(crate) fn functions(functions: Functions, service: &ServiceRef<Shared>, budget: Duration) -> Functions {
    let (chunks, ends) = (service.clone(), service.clone());
    switch::functions(functions, service)
        .platform_action_within(budget, CHUNK, move |_: Call, args: Args| {
            let service = chunks.clone();
            async move {
                let failed = |error: Error| Failure::retryable(format!("{}: {error}", error.code()));
                let shared = service.get().map_err(|error| failed(error.into()))?;
                run(shared, args, Time::new(budget)).await.map_err(failed)
            }
        })
        .platform_on_complete(ENDED, move |tx: Tx, call: Call, told: OnComplete<Args>| {
            let service = ends.clone();
            async move { ended(&tx, &*service.get()?, &call, told).await }
        })
}

/// The time that a chunk has. The work ends what does not return; this ends what holds the writer of SQLite, or would go on
/// with the next event.
#[derive(Debug, Clone, Copy)]
struct Time {
    budget: Duration,
    until: Instant,
}

impl Time {
    fn new(budget: Duration) -> Self {
        Self { budget, until: Instant::now() + budget }
    }

    /// The store for what is left. By itself a transaction ends after ten seconds at the latest, and is cheaper.
    fn limited(&self, store: &Store) -> Store {
        if self.budget == CHUNK_BUDGET {
            return store.clone();
        }
        store.with_time_limit(self.until.saturating_duration_since(Instant::now()))
    }

    fn check(&self) -> crate::Result<()> {
        if Instant::now() < self.until {
            return Ok(());
        }
        Err(mainstay_store::Error::Timeout { limit_ms: self.budget.as_millis() as u64 }.into())
    }
}

/// A part of a replay on its way into a read model.
#[derive(Clone)]
struct Batch {
    shared: Arc<Shared>,
    projection: Arc<Projection>,
    replay_id: String,
    step: i64,
    from: u64,
    to: u64,
    /// Whether the chunk is done with it.
    is_end: bool,
    events: Arc<[Event]>,
    stage: Arc<Stage>,
    time: Time,
    /// Whether what the lanes have had in the meantime may be applied in the transaction that switches.
    may_catch_up: bool,
    is_catching_up: Arc<AtomicBool>,
}

async fn run(shared: Arc<Shared>, args: Args, time: Time) -> crate::Result<()> {
    let look = async |tx: Tx, replay_id: String| row::look(&tx, &replay_id).await;
    let replay = shared.store.read_with(args.replay_id.clone(), look).await?;
    if replay.status != ReplayStatus::Running || replay.step != args.step {
        return Ok(());
    }
    let projection = shared.find(&replay.projection)?;
    let (until, size) = (Some(replay.target_position), replay.chunk_size as usize);
    let chunk = apply::read(&shared.log, &projection, replay.last_position, until, size).await?;
    let batch = Batch {
        shared,
        projection,
        replay_id: args.replay_id,
        step: args.step,
        from: replay.last_position,
        to: chunk.to,
        is_end: true,
        events: chunk.events.into(),
        stage: Arc::default(),
        time,
        may_catch_up: true,
        is_catching_up: Arc::default(),
    };
    match carry_out(&batch).await? {
        Ok(_) => Ok(()),
        Err(failure) if batch.events.len() == 1 => failed(batch, failure).await,
        Err(_) => one_by_one(batch).await,
    }
}

/// Applies a batch in one transaction: whether it was its turn, or what the handler failed with.
async fn carry_out(batch: &Batch) -> crate::Result<Result<bool, Failure>> {
    let mut batch = batch.clone();
    loop {
        batch.time.check()?;
        let store = batch.time.limited(&batch.shared.store);
        let error = match store.transact_with(batch.clone(), apply_in).await {
            Ok(is_applied) => return Ok(Ok(is_applied)),
            Err(error) => error,
        };
        // Not the fault of an event: together they took too long.
        batch.time.check()?;
        match Blame::of(error, &batch.stage) {
            // Not an event of this batch: those that were to be caught up with become a chunk, and are seen to there.
            Blame::Handler(_) if batch.is_catching_up.load(Ordering::Relaxed) && batch.may_catch_up => {
                batch.may_catch_up = false;
            }
            Blame::Handler(failure) => return Ok(Err(failure)),
            Blame::Store(error) => return Err(error.into()),
        }
    }
}

/// Applies a chunk that cannot be taken whole, so that only the events that fail are held up.
async fn one_by_one(batch: Batch) -> crate::Result<()> {
    let mut from = batch.from;
    for (index, event) in batch.events.iter().enumerate() {
        let is_end = index + 1 == batch.events.len();
        let to = if is_end { batch.to } else { event.position() };
        let events = [event.clone()].into();
        let alone = Batch { from, to, is_end, events, stage: Arc::default(), ..batch.clone() };
        match carry_out(&alone).await? {
            Ok(true) => from = to,
            Ok(false) => return Ok(()),
            Err(failure) => return failed(alone, failure).await,
        }
    }
    Ok(())
}

/// Writes the failure of one event down. What follows is the next chunk's, later if the event is tried again; and so is what
/// is to be caught up with, since it may fail too.
async fn failed(batch: Batch, failure: Failure) -> crate::Result<()> {
    let batch = Batch { may_catch_up: false, ..batch };
    let verdict = batch.shared.store.transact_with((batch.clone(), failure.clone()), record_in).await?;
    let projection = &batch.projection;
    tracing::warn!(projection = projection.name, %failure, ?verdict, "an event failed in a replay");
    if let Some(Verdict::GivenUp { attempts }) = verdict {
        tell(projection, &batch.events[0], attempts, &failure);
    }
    Ok(())
}

/// The replay of a batch and the generation that it fills, if it is the batch's turn; held, and with it the lanes that
/// it moves.
async fn hold(tx: &Tx, batch: &Batch) -> mainstay_store::Result<Option<(Replay, i64)>> {
    let found = status::hold(tx, &batch.projection.name).await?;
    let replay = row::hold(tx, &batch.replay_id).await?;
    let is_next = replay.step == batch.step && replay.last_position == batch.from;
    if replay.status != ReplayStatus::Running || !is_next {
        return Ok(None);
    }
    if replay.shape != batch.shared.shape(&batch.projection) {
        let reason = "another version of the projection is needed".to_owned();
        return Err(mainstay_store::Error::Unavailable(reason));
    }
    if replay.generation.is_some_and(|generation| generation <= found.generation) {
        return Err(Error::invalid("replay", "readers see what it builds already").into());
    }
    if replay.generation.is_none() {
        let lanes = checkpoints::hold_all(tx, &replay.projection).await?;
        let is_here = |lane: &checkpoints::Lane| lane.position == batch.from && lane.state == LaneState::Held;
        if !lanes.iter().all(is_here) {
            return Err(Error::invalid("replay", "the projection was moved by somebody else").into());
        }
    }
    let generation = replay.generation.unwrap_or(found.generation);
    Ok(Some((replay, generation)))
}

async fn apply_in(tx: Tx, batch: Batch) -> mainstay_store::Result<bool> {
    batch.stage.leave();
    batch.is_catching_up.store(false, Ordering::Relaxed);
    let Some((replay, generation)) = hold(&tx, &batch).await? else { return Ok(false) };
    let taken = apply::give(&tx, &batch.projection, generation, &batch.events, &batch.stage).await?;
    batch.shared.store.failpoints().hit(Point::ReplayApplied)?;
    advance(&tx, &batch, replay, (taken, 0), batch.is_end).await?;
    Ok(true)
}

async fn record_in(tx: Tx, (batch, failure): (Batch, Failure)) -> mainstay_store::Result<Option<Verdict>> {
    let Some((mut replay, generation)) = hold(&tx, &batch).await? else { return Ok(None) };
    let (random, event) = (batch.shared.store.random(), &batch.events[0]);
    let verdict = failures::record(&tx, &batch.projection, generation, event, &failure, &**random).await?;
    match verdict {
        Verdict::Again(after_ms) => {
            enqueue(&tx, &batch.shared, &mut replay, after_ms)?;
            row::advance(&tx, &replay).await?;
        }
        Verdict::GivenUp { .. } => advance(&tx, &batch, replay, (0, 1), true).await?,
    }
    Ok(Some(verdict))
}

/// Moves a replay, which is held, to the end of a batch; ends it there, or enqueues what follows.
async fn advance(
    tx: &Tx,
    batch: &Batch,
    mut replay: Replay,
    (taken, given_up): (u64, u64),
    is_end: bool,
) -> mainstay_store::Result<()> {
    let (shared, projection) = (&batch.shared, &batch.projection);
    replay.events_processed += batch.to - batch.from;
    replay.last_position = batch.to;
    // A single event of a chunk is no chunk, unless it is the last.
    replay.chunks_completed += u64::from(batch.is_end);
    if replay.generation.is_none() {
        let last = batch.events.last().map(Event::id);
        checkpoints::set_all(tx, &projection.name, batch.to, last, (taken, given_up)).await?;
    }
    let is_over = replay.last_position >= replay.target_position && finish(tx, batch, &mut replay).await?;
    if is_over {
        row::set(tx, &replay.replay_id, ReplayStatus::Completed, None).await?;
    } else if is_end {
        enqueue(tx, shared, &mut replay, 0)?;
    }
    row::advance(tx, &replay).await?;
    Ok(shared.store.failpoints().hit(Point::ReplayAdvanced)?)
}

/// Ends a replay that is where it was to go; false when there is more to do, because the lanes have gone on meanwhile.
async fn finish(tx: &Tx, batch: &Batch, replay: &mut Replay) -> mainstay_store::Result<bool> {
    let (shared, projection) = (&batch.shared, &batch.projection);
    let Some(generation) = replay.generation else {
        switch::let_go(tx, shared, replay).await?;
        return Ok(true);
    };
    // From here on the lanes wait, for as long as it takes to apply what they have had in the meantime.
    let lanes = checkpoints::hold_all(tx, &projection.name).await?;
    let reached = lanes.iter().map(|lane| lane.position).max().unwrap_or(0);
    if reached > replay.last_position {
        let size = replay.chunk_size as usize;
        let mut rest = Selection::all().after(replay.last_position).until(reached);
        rest.query = projection.query();
        let page = shared.log.read_in(tx, &rest, size).await.map_err(Error::from)?;
        replay.total_events += reached - replay.last_position;
        replay.target_position = reached;
        if page.next.is_some() || !batch.may_catch_up {
            return Ok(false);
        }
        batch.is_catching_up.store(true, Ordering::Relaxed);
        let events: Arc<[Event]> = page.events.into();
        apply::give(tx, projection, generation, &events, &batch.stage).await?;
        replay.events_processed += reached - replay.last_position;
        replay.last_position = reached;
        replay.chunks_completed += 1;
    }
    switch::to_generation(tx, shared, projection, replay, generation).await?;
    let failpoints = shared.store.failpoints().clone();
    failpoints.hit(Point::ReplaySwitched)?;
    // Readers see it from then on: only a death makes sense there.
    tx.after_commit(Arc::new(move || drop(failpoints.hit(Point::ReplayShown))))?;
    Ok(true)
}

/// Notes that a chunk has ended for good without success: the replay has failed.
async fn ended(tx: &Tx, shared: &Shared, call: &Call, told: OnComplete<Args>) -> mainstay_store::Result<()> {
    let error = match told.result {
        WorkResult::Success { .. } => return Ok(()),
        WorkResult::Failed { error } => error,
        WorkResult::Canceled => "its work was canceled".to_owned(),
    };
    let Some(args) = told.context else { return Ok(()) };
    let known = row::look(tx, &args.replay_id).await?;
    let found = status::hold(tx, &known.projection).await?;
    let replay = row::hold(tx, &args.replay_id).await?;
    if replay.status != ReplayStatus::Running || replay.step != args.step {
        return Ok(());
    }
    completion::check(call, replay.item.as_deref(), replay.step)?;
    tracing::error!(replay = replay.replay_id, error, "a replay has failed");
    row::set(tx, &replay.replay_id, ReplayStatus::Failed, Some(&error)).await?;
    if replay.generation.is_none() && found.status.next(Move::Fail).is_some() {
        status::go(tx, &replay.projection, &found, Move::Fail, Some(&error)).await?;
    }
    shared.tell_moved(&replay.projection);
    Ok(())
}
