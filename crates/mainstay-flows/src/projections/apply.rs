//! Giving events to a handler: the same for what is live, replayed and tried again.

use super::definition::Projection;
use super::failures;
use super::tables::Model;
use mainstay_core::failure::Failure;
use mainstay_events::{Event, Log, Selection};
use mainstay_store::{Error, Tx};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most bytes of one chunk, so that a chunk of large events does not fill the memory.
const MAX_BYTES: usize = 8 << 20;

/// Whether the author's code is running, for when a transaction fails without saying where.
#[derive(Debug, Default)]
pub(crate) struct Stage(AtomicBool);

impl Stage {
    fn enter(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// A handler failed, and the transaction with it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct HandlerFailed(Failure);

/// Whose fault it is that a transaction failed.
#[derive(Debug)]
pub(crate) enum Blame {
    /// The handler's, or that of the event that it was given.
    Handler(Failure),
    /// The store's: it is tried again and counts against nobody.
    Store(Error),
}

impl Blame {
    pub(crate) fn of(error: Error, stage: &Stage) -> Self {
        let error = match error {
            Error::Application(reason) => match reason.downcast::<HandlerFailed>() {
                Ok(failed) => return Self::Handler(failed.0),
                Err(other) => return Self::Store(Error::Application(other)),
            },
            other => other,
        };
        let is_inside = stage.0.load(Ordering::Relaxed);
        // A rule that is checked at the commit was broken by what the handler wrote.
        let is_late = matches!(error, Error::Constraint { .. });
        if error.is_retryable() || matches!(error, Error::Closed) || !(is_inside || is_late) {
            return Self::Store(error);
        }
        Self::Handler(Failure::retryable(error.to_string()))
    }
}

/// What a handler's error says, unless it was the store that failed under it.
fn blamed(error: Error) -> Error {
    if error.is_retryable() {
        return error;
    }
    let failure = match error {
        Error::Application(reason) => match reason.downcast::<Failure>() {
            Ok(failure) => *failure,
            Err(other) => Failure::retryable(other.to_string()),
        },
        other => Failure::retryable(other.to_string()),
    };
    Error::application(HandlerFailed(failure))
}

/// Gives events to a projection's handler, in a transaction that holds whatever says that it is their turn. Those that
/// were put aside are left out. Returns how many it took.
pub(crate) async fn give(
    tx: &Tx,
    projection: &Projection,
    generation: i64,
    events: &Arc<[Event]>,
    stage: &Stage,
) -> mainstay_store::Result<u64> {
    stage.leave();
    let (Some(first), Some(last), Some(handler)) = (events.first(), events.last(), &projection.handler)
    else {
        return Ok(0);
    };
    let mut noted = failures::between(tx, &projection.name, first.position(), last.position()).await?;
    // What lies between them may be another lane's, and what is known of a generation that is filled beside is its own.
    noted.retain(|one| {
        one.generation <= generation && events.iter().any(|event| event.position() == one.position)
    });
    let is_aside = |event: &Event| noted.iter().any(|one| one.is_aside && one.position == event.position());
    let events = if noted.iter().any(|one| one.is_aside) {
        events.iter().filter(|event| !is_aside(event)).cloned().collect()
    } else {
        events.clone()
    };
    let taken = events.len() as u64;
    if taken > 0 {
        stage.enter();
        let model = Model::new(projection, generation);
        handler(tx.clone(), model, events).await.map_err(blamed)?;
        // Also a statement that failed without being passed on.
        tx.intact().map_err(blamed)?;
        stage.leave();
    }
    failures::leave_out(tx, &projection.name, generation, &noted).await?;
    failures::passed(tx, &projection.name, generation, &noted).await?;
    Ok(taken)
}

/// Fails for an event that no handler can be given, in a transaction that holds its lane, unless it was put aside already.
pub(crate) async fn refuse(
    tx: &Tx,
    projection: &Projection,
    generation: i64,
    event: &Event,
    failure: &Failure,
) -> mainstay_store::Result<()> {
    let mut noted = failures::between(tx, &projection.name, event.position(), event.position()).await?;
    noted.retain(|one| one.generation <= generation && one.is_aside && one.position == event.position());
    if noted.is_empty() {
        return Err(Error::application(HandlerFailed(failure.clone())));
    }
    failures::leave_out(tx, &projection.name, generation, &noted).await
}

/// A part of the log as a projection sees it.
pub(crate) struct Chunk {
    /// What it takes.
    pub(crate) events: Vec<Event>,
    /// Up to here that is everything.
    pub(crate) to: u64,
    /// Whether that is the end of what there is.
    pub(crate) is_last: bool,
}

/// Reads the next events of a projection: at most `size` of them, up to `until` or the head.
pub(crate) async fn read(
    log: &Log,
    projection: &Projection,
    after: u64,
    until: Option<u64>,
    size: usize,
) -> mainstay_events::Result<Chunk> {
    let mut selection = Selection { until, query: projection.query(), ..Selection::all() };
    let mut chunk = Chunk { events: Vec::new(), to: after, is_last: false };
    let mut bytes = 0;
    while chunk.events.len() < size && bytes < MAX_BYTES && !chunk.is_last {
        selection.after = chunk.to;
        let page = log.read(&selection, size - chunk.events.len()).await?;
        let end = until.map_or(page.head, |until| until.min(page.head));
        chunk.is_last = page.next.is_none();
        chunk.to = page.next.unwrap_or(end).max(chunk.to);
        bytes += page.events.iter().map(Event::bytes).sum::<usize>();
        chunk.events.extend(page.events);
    }
    Ok(chunk)
}
