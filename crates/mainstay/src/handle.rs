//! The way from an author's functions and projections back into the house.

use crate::house::Rooms;
use mainstay_flows::commands::{Command, Dispatched};
use mainstay_flows::delivery::appends::Appends;
use mainstay_flows::delivery::intents::Intents;
use mainstay_flows::delivery::publications::Publisher;
use mainstay_flows::{Error, Result};
use mainstay_store::{Store, Tx};
use mainstay_work::NewWork;
use std::sync::{Arc, OnceLock, Weak};

/// Leads to a house that is opened later, for what the house is opened with: a function that dispatches commands, a
/// projection that starts work. Clones lead to the same. It does not keep the house open.
#[derive(Clone, Default)]
pub struct Handle(Arc<OnceLock<Weak<Rooms>>>);

impl Handle {
    /// Leads nowhere yet; give it to [`Builder::handle`](crate::Builder::handle).
    pub fn new() -> Self {
        Self::default()
    }

    /// Decides about a command, once for its id.
    pub async fn dispatch(&self, command: Command) -> Result<Dispatched> {
        self.rooms()?.dispatcher.dispatch(command).await
    }

    /// Enqueues at the end of a transaction, beside what its author writes: all of it is committed, or nothing.
    pub fn enqueue_in(&self, tx: &Tx, items: impl IntoIterator<Item = NewWork>) -> Result<()> {
        Ok(self.rooms()?.work.enqueue_in(tx, items).map(drop)?)
    }

    /// Events that are appended as work.
    pub fn appends(&self) -> Result<Appends> {
        Ok(self.rooms()?.appends.clone())
    }

    /// Long operations between two events.
    pub fn intents(&self) -> Result<Intents> {
        Ok(self.rooms()?.intents.clone())
    }

    /// Who publishes events to other contexts.
    pub fn publisher(&self) -> Result<Publisher> {
        Ok(self.rooms()?.publisher.clone())
    }

    /// The store.
    pub fn store(&self) -> Result<Store> {
        Ok(self.rooms()?.store.clone())
    }

    pub(crate) fn lead_to(&self, rooms: &Arc<Rooms>) -> Result<()> {
        let is_first = self.0.set(Arc::downgrade(rooms)).is_ok();
        let (field, reason) = ("handle".to_owned(), "leads to another house already".to_owned());
        is_first.then_some(()).ok_or(Error::Invalid { field, reason })
    }

    fn rooms(&self) -> Result<Arc<Rooms>> {
        let closed = || mainstay_store::Error::Unavailable("the house is not open here".to_owned());
        Ok(self.0.get().and_then(Weak::upgrade).ok_or_else(closed)?)
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use super::*;
    use crate::Mainstay;
    use mainstay_flows::commands::{Commands, Decision, Handling, Outcome};
    use std::time::Duration;

    fn command() -> Command {
        Command::new("Ping", &7).expect("JSON")
    }

    #[tokio::test]
    async fn a_handle_leads_to_one_house_while_that_is_open() {
        let handle = Handle::new();
        let closed = handle.dispatch(command()).await.expect_err("nothing is open");
        assert!(closed.is_retryable(), "{closed}");

        let commands =
            Commands::new().on("Ping", async |_: Handling, number: i64| Ok(Decision::success(number, [])));
        let house = Mainstay::on("sqlite::memory:").commands(commands).handle(handle.clone());
        let house = house.start().await.expect("it opens");
        let answer = handle.dispatch(command()).await.expect("it is open");
        assert!(matches!(answer.outcome, Outcome::Success { data, .. } if data.get() == "7"));

        let second = Mainstay::on("sqlite::memory:").handle(handle.clone()).start().await;
        assert_eq!(second.err().map(|error| error.code()), Some("FLOW_INVALID"));

        house.stop(Duration::from_secs(5)).await.expect("it stops");
        assert!(handle.store().is_err(), "the handle kept the house open");
    }
}
