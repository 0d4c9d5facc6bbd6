//! The whole house, opened at once.

use mainstay_events::Log;
use mainstay_flows::Result;
use mainstay_flows::commands::{Command, Commands, Dispatched, Dispatcher};
use mainstay_store::{Options, Store};
use mainstay_work::{Engine, Functions, Pool, Work};
use std::time::Duration;

/// What an application brings: its commands, its functions, its pools.
pub struct Builder {
    options: Options,
    commands: Commands,
    functions: Functions,
    pools: Vec<Pool>,
}

impl Builder {
    /// The store with these options; the tables of the house are added to them.
    pub fn options(self, options: Options) -> Self {
        Self { options, ..self }
    }

    /// The commands that this process decides about.
    pub fn commands(self, commands: Commands) -> Self {
        Self { commands, ..self }
    }

    /// The functions that this process carries out.
    pub fn functions(self, functions: Functions) -> Self {
        Self { functions, ..self }
    }

    /// A pool that functions are carried out in.
    pub fn pool(mut self, pool: Pool) -> Self {
        self.pools.push(pool);
        self
    }

    /// Opens the store, and begins to work.
    pub async fn start(self) -> Result<Mainstay> {
        let components =
            [mainstay_events::COMPONENT, mainstay_work::COMPONENT, mainstay_flows::commands::COMPONENT];
        let store = components.into_iter().fold(self.options, Options::component).open().await?;
        let log = Log::open(&store).await?;
        let work = Work::open(&store, self.commands.functions(self.functions)).await?;
        for pool in self.pools {
            work.pool(pool).await?;
        }
        let dispatcher = Dispatcher::open(&log, &work, self.commands).await?;
        let engine = work.start().await?;
        Ok(Mainstay { store, log, work, dispatcher, engine })
    }
}

/// A store with everything that is in it, at work in this process.
pub struct Mainstay {
    store: Store,
    log: Log,
    work: Work,
    dispatcher: Dispatcher,
    engine: Engine,
}

impl Mainstay {
    /// What is in the store of this URL: `sqlite:shop.db`, `sqlite::memory:` or `postgres://user@host/shop`.
    pub fn on(url: impl Into<String>) -> Builder {
        Builder {
            options: Options::new(url),
            commands: Commands::new(),
            functions: Functions::new(),
            pools: Vec::new(),
        }
    }

    /// Decides about a command, once for its id.
    pub async fn dispatch(&self, command: Command) -> Result<Dispatched> {
        self.dispatcher.dispatch(command).await
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The work.
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// Who decides about commands.
    pub fn dispatcher(&self) -> &Dispatcher {
        &self.dispatcher
    }

    /// Begins nothing more, waits for what runs for as long as `grace`, and closes the store.
    pub async fn stop(self, grace: Duration) -> Result<()> {
        self.engine.stop(grace).await?;
        self.store.close().await;
        Ok(())
    }
}
