//! Back-pressure: how many calls may be inside at once, and how long others wait outside.

use crate::{Error, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Lets a bounded number of calls in.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    places: Arc<Semaphore>,
    limit: usize,
    patience: Duration,
}

impl Gate {
    pub(crate) fn new(limit: usize, patience: Duration) -> Self {
        Self { places: Arc::new(Semaphore::new(limit)), limit, patience }
    }

    /// A place inside, and the moment at which patience ends for whatever comes next.
    pub(crate) async fn enter(&self) -> Result<(OwnedSemaphorePermit, Instant)> {
        let deadline = Instant::now() + self.patience;
        // The usual case costs no timer.
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Ok((place, deadline));
        }
        match tokio::time::timeout_at(deadline, self.places.clone().acquire_owned()).await {
            Ok(Ok(place)) => Ok((place, deadline)),
            Ok(Err(_closed)) => Err(Error::Closed),
            Err(_elapsed) => Err(self.busy(&format!("{} transactions are waiting already", self.limit))),
        }
    }

    /// The error of a caller whose patience ended.
    pub(crate) fn busy(&self, reason: &str) -> Error {
        Error::Busy { waited_ms: self.patience.as_millis() as u64, reason: reason.to_owned() }
    }

    /// Waits until everybody who came has left, and lets nobody in any more.
    #[cfg(feature = "postgres")]
    pub(crate) async fn drain(&self) {
        let all = u32::try_from(self.limit).unwrap_or(u32::MAX);
        // It fails when somebody else has closed the gate already, which is as good.
        drop(self.places.acquire_many(all).await);
        self.close();
    }

    /// Lets nobody in any more.
    pub(crate) fn close(&self) {
        self.places.close();
    }
}
