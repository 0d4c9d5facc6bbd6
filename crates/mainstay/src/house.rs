//! The whole house, opened at once.

use crate::handle::Handle;
use mainstay_events::Log;
use mainstay_flows::Result;
use mainstay_flows::commands::{Command, Commands, Dispatched, Dispatcher};
use mainstay_flows::dead_letters::{self, DeadLetters, Upkeep};
use mainstay_flows::delivery::Retries;
use mainstay_flows::delivery::appends::{self, Appends};
use mainstay_flows::delivery::intents::{Intents, Operations};
use mainstay_flows::delivery::outbox::Outbox;
use mainstay_flows::delivery::publications::{Publisher, Targets};
use mainstay_flows::projections::{Projecting, Projections, Registry};
use mainstay_guards::circuits::{self, Circuits, Settings};
use mainstay_guards::limits::store::{self as limits, Limits};
use mainstay_store::{Options, Store};
use mainstay_work::http::HttpFunction;
use mainstay_work::{Engine, Functions, Pool, Work};
use std::sync::Arc;
use std::time::Duration;

/// How durable appends are tried again unless an application says otherwise: as their pool does (item 271).
const APPEND_RETRIES: Retries = Retries { max_retries: 5, initial_backoff_ms: 100, base: 2.0 };

/// What an application brings: its commands, its projections, its targets, its functions, its circuits, its outboxes, its
/// pools.
pub struct Builder {
    options: Options,
    commands: Commands,
    projections: Registry,
    targets: Targets,
    functions: Functions,
    endpoints: Vec<(String, HttpFunction)>,
    circuits: Vec<(String, Settings)>,
    behind: Vec<(String, String)>,
    outboxes: Vec<Outbox>,
    operations: Operations,
    append_retries: Retries,
    pools: Vec<Pool>,
    upkeep: Upkeep,
    handle: Handle,
}

impl Builder {
    /// The commands that this process decides about.
    pub fn commands(self, commands: Commands) -> Self {
        Self { commands, ..self }
    }

    /// The read models that this process keeps.
    pub fn projections(self, projections: Registry) -> Self {
        Self { projections, ..self }
    }

    /// The contexts that this process delivers events to.
    pub fn targets(self, targets: Targets) -> Self {
        Self { targets, ..self }
    }

    /// The functions that this process carries out.
    pub fn functions(self, functions: Functions) -> Self {
        Self { functions, ..self }
    }

    /// A function that an endpoint elsewhere carries out.
    pub fn http(mut self, function: impl Into<String>, endpoint: HttpFunction) -> Self {
        self.endpoints.push((function.into(), endpoint));
        self
    }

    /// How a circuit is set, on all nodes.
    pub fn circuit(mut self, name: impl Into<String>, settings: Settings) -> Self {
        self.circuits.push((name.into(), settings));
        self
    }

    /// Puts a circuit before a function: while it is open, its items wait and spend no attempts.
    pub fn behind(mut self, function: impl Into<String>, circuit: impl Into<String>) -> Self {
        self.behind.push((function.into(), circuit.into()));
        self
    }

    /// What turns the ends of actions into events.
    pub fn outbox(mut self, outbox: Outbox) -> Self {
        self.outboxes.push(outbox);
        self
    }

    /// What the events of long operations are called.
    pub fn operations(self, operations: Operations) -> Self {
        Self { operations, ..self }
    }

    /// How durable appends are tried again; five times from 100 ms on, doubled each time, unless given.
    pub fn append_retries(self, append_retries: Retries) -> Self {
        Self { append_retries, ..self }
    }

    /// A pool that functions are carried out in.
    pub fn pool(mut self, pool: Pool) -> Self {
        self.pools.push(pool);
        self
    }

    /// What is done about dead letters by itself; nothing unless given.
    pub fn dead_letters(self, upkeep: Upkeep) -> Self {
        Self { upkeep, ..self }
    }

    /// Lets a handle lead to this house, once it is open.
    pub fn handle(self, handle: Handle) -> Self {
        Self { handle, ..self }
    }

    /// Opens the store, and begins to work.
    pub async fn start(self) -> Result<Mainstay> {
        let components = [
            mainstay_events::COMPONENT,
            mainstay_work::COMPONENT,
            mainstay_flows::commands::COMPONENT,
            mainstay_flows::projections::COMPONENT,
            mainstay_flows::delivery::intents::COMPONENT,
            mainstay_flows::delivery::publications::COMPONENT,
            dead_letters::COMPONENT,
            circuits::COMPONENT,
            limits::COMPONENT,
        ];
        let store = components.into_iter().fold(self.options, Options::component).open().await?;
        let log = Log::open(&store).await?;
        let circuits = Circuits::open(&store).await.map_err(guards)?;
        for (name, settings) in self.circuits {
            circuits.define(&name, settings).await.map_err(guards)?;
        }
        let limits = Limits::open(store.clone()).await.map_err(guards)?;
        let endpoints = self.endpoints.into_iter();
        let mut functions =
            endpoints.fold(self.functions, |all, (name, endpoint)| all.http(name, endpoint, &store));
        for (function, circuit) in self.behind {
            functions = functions.behind(function, Arc::new(circuits.circuit(&circuit).map_err(guards)?));
        }
        let functions = functions.tell_circuits(&circuits);
        let functions = self.projections.functions(self.commands.functions(functions));
        let functions = self.targets.functions(functions);
        let functions = self.outboxes.into_iter().fold(functions, |all, outbox| outbox.functions(all, &log));
        let (functions, intents) = self.operations.functions(appends::functions(functions, &log));
        let (functions, letters) = dead_letters::functions(functions, self.upkeep);
        let work = Work::open(&store, functions).await?;
        for pool in self.pools {
            work.pool(pool).await?;
        }
        let appends = Appends::open(&log, &work, self.append_retries).await?;
        let intents = intents.open(&log, &work);
        let dispatcher = Dispatcher::open(&log, &work, self.commands).await?;
        let projections = Projections::open(&store, &log, &work, self.projections).await?;
        let publisher = Publisher::open(&log, &work, self.targets).await?;
        let letters = letters.open(&work, &projections, &publisher).await?;
        let rooms = Arc::new(Rooms {
            store,
            log,
            work,
            dispatcher,
            projections,
            appends,
            intents,
            publisher,
            letters,
            circuits,
            limits,
        });
        // Before anything runs that may ask for it.
        self.handle.lead_to(&rooms)?;
        let engine = rooms.work.start().await?;
        let projecting = rooms.projections.start();
        Ok(Mainstay { rooms, engine, projecting })
    }
}

/// What the guards refuse, as the rest of the house says it.
fn guards(error: mainstay_guards::Error) -> mainstay_flows::Error {
    mainstay_store::Error::from(error).into()
}

/// What is in a store, opened.
pub(crate) struct Rooms {
    pub(crate) store: Store,
    pub(crate) log: Log,
    pub(crate) work: Work,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) projections: Projections,
    pub(crate) appends: Appends,
    pub(crate) intents: Intents,
    pub(crate) publisher: Publisher,
    pub(crate) letters: DeadLetters,
    pub(crate) circuits: Circuits,
    pub(crate) limits: Limits,
}

/// A store with everything that is in it, at work in this process.
pub struct Mainstay {
    rooms: Arc<Rooms>,
    engine: Engine,
    projecting: Projecting,
}

impl Mainstay {
    /// What is in the store of this URL: `sqlite:shop.db`, `sqlite::memory:` or `postgres://user@host/shop`.
    pub fn on(url: impl Into<String>) -> Builder {
        Self::with(Options::new(url))
    }

    /// What is in the store of these options; the tables of the house are added to them.
    pub fn with(options: Options) -> Builder {
        Builder {
            options,
            commands: Commands::new(),
            projections: Registry::new(),
            targets: Targets::none(),
            functions: Functions::new(),
            endpoints: Vec::new(),
            circuits: Vec::new(),
            behind: Vec::new(),
            outboxes: Vec::new(),
            operations: Operations::new(),
            append_retries: APPEND_RETRIES,
            pools: Vec::new(),
            upkeep: Upkeep::none(),
            handle: Handle::new(),
        }
    }

    /// Decides about a command, once for its id.
    pub async fn dispatch(&self, command: Command) -> Result<Dispatched> {
        self.rooms.dispatcher.dispatch(command).await
    }

    /// Waits until a read model shows everything that is in the log now, for at most `patience`; up to where that is.
    pub async fn wait_for(&self, projection: &str, patience: Duration) -> Result<u64> {
        let head = self.rooms.log.head().await?;
        self.rooms.projections.wait_for(projection, head, patience).await
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.rooms.store
    }

    /// The log.
    pub fn log(&self) -> &Log {
        &self.rooms.log
    }

    /// The work.
    pub fn work(&self) -> &Work {
        &self.rooms.work
    }

    /// Who decides about commands.
    pub fn dispatcher(&self) -> &Dispatcher {
        &self.rooms.dispatcher
    }

    /// The read models.
    pub fn projections(&self) -> &Projections {
        &self.rooms.projections
    }

    /// Events that are appended as work.
    pub fn appends(&self) -> &Appends {
        &self.rooms.appends
    }

    /// Long operations between two events.
    pub fn intents(&self) -> &Intents {
        &self.rooms.intents
    }

    /// Who publishes events to other contexts.
    pub fn publisher(&self) -> &Publisher {
        &self.rooms.publisher
    }

    /// Everything that failed for good, and what is done about it.
    pub fn dead_letters(&self) -> &DeadLetters {
        &self.rooms.letters
    }

    /// What stands before calls to services that may not be well.
    pub fn circuits(&self) -> &Circuits {
        &self.rooms.circuits
    }

    /// The limits that have names.
    pub fn limits(&self) -> &Limits {
        &self.rooms.limits
    }

    /// Who carries work out.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Begins nothing more, waits for what runs for as long as `grace` each for read models and work, and closes the store.
    pub async fn stop(self, grace: Duration) -> Result<()> {
        self.projecting.stop(grace).await;
        self.engine.stop(grace).await?;
        self.rooms.store.clone().close().await;
        Ok(())
    }
}
