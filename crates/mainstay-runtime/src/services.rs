//! Services of a store, and the order in which they are opened.

use crate::builder::Builder;
use crate::handle::Handle;
use mainstay_events::Log;
use mainstay_flows::Result;
use mainstay_flows::commands::Dispatcher;
use mainstay_flows::dead_letters::{self, DeadLetters, Sources};
use mainstay_flows::delivery::appends::Appends;
use mainstay_flows::delivery::intents::{self, Intents};
use mainstay_flows::delivery::publications::{self, Publisher};
use mainstay_flows::projections::{Projections, Registry};
use mainstay_flows::{commands, projections};
use mainstay_guards::circuits::{self, Circuits};
use mainstay_guards::limits::store::{self as limits, Limits};
use mainstay_store::Store;
use mainstay_store::migrations::Component;
use mainstay_work::{Functions, Work};
use std::sync::Arc;

/// Tables of the services; a store is opened with them.
pub fn components() -> [Component; 9] {
    [
        mainstay_events::COMPONENT,
        commands::COMPONENT,
        projections::COMPONENT,
        intents::COMPONENT,
        publications::COMPONENT,
        mainstay_work::COMPONENT,
        dead_letters::COMPONENT,
        circuits::COMPONENT,
        limits::COMPONENT,
    ]
}

/// Services of a store, open. Clones are the same.
#[derive(Clone)]
pub struct Services {
    /// Event log.
    pub log: Log,
    /// Command dispatcher.
    pub commands: Dispatcher,
    /// Projections.
    pub projections: Projections,
    /// Durable appends.
    pub appends: Appends,
    /// Intents and completions of long operations.
    pub intents: Intents,
    /// Publications to other contexts.
    pub publications: Publisher,
    /// Dead letters of all kinds.
    pub dead_letters: DeadLetters,
    /// Work pools, timers and crons.
    pub work: Work,
    /// Circuit breakers.
    pub circuits: Circuits,
    /// Named rate limits.
    pub limits: Limits,
    connected: Arc<Connected>,
}

/// Services that a [`Handle`] gives to functions and projections, which are made after them.
pub(crate) struct Connected {
    pub(crate) work: Work,
    pub(crate) commands: Dispatcher,
    pub(crate) appends: Appends,
    pub(crate) intents: Intents,
    pub(crate) publications: Publisher,
}

impl Services {
    /// Opens the services, each after those that it uses. A service registers its functions itself.
    pub(crate) async fn open(store: Store, builder: Builder) -> Result<Self> {
        let log = Log::open(&store).await?;
        let limits = Limits::open(store.clone()).await.map_err(guards)?;
        for (name, definition) in builder.limits {
            limits.declare(&name, definition).await.map_err(guards)?;
        }
        let circuits = Circuits::open(&store).await.map_err(guards)?;
        for (name, settings) in builder.circuits {
            circuits.declare(&name, settings).await.map_err(guards)?;
        }
        let circuit =
            |name: &str| Ok::<_, mainstay_flows::Error>(Arc::new(circuits.circuit(name).map_err(guards)?));

        let work = Work::open(&store, Functions::new().tell_circuits(&circuits)).await?;
        work.max_pools(builder.max_pools);
        for pool in builder.pools {
            work.pool(pool).await?;
        }
        let mut targets = builder.targets;
        for (target, name) in &builder.target_circuits {
            targets = targets.behind(target, circuit(name)?)?;
        }
        let connected = Arc::new(Connected {
            appends: Appends::open(&log, &work, builder.append_retries).await?,
            intents: Intents::open(&log, &work, builder.operations).await?,
            commands: Dispatcher::open(&log, &work, builder.commands).await?,
            publications: Publisher::open(&log, &work, targets).await?,
            work: work.clone(),
        });

        let handle = Handle::new(&connected);
        for make in builder.functions {
            work.register(make(&handle)).await?;
        }
        let mut functions = Functions::new();
        for (name, endpoint) in builder.endpoints {
            functions = functions.http(name, endpoint, &store);
        }
        for (function, name) in builder.function_circuits {
            functions = functions.behind(function, circuit(&name)?);
        }
        functions = builder.outboxes.into_iter().fold(functions, |all, outbox| outbox.functions(all, &log));
        work.register(functions).await?;

        let registry = (builder.projections)(&handle);
        let registry = connected.publications.forwardings().fold(registry, Registry::with);
        let projections = Projections::open(&store, &log, &work, registry).await?;
        let sources = Sources::default().with(projections.clone()).with(connected.publications.clone());
        let dead_letters = DeadLetters::open(&work, sources, builder.upkeep).await?;
        let Connected { commands, appends, intents, publications, .. } = &*connected;
        Ok(Self {
            log,
            commands: commands.clone(),
            projections,
            appends: appends.clone(),
            intents: intents.clone(),
            publications: publications.clone(),
            dead_letters,
            work,
            circuits,
            limits,
            connected,
        })
    }

    /// The store.
    pub fn store(&self) -> &Store {
        self.work.store()
    }

    /// A reference for functions that are registered after the services were opened.
    pub fn handle(&self) -> Handle {
        Handle::new(&self.connected)
    }
}

/// An error of the guards as one of the flows, which know the store's.
fn guards(error: mainstay_guards::Error) -> mainstay_flows::Error {
    mainstay_store::Error::from(error).into()
}
