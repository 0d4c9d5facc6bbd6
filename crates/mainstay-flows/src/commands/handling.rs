//! What a handler works with.

use super::command::Issued;
use super::decider::Moment;
use mainstay_core::random::Random;
use mainstay_events::{Condition, Log, NewEvent};
use mainstay_store::Tx;
use mainstay_work::{NewWork, Work};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// How a handler has read the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// It has not.
    None,
    /// Its events are appended only if what it has read is still so.
    Conditional,
    /// Nothing says what it has read.
    Bare,
}

/// One command that is being decided: the transaction, the log as the command's tenant sees it, and the command.
#[derive(Clone)]
pub struct Handling {
    pub(super) tx: Tx,
    pub(super) log: Log,
    pub(super) work: Work,
    pub(super) issued: Arc<Issued>,
    pub(super) now_ms: i64,
    pub(super) boundary: Arc<OnceLock<String>>,
    pub(super) noted: Arc<Mutex<Noted>>,
}

/// What a handler has said and done besides its decision.
#[derive(Default)]
pub(super) struct Noted {
    condition: Option<Condition>,
    is_log_read: bool,
}

impl Handling {
    /// The transaction that everything about the command is in. What is written through it is undone when the command is
    /// rejected or overtaken.
    pub fn tx(&self) -> &Tx {
        &self.tx
    }

    /// The log, as the command's tenant sees it. Read it in the transaction, and say with [`unless`](Self::unless) what the
    /// decision rests on: nothing else keeps others from deciding the same at the same time on another node. Without that,
    /// commands of this handler are decided one by one.
    pub fn log(&self) -> &Log {
        self.noted().is_log_read = true;
        &self.log
    }

    /// The command.
    pub fn issued(&self) -> &Issued {
        &self.issued
    }

    /// The database's time, in milliseconds since the epoch.
    pub fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// The version of the scope that the decision rests on, if it is made in one.
    pub fn scope_version(&self) -> Option<u64> {
        self.issued.scope.as_ref().map(|scope| scope.expected_version)
    }

    /// When and for whom it is decided.
    pub fn moment(&self) -> Moment {
        let (command_id, correlation_id) =
            (self.issued.command_id.clone(), self.issued.correlation_id.clone());
        Moment { now_ms: self.now_ms, command_id, correlation_id }
    }

    /// The events of the decision are appended only on this condition: otherwise somebody else was first, and it is made
    /// again.
    pub fn unless(&self, condition: Condition) {
        self.noted().condition = Some(condition);
    }

    pub(super) fn condition(&self) -> Option<Condition> {
        self.noted().condition.take()
    }

    /// Whether the log was read, and whether a condition stands for what was found there.
    pub(super) fn reading(&self) -> Reading {
        let noted = self.noted();
        match (noted.is_log_read, noted.condition.is_some()) {
            (false, _) => Reading::None,
            (true, true) => Reading::Conditional,
            (true, false) => Reading::Bare,
        }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what the decision is about, when that is not a scope: retries of one boundary take turns.
    pub fn decides_on(&self, boundary: impl Into<String>) {
        // A handler that runs again says the same.
        drop(self.boundary.set(boundary.into()));
    }

    /// Starts work when the command is committed, as part of its trace; the item's id.
    pub fn start(&self, item: NewWork) -> mainstay_store::Result<String> {
        let item = item.caused_by(&self.issued.cause());
        let receipt = self.work.enqueue_in(&self.tx, [item])?;
        Ok(receipt.work_ids().first().cloned().unwrap_or_default())
    }

    /// Makes an event part of what the command caused.
    pub(super) fn stamp(&self, mut event: NewEvent) -> NewEvent {
        let issued = &*self.issued;
        event.trace.get_or_insert_with(|| issued.trace.child(&**self.random()));
        event = event.caused_by(&issued.cause());
        if event.scope.is_none() {
            event.scope.clone_from(&issued.scope);
        }
        event
    }

    fn random(&self) -> &Arc<dyn Random> {
        self.log.store().random()
    }
}
