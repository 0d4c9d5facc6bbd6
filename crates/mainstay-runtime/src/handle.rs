//! Access to the services from functions and projections.

use crate::services::Connected;
use mainstay_flows::Result;
use mainstay_flows::commands::{Command, Dispatched};
use mainstay_flows::delivery::appends::Appends;
use mainstay_flows::delivery::intents::Intents;
use mainstay_flows::delivery::publications::Publisher;
use mainstay_store::{Store, Tx};
use mainstay_work::NewWork;
use std::sync::{Arc, Weak};

/// Services for an author's functions and projections; see [`Builder::functions_with`](crate::Builder::functions_with). Clones
/// are the same. A handle does not keep the services open, because the services keep the functions.
#[derive(Clone)]
pub struct Handle(Weak<Connected>);

impl Handle {
    pub(crate) fn new(services: &Arc<Connected>) -> Self {
        Self(Arc::downgrade(services))
    }

    /// Dispatches a command, once per id.
    pub async fn dispatch(&self, command: Command) -> Result<Dispatched> {
        self.services()?.commands.dispatch(command).await
    }

    /// Enqueues work at the end of a transaction: both are committed, or neither.
    pub fn enqueue_in(&self, tx: &Tx, items: impl IntoIterator<Item = NewWork>) -> Result<()> {
        Ok(self.services()?.work.enqueue_in(tx, items).map(drop)?)
    }

    /// Durable appends.
    pub fn appends(&self) -> Result<Appends> {
        Ok(self.services()?.appends.clone())
    }

    /// Intents and completions of long operations.
    pub fn intents(&self) -> Result<Intents> {
        Ok(self.services()?.intents.clone())
    }

    /// Publications to other contexts.
    pub fn publisher(&self) -> Result<Publisher> {
        Ok(self.services()?.publications.clone())
    }

    /// The store.
    pub fn store(&self) -> Result<Store> {
        Ok(self.services()?.work.store().clone())
    }

    /// Closed services are unavailable, which is retryable: another node has them.
    fn services(&self) -> Result<Arc<Connected>> {
        let closed = || mainstay_store::Error::Unavailable("the services are closed on this node".to_owned());
        Ok(self.0.upgrade().ok_or_else(closed)?)
    }
}
