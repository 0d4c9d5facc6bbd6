//! A running program: services, work engine and projections.

use crate::builder::Builder;
use crate::services::Services;
use mainstay_events::Log;
use mainstay_flows::Result;
use mainstay_flows::commands::{Command, Dispatched, Dispatcher};
use mainstay_flows::dead_letters::DeadLetters;
use mainstay_flows::delivery::appends::Appends;
use mainstay_flows::delivery::intents::Intents;
use mainstay_flows::delivery::publications::Publisher;
use mainstay_flows::projections::{Projecting, Projections};
use mainstay_guards::circuits::Circuits;
use mainstay_guards::limits::store::Limits;
use mainstay_store::{Options, Store};
use mainstay_work::{Engine, Work};
use std::time::Duration;

/// A program at work in this process.
pub struct Mainstay {
    services: Services,
    engine: Engine,
    projecting: Projecting,
}

impl Mainstay {
    /// Builds a program on the store of this URL: `sqlite:shop.db`, `sqlite::memory:` or `postgres://user@host/shop`.
    pub fn on(url: impl Into<String>) -> Builder {
        Self::with(Options::new(url))
    }

    /// Builds a program on the store of these options. The tables of the services are added to them.
    pub fn with(options: Options) -> Builder {
        Builder::with(options)
    }

    /// Starts the work engine and the projections of open services.
    pub async fn start(services: Services) -> Result<Self> {
        let engine = services.work.start().await?;
        let projecting = services.projections.start();
        Ok(Self { services, engine, projecting })
    }

    /// Dispatches a command, once per id.
    pub async fn dispatch(&self, command: Command) -> Result<Dispatched> {
        self.services.commands.dispatch(command).await
    }

    /// Waits until a projection has applied every event that is in the log now, for at most `timeout`. Returns the position that
    /// the projection has reached.
    pub async fn wait_for(&self, projection: &str, timeout: Duration) -> Result<u64> {
        let head = self.services.log.head().await?;
        self.services.projections.wait_for(projection, head, timeout).await
    }

    /// All services, as a server takes them.
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// The store.
    pub fn store(&self) -> &Store {
        self.services.store()
    }

    /// Event log.
    pub fn log(&self) -> &Log {
        &self.services.log
    }

    /// Work pools, timers and crons.
    pub fn work(&self) -> &Work {
        &self.services.work
    }

    /// Command dispatcher.
    pub fn dispatcher(&self) -> &Dispatcher {
        &self.services.commands
    }

    /// Projections.
    pub fn projections(&self) -> &Projections {
        &self.services.projections
    }

    /// Durable appends.
    pub fn appends(&self) -> &Appends {
        &self.services.appends
    }

    /// Intents and completions of long operations.
    pub fn intents(&self) -> &Intents {
        &self.services.intents
    }

    /// Publications to other contexts.
    pub fn publisher(&self) -> &Publisher {
        &self.services.publications
    }

    /// Dead letters of all kinds.
    pub fn dead_letters(&self) -> &DeadLetters {
        &self.services.dead_letters
    }

    /// Circuit breakers.
    pub fn circuits(&self) -> &Circuits {
        &self.services.circuits
    }

    /// Named rate limits.
    pub fn limits(&self) -> &Limits {
        &self.services.limits
    }

    /// The work engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Ends projections and work: nothing new begins, running calls get `grace` each. Then closes the store.
    pub async fn stop(self, grace: Duration) -> Result<()> {
        self.projecting.stop(grace).await;
        self.engine.stop(grace).await?;
        self.services.store().clone().close().await;
        Ok(())
    }
}
