//! The rooms of a store as the configuration has them: its circuits and limits, its pools, the functions that are HTTP
//! endpoints, the targets of publications, and its crons.

use crate::config::{self, Config};
use crate::{Error, Result};
use mainstay::events::Log;
use mainstay::flows::commands::{Commands, Dispatcher};
use mainstay::flows::dead_letters;
use mainstay::flows::delivery::intents::Operations;
use mainstay::flows::delivery::publications::{Publisher, Targets};
use mainstay::flows::projections::{Projections, Registry};
use mainstay::guards::circuits::Circuits;
use mainstay::guards::limits::store::Limits;
use mainstay::store::Store;
use mainstay::work::{self, FunctionKind, Functions, Work};
use mainstay_server::Rooms;
use std::sync::Arc;

/// Opens the rooms of a store for a node that carries out work, and declares what the configuration says.
pub(crate) async fn open(config: &Config, store: &Store) -> Result<Rooms> {
    let (circuits, limits) = (Circuits::open(store).await?, Limits::open(store.clone()).await?);
    for circuit in config.circuits() {
        circuits.define(&circuit.name, circuit.settings).await?;
    }
    for limit in config.limits() {
        limits.define(&limit.name, limit.definition).await?;
    }
    let client = config::endpoint::client(config::egress::rules(config));
    let mut functions = Functions::new();
    for function in config.functions() {
        let called = function.connect(client.clone()).map_err(|problem| Error::Config(vec![problem]))?;
        functions = functions.http(&function.name, called, store);
        if let Some(circuit) = &function.circuit {
            functions = functions.behind(&function.name, Arc::new(circuits.circuit(circuit)?));
        }
    }
    let mut targets = Targets::new(config::targets::USUAL).upkeep(config::publications::upkeep(config));
    for target in config.targets() {
        let mut made = target.connect(client.clone()).map_err(|problem| Error::Config(vec![problem]))?;
        if let Some(circuit) = &target.circuit {
            made = made.behind(Arc::new(circuits.circuit(circuit)?));
        }
        targets = targets.with(made);
    }
    let (log, commands, projections) = (Log::open(store).await?, Commands::new(), Registry::new());
    let functions = targets.functions(projections.functions(commands.functions(functions)));
    let (functions, intents) = Operations::new().functions(functions);
    let (functions, letters) = dead_letters::functions(functions, config::dead_letters::upkeep(config));
    let work = Work::open(store, functions).await?;
    let intents = intents.open(&log, &work);
    for pool in config.pools() {
        work.pool(pool.clone()).await?;
    }
    for cron in config.crons() {
        work.cron(cron.clone()).await.map_err(|error| match error {
            work::Error::Store(_) => Error::Work(error),
            // What the file says about it does not go with what else is there.
            other => Error::Config(vec![config.refusal(&config::crons::COLLECTION, &cron.name, other)]),
        })?;
    }
    let commands = Dispatcher::open(&log, &work, commands).await?;
    let projections = Projections::open(store, &log, &work, projections).await?;
    let publications = Publisher::open(&log, &work, targets).await?;
    let dead_letters = letters.open(&work, &projections, &publications).await?;
    Ok(Rooms { log, commands, projections, intents, publications, dead_letters, work, circuits, limits })
}

/// Opens the work of a store for somebody who asks for things to be done, and knows the pools and functions of the
/// configuration although no server was there yet.
pub(crate) async fn open_to_ask(config: &Config, store: &Store) -> Result<Work> {
    let work = Work::open(store, Functions::new()).await?;
    for pool in config.pools() {
        work.pool(pool.clone()).await?;
    }
    for function in config.functions() {
        work.declare(&function.name, FunctionKind::Action).await?;
    }
    Ok(work)
}
