//! The projector: one lane of a projection that follows the log.
//!
//! A chunk is read on a snapshot, after the checkpoint. Then one transaction holds the checkpoint's row, looks whether
//! it is still where the chunk begins, gives the events to the handler and moves it to the chunk's end. Whoever was
//! paused in between, or does the same on another node, finds the checkpoint elsewhere and does nothing.

use super::apply::{self, Blame, Chunk, Stage};
use super::checkpoints::{self, LaneState};
use super::definition::Projection;
use super::failures::{self, Quarantined, Verdict};
use super::lanes::KEYLESS;
use super::opened::Shared;
use super::running::{Bell, Seen};
use super::span::Spans;
use super::{marks, status};
use mainstay_core::failpoints::Point;
use mainstay_core::failure::Failure;
use mainstay_events::Event;
use mainstay_store::Tx;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::Instrument;

/// How long to wait after the store has failed.
const PAUSE: Duration = Duration::from_millis(500);
/// How often a checkpoint is moved over events that the projection does not take. They are looked at as they come, but
/// other projections' events should not cost each of them a commit.
const MOVE_EVERY: Duration = Duration::from_millis(200);

pub(crate) struct Projector {
    shared: Arc<Shared>,
    projection: Arc<Projection>,
    lane: u32,
    bell: Arc<Bell>,
    seen: watch::Receiver<Seen>,
    /// Where the lane is, as far as is known here; nothing when it is to be looked up.
    place: Option<Place>,
    /// Up to which change `place` counts.
    version: i64,
    /// When the checkpoint was last moved without any event.
    moved_at: Option<Instant>,
    /// When the checkpoint was last moved, and when the place that it left was last noted.
    went_at: Option<Instant>,
    marked_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    /// The checkpoint.
    position: u64,
    /// Up to here there is nothing for this lane.
    looked: u64,
    generation: i64,
    is_catching_up: bool,
}

/// What to do next.
enum Next {
    Look,
    /// Wait until something changes, or until the moment at which the checkpoint is moved.
    Wait(Option<Instant>),
    Pause(Duration),
}

/// A chunk on its way into a read model.
#[derive(Clone)]
struct Batch {
    shared: Arc<Shared>,
    projection: Arc<Projection>,
    lane: u32,
    generation: i64,
    from: u64,
    to: u64,
    events: Arc<[Event]>,
    /// Why the handler is not given its only event.
    refused: Option<Failure>,
    stage: Arc<Stage>,
    /// Whether the place that it leaves is noted.
    marks: bool,
    /// What is told of it.
    spans: Spans,
}

impl Projector {
    pub(crate) fn new(shared: Arc<Shared>, projection: Arc<Projection>, lane: u32, bell: Arc<Bell>) -> Self {
        let seen = bell.subscribe();
        Self {
            shared,
            projection,
            lane,
            bell,
            seen,
            place: None,
            version: 0,
            moved_at: None,
            went_at: None,
            marked_at: None,
        }
    }

    pub(crate) async fn run(mut self) {
        let bell = self.bell.clone();
        while !bell.is_stopping() {
            let Seen { head, version } = *self.seen.borrow_and_update();
            // Whatever was changed while something else was done: the lane may be elsewhere.
            if std::mem::replace(&mut self.version, version) != version {
                self.place = None;
            }
            let wait = match self.step(head).await {
                Next::Look => continue,
                Next::Wait(until) => until,
                Next::Pause(moment) => {
                    tokio::select! {
                        () = bell.stopped() => {}
                        () = tokio::time::sleep(moment) => {}
                    }
                    continue;
                }
            };
            let due = async {
                match wait {
                    Some(moment) => tokio::time::sleep_until(moment).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = bell.stopped() => {}
                changed = self.seen.changed() => if changed.is_err() { return },
                () = due => {}
            }
        }
    }

    async fn step(&mut self, head: u64) -> Next {
        if let Err(hit) = self.shared.store.failpoints().hit(Point::ProjectionsStep) {
            return self.endure(&mainstay_store::Error::from(hit).into());
        }
        let Some(place) = self.place else { return self.look_up().await };
        if place.looked >= head {
            return self.over_nothing(place).await;
        }
        let size = self.projection.complexity.chunk_size() as usize;
        let read = apply::read(&self.shared.log, &self.projection, place.looked, None, size).await;
        let mut chunk = match read {
            Ok(chunk) => chunk,
            Err(error) if error.is_retryable() => return self.endure(&error.into()),
            Err(error) => return self.fail(error.to_string()).await,
        };
        let refused = self.keep_own(&mut chunk);
        if !chunk.events.is_empty() {
            return self.apply(place, chunk, refused).await;
        }
        self.place = Some(Place { looked: chunk.to, ..place });
        Next::Look
    }

    /// Leaves of a chunk what is this lane's. An event without a key comes alone, with why it has none.
    fn keep_own(&self, chunk: &mut Chunk) -> Option<Failure> {
        let (by, lanes) = (&self.projection.by, self.projection.lanes);
        if lanes <= 1 {
            return None;
        }
        let mut refused = None;
        let mut own = Vec::with_capacity(chunk.events.len());
        for event in std::mem::take(&mut chunk.events) {
            match by.lane(&event, lanes) {
                Ok(lane) if lane != self.lane => {}
                Ok(_) => own.push(event),
                Err(_) if self.lane != KEYLESS => {}
                Err(failure) => {
                    // What comes before it is applied first.
                    chunk.is_last = false;
                    chunk.to = event.position() - u64::from(!own.is_empty());
                    if own.is_empty() {
                        (refused, own) = (Some(failure), vec![event]);
                    }
                    break;
                }
            }
        }
        chunk.events = own;
        refused
    }

    /// Looks where the lane is; waits when it is not to move, or when its tables are not those of this program.
    async fn look_up(&mut self) -> Next {
        let look = async |tx: Tx, (name, lane): (String, u32)| {
            let lane = checkpoints::look(&tx, &name, lane).await?;
            let found = status::look(&tx, &name).await?;
            Ok(lane.zip(found))
        };
        let context = (self.projection.name.clone(), self.lane);
        let found = match self.shared.store.read_with(context, look).await {
            Ok(found) => found,
            Err(error) => return self.endure(&error.into()),
        };
        let Some((lane, found)) = found else { return Next::Wait(None) };
        let is_ours =
            lane.lanes == self.projection.lanes && found.shape == self.shared.shape(&self.projection);
        if lane.state == LaneState::Held || !is_ours {
            return Next::Wait(None);
        }
        let is_catching_up = lane.state == LaneState::CatchingUp;
        let (position, generation) = (lane.position, lane.generation);
        self.place = Some(Place { position, looked: position, generation, is_catching_up });
        Next::Look
    }

    /// There is nothing to apply up to where was looked: moves the checkpoint there, now or in a moment.
    async fn over_nothing(&mut self, place: Place) -> Next {
        if place.is_catching_up && place.looked == place.position {
            return self.caught_up().await;
        }
        if place.looked == place.position {
            return Next::Wait(None);
        }
        let due = self.moved_at.map(|moved| moved + MOVE_EVERY).filter(|due| *due > Instant::now());
        if due.is_some() && !place.is_catching_up {
            return Next::Wait(due);
        }
        self.moved_at = Some(Instant::now());
        let nothing = Chunk { events: Vec::new(), to: place.looked, is_last: true };
        self.apply(place, nothing, None).await
    }

    async fn caught_up(&mut self) -> Next {
        let name = self.projection.name.clone();
        match self.shared.store.transact_with(name, status::caught_up).await {
            Ok(is_active) => {
                if let (true, Some(place)) = (is_active, &mut self.place) {
                    place.is_catching_up = false;
                }
                Next::Wait(None)
            }
            Err(error) => self.endure(&error.into()),
        }
    }

    async fn apply(&mut self, place: Place, chunk: Chunk, refused: Option<Failure>) -> Next {
        let events: Arc<[Event]> = chunk.events.into();
        let spans = match chunk.is_last && !place.is_catching_up {
            true => Spans::of(&self.projection.name, &events, &**self.shared.store.random()),
            // Far behind, or filled anew: nobody waits for the trace of what is long past.
            false => Spans::default(),
        };
        let batch = Batch {
            shared: self.shared.clone(),
            projection: self.projection.clone(),
            lane: self.lane,
            generation: place.generation,
            from: place.position,
            to: chunk.to,
            events,
            refused,
            stage: Arc::default(),
            marks: self.is_to_be_marked(),
            spans,
        };
        match self.carry_out(&batch).await {
            Ok(next) => next,
            Err(failure) if batch.events.len() == 1 => self.failed(batch, failure).await,
            Err(_) => self.one_by_one(batch).await,
        }
    }

    /// Whether the place that the lane leaves now is worth noting: it stood there for a while, or none was for long.
    fn is_to_be_marked(&self) -> bool {
        let is_past = |moment: Option<Instant>, age| moment.is_none_or(|moment| moment.elapsed() >= age);
        is_past(self.went_at, marks::PAUSE) || is_past(self.marked_at, marks::EVERY)
    }

    /// Applies a chunk in one transaction; fails when that is the handler's fault.
    async fn carry_out(&mut self, batch: &Batch) -> Result<Next, Failure> {
        match self.shared.store.transact_with(batch.clone(), apply_in).await {
            Ok(true) => {
                batch.spans.record("success");
                self.went_at = Some(Instant::now());
                if batch.marks {
                    self.marked_at = self.went_at;
                }
                if let Some(place) = &mut self.place {
                    (place.position, place.looked) = (batch.to, batch.to.max(place.looked));
                }
                self.shared.tell_moved(&self.projection.name);
                Ok(Next::Look)
            }
            // Somebody else was here.
            Ok(false) => {
                self.place = None;
                Ok(Next::Look)
            }
            Err(error) => match Blame::of(error, &batch.stage) {
                Blame::Handler(failure) => Err(failure),
                Blame::Store(error) => Ok(self.endure(&error.into())),
            },
        }
    }

    /// Applies a chunk that cannot be taken whole, so that only the events that fail are held up.
    async fn one_by_one(&mut self, batch: Batch) -> Next {
        let mut from = batch.from;
        for (index, event) in batch.events.iter().enumerate() {
            if self.bell.is_stopping() {
                return Next::Look;
            }
            let is_last = index + 1 == batch.events.len();
            let to = if is_last { batch.to } else { event.position() };
            let spans = batch.spans.only(index);
            let (events, stage) = ([event.clone()].into(), Arc::default());
            let marks = batch.marks && index == 0;
            let alone = Batch { from, to, events, stage, marks, spans, ..batch.clone() };
            match self.carry_out(&alone).await {
                Ok(Next::Look) if self.place.is_some_and(|place| place.position == to) => from = to,
                Ok(next) => return next,
                Err(failure) => return self.failed(alone, failure).await,
            }
        }
        Next::Look
    }

    /// Writes the failure of one event down, and says when it is tried again.
    async fn failed(&mut self, batch: Batch, failure: Failure) -> Next {
        let context = (batch.clone(), failure.clone());
        match self.shared.store.transact_with(context, record_in).await {
            Ok(Some(Verdict::Again(after_ms))) => {
                batch.spans.record("failed");
                let _in = batch.spans.around().entered();
                tracing::warn!(projection = self.projection.name, %failure, after_ms, "an event failed");
                // The same chunk is read again; what was passed over meanwhile is kept.
                if let Some(place) = &mut self.place {
                    place.looked = place.position;
                }
                Next::Pause(Duration::from_millis(after_ms))
            }
            Ok(Some(Verdict::GivenUp { attempts })) => {
                batch.spans.record("failed");
                let _in = batch.spans.around().entered();
                tracing::error!(projection = self.projection.name, %failure, attempts, "an event was given up");
                if let Some(place) = &mut self.place {
                    (place.position, place.looked) = (batch.to, batch.to);
                }
                tell(&self.projection, &batch.events[0], attempts, &failure);
                self.shared.tell_moved(&self.projection.name);
                Next::Look
            }
            Ok(None) => {
                self.place = None;
                Next::Look
            }
            Err(error) => self.endure(&error.into()),
        }
    }

    /// The log cannot be read: the projection stops, and says why.
    async fn fail(&mut self, error: String) -> Next {
        tracing::error!(projection = self.projection.name, error, "the projection cannot go on");
        let context = (self.projection.name.clone(), error);
        match self.shared.store.transact_with(context, status::fail).await {
            Ok(_) => {
                self.place = None;
                Next::Wait(None)
            }
            Err(error) => self.endure(&error.into()),
        }
    }

    /// The store has failed, which is nobody's fault here. Whether what was to be committed was is looked up.
    fn endure(&mut self, error: &crate::Error) -> Next {
        let projection = &self.projection.name;
        tracing::warn!(projection, %error, code = error.code(), "following the log failed; trying again");
        self.place = None;
        Next::Pause(PAUSE)
    }
}

/// Tells of an event that was quarantined.
pub(crate) fn tell(projection: &Projection, event: &Event, attempts: u32, failure: &Failure) {
    if let Some(poison) = &projection.poison {
        poison.alert(Quarantined {
            event_id: event.id().to_owned(),
            projection_name: projection.name.clone(),
            attempts,
            error: failure.message().to_owned(),
        });
    }
}

/// Whether it is a chunk's turn; holds its lane.
async fn is_next(tx: &Tx, batch: &Batch) -> mainstay_store::Result<bool> {
    let lane = checkpoints::hold(tx, &batch.projection.name, batch.lane).await?;
    // Taken away by tests that must see what it keeps out.
    if batch.shared.store.failpoints().hit(Point::ProjectionsGuard).is_err() {
        return Ok(true);
    }
    Ok(lane.is_some_and(|lane| {
        lane.position == batch.from
            && lane.generation == batch.generation
            && lane.lanes == batch.projection.lanes
            && lane.state != LaneState::Held
    }))
}

async fn apply_in(tx: Tx, batch: Batch) -> mainstay_store::Result<bool> {
    batch.stage.leave();
    if !is_next(&tx, &batch).await? {
        return Ok(false);
    }
    let Batch { projection, generation, events, stage, .. } = &batch;
    let taken = if let (Some(failure), [event]) = (&batch.refused, &**events) {
        apply::refuse(&tx, projection, *generation, event, failure).await?;
        0
    } else {
        let giving = apply::give(&tx, projection, *generation, events, stage);
        giving.instrument(batch.spans.around()).await?
    };
    let failpoints = batch.shared.store.failpoints();
    failpoints.hit(Point::ProjectionsApplied)?;
    if batch.marks {
        marks::mark(&tx, &projection.name, batch.lane).await?;
    }
    let last = events.last().map(Event::id);
    checkpoints::set(&tx, &projection.name, batch.lane, batch.to, last, (taken, 0)).await?;
    failpoints.hit(Point::ProjectionsCheckpoint)?;
    Ok(true)
}

async fn record_in(tx: Tx, (batch, failure): (Batch, Failure)) -> mainstay_store::Result<Option<Verdict>> {
    if !is_next(&tx, &batch).await? {
        return Ok(None);
    }
    let Batch { shared, projection, generation, events, .. } = &batch;
    let random = shared.store.random();
    let verdict = failures::record(&tx, projection, *generation, &events[0], &failure, &**random).await?;
    if let Verdict::GivenUp { .. } = verdict {
        checkpoints::set(&tx, &projection.name, batch.lane, batch.to, None, (0, 1)).await?;
    }
    shared.store.failpoints().hit(Point::ProjectionsFailure)?;
    Ok(Some(verdict))
}
