//! The notes of concurrent writers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::{Condition, Event, Operation, Outcome};

/// Notes operations of many writers by one clock. Clones share their notes.
#[derive(Debug, Clone)]
pub struct Recorder {
    notes: Arc<Notes>,
}

#[derive(Debug)]
struct Notes {
    start: Instant,
    /// Each at the index of its id less one.
    operations: Mutex<Vec<Operation>>,
}

/// An operation that was begun. Dropped without an answer, its outcome is unknown: so it is with a writer that
/// panics or is cancelled.
#[derive(Debug)]
#[must_use = "an operation that is not finished counts as unknown"]
pub struct Pending {
    notes: Arc<Notes>,
    id: u64,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// Empty notes; the clock starts now.
    pub fn new() -> Self {
        let notes = Notes { start: Instant::now(), operations: Mutex::default() };
        Self { notes: Arc::new(notes) }
    }

    /// Notes that an operation begins; to be called before anything is sent.
    pub fn begin(&self, condition: Option<Condition>, events: Vec<Event>) -> Pending {
        let id = self.notes.with(|operations| {
            let (id, began) = (operations.len() as u64 + 1, self.notes.now());
            let outcome = Outcome::Unknown;
            operations.push(Operation { id, began, ended: u64::MAX, condition, events, outcome });
            id
        });
        Pending { notes: Arc::clone(&self.notes), id }
    }

    /// Every operation so far, by id; those without an answer as unknown.
    pub fn operations(&self) -> Vec<Operation> {
        self.notes.with(|operations| operations.clone())
    }
}

impl Pending {
    /// The operation's id, to be put where the log's reader finds it again.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Notes the answer; to be called after it has come.
    pub fn finish(self, outcome: Outcome) {
        // An unknown operation may still happen, so it has no end.
        let ended = if outcome == Outcome::Unknown { u64::MAX } else { self.notes.now() };
        self.notes.with(|operations| {
            let operation = &mut operations[self.id as usize - 1];
            operation.ended = ended;
            operation.outcome = outcome;
        });
    }
}

impl Notes {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX - 1)
    }

    /// Notes are whole at every moment, so those of a writer that panicked count too.
    fn with<T>(&self, work: impl FnOnce(&mut Vec<Operation>) -> T) -> T {
        work(&mut self.operations.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
