//! The application, opened at once.

use crate::integration::{self, ORDER_INTEGRATION};
use crate::inventory::{self, Products, Reservations};
use crate::notifications::Notifications;
use crate::orders::Orders;
use crate::payments::{PaymentProvider, Payments};
use crate::{processes, projections};
use mainstay::Mainstay;
use mainstay::flows::Result;
use mainstay::flows::commands::{Command, Commands, Dispatched};
use mainstay::flows::delivery::publications::{Publication, Webhook};
use mainstay::flows::projections::Registry;
use mainstay::store::{Options, Store};
use mainstay::work::Functions;
use serde::Serialize;
use std::time::Duration;

/// Services beside the application.
#[derive(Default)]
pub struct Neighbours {
    /// Who tells customers of their orders; nobody does unless given.
    pub notifications: Option<Webhook>,
    /// Who moves the money. Where somebody does, a submitted order is fulfilled by itself.
    pub payments: Option<PaymentProvider>,
}

/// The application, at work in this process.
pub struct OrderManagement {
    mainstay: Mainstay,
}

impl OrderManagement {
    /// Opens the store with these options, and begins to work on it.
    pub async fn open(options: Options) -> Result<Self> {
        Self::open_among(options, Neighbours::default()).await
    }

    /// The same beside a service of notifications, which is told of orders.
    pub async fn open_beside(options: Options, notifications: Option<Webhook>) -> Result<Self> {
        Self::open_among(options, Neighbours { notifications, ..Neighbours::default() }).await
    }

    /// The same among services of others.
    pub async fn open_among(options: Options, neighbours: Neighbours) -> Result<Self> {
        let Neighbours { notifications, payments } = neighbours;
        let commands = Commands::new().decider(Orders).decider(Products).decider(Reservations);
        let commands = commands.decider(Notifications).decider(Payments);
        let has_payments = payments.is_some();
        let options = options.component(processes::COMPONENT).component(inventory::COMPONENT);
        let mut builder = Mainstay::with(options)
            .commands(commands)
            .projections_with(move |handle| {
                let registry = processes::all(projections::all(Registry::new()), handle);
                if has_payments { processes::fulfilment(registry, handle) } else { registry }
            })
            .targets(integration::targets(notifications))
            .functions_with(|handle| processes::functions(Functions::new(), handle))
            .pool(processes::pool());
        if let Some(provider) = payments {
            builder = processes::provider(builder, provider);
        }
        let mainstay = builder.start().await?;
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

    /// Waits until an event was brought to all whom it was published to, or given up, for at most `patience` each time;
    /// where it stands with each.
    pub async fn published(&self, event_id: &str, patience: Duration) -> Result<Vec<Publication>> {
        self.wait_for(ORDER_INTEGRATION, patience).await?;
        let publisher = self.mainstay.publisher();
        for publication in publisher.status(event_id).await? {
            if let Some(work_id) = publication.work_id {
                self.mainstay.work().wait_for(&work_id, patience).await?;
            }
        }
        publisher.status(event_id).await
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
