//! Definitions of a program, before its services are open.

use crate::handle::Handle;
use crate::mainstay::Mainstay;
use crate::services::{Services, components};
use mainstay_flows::Result;
use mainstay_flows::commands::Commands;
use mainstay_flows::dead_letters::Upkeep;
use mainstay_flows::delivery::Retries;
use mainstay_flows::delivery::intents::Operations;
use mainstay_flows::delivery::outbox::Outbox;
use mainstay_flows::delivery::publications::Targets;
use mainstay_flows::projections::Registry;
use mainstay_guards::circuits::Settings;
use mainstay_guards::limits::Definition;
use mainstay_store::{Options, Store};
use mainstay_work::bounds::MAX_POOLS;
use mainstay_work::http::HttpFunction;
use mainstay_work::{Functions, Pool};

/// Retries of durable appends by default, those of their pool (item 271).
const APPEND_RETRIES: Retries = Retries { max_retries: 5, initial_backoff_ms: 100, base: 2.0 };

/// Store of a builder.
enum Source {
    Options(Options),
    Store(Store),
}

type Registering = Box<dyn FnOnce(&Handle) -> Functions + Send>;
type Projecting = Box<dyn FnOnce(&Handle) -> Registry + Send>;

/// Definitions of a program: commands, projections, targets, functions, circuits, limits, outboxes, pools.
pub struct Builder {
    source: Source,
    pub(crate) commands: Commands,
    pub(crate) projections: Projecting,
    pub(crate) targets: Targets,
    pub(crate) target_circuits: Vec<(String, String)>,
    pub(crate) functions: Vec<Registering>,
    pub(crate) endpoints: Vec<(String, HttpFunction)>,
    pub(crate) circuits: Vec<(String, Settings)>,
    pub(crate) limits: Vec<(String, Definition)>,
    pub(crate) function_circuits: Vec<(String, String)>,
    pub(crate) outboxes: Vec<Outbox>,
    pub(crate) operations: Operations,
    pub(crate) append_retries: Retries,
    pub(crate) pools: Vec<Pool>,
    pub(crate) max_pools: usize,
    pub(crate) upkeep: Upkeep,
}

impl Builder {
    fn new(source: Source) -> Self {
        Self {
            source,
            commands: Commands::new(),
            projections: Box::new(|_| Registry::new()),
            targets: Targets::none(),
            target_circuits: Vec::new(),
            functions: Vec::new(),
            endpoints: Vec::new(),
            circuits: Vec::new(),
            limits: Vec::new(),
            function_circuits: Vec::new(),
            outboxes: Vec::new(),
            operations: Operations::new(),
            append_retries: APPEND_RETRIES,
            pools: Vec::new(),
            max_pools: MAX_POOLS,
            upkeep: Upkeep::none(),
        }
    }

    /// A program on the store of these options. The [components](components) of all services are added to them.
    pub fn with(options: Options) -> Self {
        Self::new(Source::Options(options))
    }

    /// A program on a store that was opened with the [components](components) of all services.
    pub fn on_store(store: Store) -> Self {
        Self::new(Source::Store(store))
    }

    /// Command handlers of this process.
    pub fn commands(self, commands: Commands) -> Self {
        Self { commands, ..self }
    }

    /// Projections of this process.
    pub fn projections(self, projections: Registry) -> Self {
        self.projections_with(|_| projections)
    }

    /// Projections that dispatch commands, enqueue work or publish: they are made when those services are open.
    pub fn projections_with(self, make: impl FnOnce(&Handle) -> Registry + Send + 'static) -> Self {
        Self { projections: Box::new(make), ..self }
    }

    /// Target contexts that this process delivers events to.
    pub fn targets(self, targets: Targets) -> Self {
        Self { targets, ..self }
    }

    /// Puts a circuit before a target: while the circuit is open, publications wait and spend no attempts.
    pub fn target_behind(mut self, target: impl Into<String>, circuit: impl Into<String>) -> Self {
        self.target_circuits.push((target.into(), circuit.into()));
        self
    }

    /// Adds functions that this process runs.
    pub fn functions(self, functions: Functions) -> Self {
        self.functions_with(|_| functions)
    }

    /// Adds functions that dispatch commands, enqueue work or publish: they are made when those services are open.
    pub fn functions_with(mut self, make: impl FnOnce(&Handle) -> Functions + Send + 'static) -> Self {
        self.functions.push(Box::new(make));
        self
    }

    /// Adds a function that is an HTTP endpoint.
    pub fn http(mut self, function: impl Into<String>, endpoint: HttpFunction) -> Self {
        self.endpoints.push((function.into(), endpoint));
        self
    }

    /// Defines a circuit, on all nodes.
    pub fn circuit(mut self, name: impl Into<String>, settings: Settings) -> Self {
        self.circuits.push((name.into(), settings));
        self
    }

    /// Defines a rate limit, on all nodes.
    pub fn limit(mut self, name: impl Into<String>, definition: Definition) -> Self {
        self.limits.push((name.into(), definition));
        self
    }

    /// Puts a circuit before a function: while the circuit is open, items wait and spend no attempts.
    pub fn behind(mut self, function: impl Into<String>, circuit: impl Into<String>) -> Self {
        self.function_circuits.push((function.into(), circuit.into()));
        self
    }

    /// Adds an outbox, which turns the ends of actions into events.
    pub fn outbox(mut self, outbox: Outbox) -> Self {
        self.outboxes.push(outbox);
        self
    }

    /// Names of the events of long operations.
    pub fn operations(self, operations: Operations) -> Self {
        Self { operations, ..self }
    }

    /// Retries of durable appends. Default: five, from 100 ms on, doubled each time.
    pub fn append_retries(self, append_retries: Retries) -> Self {
        Self { append_retries, ..self }
    }

    /// Maximum number of pools in the store, [`MAX_POOLS`] unless given. Give every node the same.
    pub fn max_pools(self, max_pools: usize) -> Self {
        Self { max_pools, ..self }
    }

    /// Adds a work pool.
    pub fn pool(mut self, pool: Pool) -> Self {
        self.pools.push(pool);
        self
    }

    /// Maintenance of dead letters. Default: none.
    pub fn dead_letters(self, upkeep: Upkeep) -> Self {
        Self { upkeep, ..self }
    }

    /// Opens every service. Nothing runs yet, and functions can be registered with `services.work`.
    pub async fn open(mut self) -> Result<Services> {
        let store = match std::mem::replace(&mut self.source, Source::Options(Options::new(""))) {
            Source::Store(store) => store,
            Source::Options(options) => {
                components().into_iter().fold(options, Options::component).open().await?
            }
        };
        Services::open(store, self).await
    }

    /// Opens every service, and starts the work engine and the projections.
    pub async fn start(self) -> Result<Mainstay> {
        Mainstay::start(self.open().await?).await
    }
}
