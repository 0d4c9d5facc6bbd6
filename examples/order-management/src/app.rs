//! The application, opened at once.

use crate::inventory::{Products, Reservations};
use crate::notifications::Notifications;
use crate::orders::Orders;
use crate::{processes, projections};
use mainstay::flows::Result;
use mainstay::flows::commands::{Command, Commands, Dispatched};
use mainstay::flows::projections::Registry;
use mainstay::store::{Options, Store};
use mainstay::work::Functions;
use mainstay::{Handle, Mainstay};
use serde::Serialize;
use std::time::Duration;

/// The application, at work in this process.
pub struct OrderManagement {
    mainstay: Mainstay,
}

impl OrderManagement {
    /// Opens the store with these options, and begins to work on it.
    pub async fn open(options: Options) -> Result<Self> {
        let handle = Handle::new();
        let commands =
            Commands::new().decider(Orders).decider(Products).decider(Reservations).decider(Notifications);
        let mainstay = Mainstay::with(options.component(processes::COMPONENT))
            .commands(commands)
            .projections(processes::all(projections::all(Registry::new()), &handle))
            .functions(processes::functions(Functions::new(), &handle))
            .pool(processes::pool())
            .handle(handle)
            .start()
            .await?;
        mainstay.work().cron(processes::cron()?).await?;
        Ok(Self { mainstay })
    }

    /// Decides about a command: a variant of one of the enums of commands.
    pub async fn dispatch(&self, command: &impl Serialize) -> Result<Dispatched> {
        self.mainstay.dispatch(Command::of(command)?).await
    }

    /// Waits until a read model shows everything that is in the log now, for at most `patience`.
    pub async fn wait_for(&self, projection: &str, patience: Duration) -> Result<()> {
        self.mainstay.wait_for(projection, patience).await.map(drop)
    }

    /// The store, with the read models in it.
    pub fn store(&self) -> &Store {
        self.mainstay.store()
    }

    /// All the rest.
    pub fn mainstay(&self) -> &Mainstay {
        &self.mainstay
    }

    /// Begins nothing more, waits for what runs, and closes the store.
    pub async fn stop(self, grace: Duration) -> Result<()> {
        self.mainstay.stop(grace).await
    }
}
