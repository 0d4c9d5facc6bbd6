//! The rooms of the house that a server opens its doors to.

use crate::Result;
use mainstay_events::Log;
use mainstay_flows::commands::{Commands, Dispatcher};
use mainstay_flows::dead_letters::{self, DeadLetters, Upkeep};
use mainstay_flows::delivery::intents::{Intents, Operations};
use mainstay_flows::delivery::publications::{Publisher, Targets};
use mainstay_flows::projections::{Projections, Registry};
use mainstay_guards::circuits::Circuits;
use mainstay_guards::limits::store::Limits;
use mainstay_store::Store;
use mainstay_work::{Functions, Work};

/// What is kept in a store, as a program has opened it. Clones are the same.
#[derive(Clone)]
pub struct Rooms {
    /// Its log.
    pub log: Log,
    /// Who decides about commands.
    pub commands: Dispatcher,
    /// Its read models.
    pub projections: Projections,
    /// Its intents.
    pub intents: Intents,
    /// Who publishes events to other contexts.
    pub publications: Publisher,
    /// Its dead letters.
    pub dead_letters: DeadLetters,
    /// Its work.
    pub work: Work,
    /// Its circuits.
    pub circuits: Circuits,
    /// Its limits.
    pub limits: Limits,
}

impl Rooms {
    /// Opens what is in a store that was opened with the [components](crate::components) of a server.
    pub async fn open(store: &Store) -> Result<Self> {
        Self::open_with(store, Commands::new(), Registry::new(), |_| Functions::new()).await
    }

    /// As [`open`](Self::open), for a node that decides about commands, keeps read models and has functions, which may
    /// stand behind circuits.
    pub async fn open_with(
        store: &Store,
        commands: Commands,
        projections: Registry,
        functions: impl FnOnce(&Circuits) -> Functions,
    ) -> Result<Self> {
        Self::open_publishing(store, commands, projections, Targets::none(), functions).await
    }

    /// As [`open_with`](Self::open_with), for a node that delivers events to targets.
    pub async fn open_publishing(
        store: &Store,
        commands: Commands,
        projections: Registry,
        targets: Targets,
        functions: impl FnOnce(&Circuits) -> Functions,
    ) -> Result<Self> {
        let log = Log::open(store).await?;
        let circuits = Circuits::open(store).await?;
        let limits = Limits::open(store.clone()).await?;
        let functions = projections.functions(commands.functions(functions(&circuits)));
        let functions = targets.functions(functions);
        let (functions, intents) = Operations::new().functions(functions);
        let (functions, letters) = dead_letters::functions(functions, Upkeep::none());
        let work = Work::open(store, functions).await?;
        let intents = intents.open(&log, &work);
        let commands = Dispatcher::open(&log, &work, commands).await?;
        let projections = Projections::open(store, &log, &work, projections).await?;
        let publications = Publisher::open(&log, &work, targets).await?;
        let dead_letters = letters.open(&work, &projections, &publications).await?;
        Ok(Self { log, commands, projections, intents, publications, dead_letters, work, circuits, limits })
    }
}
