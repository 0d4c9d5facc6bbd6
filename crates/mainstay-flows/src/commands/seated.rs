//! What those who share a transaction have decided so far.

use mainstay_core::query::Query;
use mainstay_events::NewEvent;
use mainstay_store::{Ending, Epilogue, Tx};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The events of those who were decided before in the same transaction, which are in the log only at its end.
#[derive(Default)]
pub(super) struct Seated(Mutex<Seats>);

#[derive(Default)]
struct Seats {
    events: Vec<(String, Vec<String>)>,
    /// All their tags: what asks for others need not be held against each event.
    tags: HashSet<String>,
}

impl Seated {
    /// Notes events of a transaction that several commands share.
    pub(super) fn note(tx: &Tx, events: &[NewEvent]) {
        let Some(seated) = tx.find_epilogue::<Self>() else { return };
        let mut seats = seated.seats();
        for event in events {
            seats.tags.extend(event.tags.iter().cloned());
            seats.events.push((event.event_type.clone(), event.tags.clone()));
        }
    }

    /// Whether there are events that are not in the log before the end of this transaction.
    pub(super) fn is_any(tx: &Tx) -> bool {
        tx.find_epilogue::<Self>().is_some_and(|seated| !seated.seats().events.is_empty())
    }

    /// Whether a decision that rests on `query` has to wait for the end of this transaction.
    pub(super) fn concern(tx: &Tx, query: &Query) -> bool {
        let Some(seated) = tx.find_epilogue::<Self>() else { return false };
        let seats = seated.seats();
        query.items().iter().any(|item| {
            item.tags.iter().all(|tag| seats.tags.contains(tag))
                && seats.events.iter().any(|(event_type, tags)| item.matches(event_type, tags))
        })
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Epilogue for Seated {
    fn conclude(self: Arc<Self>, _: Tx) -> Ending {
        Box::pin(async { Ok(()) })
    }
}
