//! Something that goes along with a transaction that somebody else makes.
//!
//! An audit row belongs into the transaction of the action that it is about, but who audits does not make that
//! transaction. So it is given to the task: the first transaction that the task commits takes it along.

use crate::{Epilogue, Tx};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

tokio::task_local! {
    static STOP: Arc<Stop>;
}

/// Where a rider waits.
struct Stop {
    rider: Mutex<Option<Arc<dyn Epilogue>>>,
    has_arrived: AtomicBool,
}

/// Runs `work`, and lets `rider` conclude the first transaction that it commits on this task and that may have changed
/// something, as part of it; whether there was one. A transaction that is rolled back leaves the rider for the next, and what
/// is spawned has no part in it.
pub async fn riding<T>(rider: Arc<dyn Epilogue>, work: impl Future<Output = T>) -> (T, bool) {
    let stop = Arc::new(Stop { rider: Mutex::new(Some(rider)), has_arrived: AtomicBool::new(false) });
    let value = STOP.scope(stop.clone(), work).await;
    (value, stop.has_arrived.load(Ordering::Acquire))
}

/// Who may go along with a transaction, each time it is run.
#[derive(Clone)]
pub(crate) struct Rider {
    epilogue: Arc<dyn Epilogue>,
    is_aboard: Arc<AtomicBool>,
}

impl Rider {
    /// Concludes a transaction that does not know it, if there is anything to conclude.
    pub(crate) fn board(self, tx: &Tx) {
        let has_done_something = tx.marks() > 0;
        self.is_aboard.store(has_done_something, Ordering::Release);
        tx.epilogues.extend(has_done_something.then_some(self.epilogue));
    }
}

/// A transaction of this task, and who goes along with it.
pub(crate) struct Ride(Option<(Arc<Stop>, Rider)>);

impl Ride {
    /// Takes up who waits.
    pub(crate) fn begin() -> Self {
        let stop = STOP.try_with(Arc::clone).ok();
        Self(stop.and_then(|stop| {
            let epilogue = stop.rider.lock().unwrap_or_else(PoisonError::into_inner).take()?;
            Some((stop, Rider { epilogue, is_aboard: Arc::default() }))
        }))
    }

    /// Who goes along.
    pub(crate) fn rider(&self) -> Option<Rider> {
        self.0.as_ref().map(|(_, rider)| rider.clone())
    }

    /// It has committed.
    pub(crate) fn arrived(mut self) {
        if let Some((stop, _)) = self.0.take_if(|(_, rider)| rider.is_aboard.load(Ordering::Acquire)) {
            stop.has_arrived.store(true, Ordering::Release);
        }
    }
}

/// Who did not arrive goes along with the next.
impl Drop for Ride {
    fn drop(&mut self) {
        if let Some((stop, rider)) = self.0.take() {
            *stop.rider.lock().unwrap_or_else(PoisonError::into_inner) = Some(rider.epilogue);
        }
    }
}
