//! An author's closure without its types.
//!
//! A program has hundreds of closures. Drivers that were generic over them would be compiled once for each; a [`Body`]
//! is one type. The value of a run does not pass through the driver: the run leaves it in a [`Slot`] of the caller.

use crate::cause::{Cause, within, within_sync};
use crate::epilogue::conclude;
use crate::riding::Rider;
use crate::{Error, Result, Tx};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The future of one run of a closure.
type Run = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// A closure on its way through a driver, which may run it more than once.
pub(crate) struct Body {
    start: Box<dyn FnMut(Tx) -> Run + Send>,
    /// The caller's cause. The closure runs with it, on whichever thread.
    cause: Option<Arc<Cause>>,
    rider: Option<Rider>,
}

/// The value of the last run of a [`Body`].
pub(crate) struct Slot<T>(Arc<Mutex<Option<T>>>);

impl Body {
    /// The body of `work`, and the slot in which its runs leave their value.
    pub(crate) fn new<T, F, Fut>(work: F) -> (Self, Slot<T>)
    where
        T: Send + 'static,
        F: Fn(Tx) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        let slot = Slot(Arc::default());
        let filled = Slot(slot.0.clone());
        let start = move |tx| -> Run {
            let (running, slot) = (work(tx), Slot(filled.0.clone()));
            Box::pin(async move {
                let value = running.await?;
                *slot.lock() = Some(value);
                Ok(())
            })
        };
        (Self { start: Box::new(start), cause: Cause::current(), rider: None }, slot)
    }

    /// Adds a rider, which concludes the transaction if the closure has changed something.
    pub(crate) fn carry(&mut self, rider: Option<Rider>) {
        self.rider = rider;
    }

    /// Runs the closure, its epilogues, and the rider if there is one.
    pub(crate) async fn run(&mut self, tx: Tx) -> Result<()> {
        let running = within_sync(self.cause.clone(), || (self.start)(tx.clone()));
        within(self.cause.clone(), running).await?;
        if let Some(rider) = self.rider.clone() {
            rider.board(&tx);
        }
        conclude(&tx).await
    }
}

impl<T> Slot<T> {
    /// The value of a run that ended well.
    pub(crate) fn take(self) -> Result<T> {
        self.lock().take().ok_or(Error::Closed)
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
