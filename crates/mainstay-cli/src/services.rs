//! Services of a store, as the configuration defines them.

use crate::config::{self, Config};
use crate::{Error, Result};
use mainstay::flows::delivery::publications::Targets;
use mainstay::store::Store;
use mainstay::work::{self, FunctionKind};
use mainstay::{Builder, Services};

/// Opens the services of a store for a node, with everything that the configuration defines.
pub(crate) async fn open(config: &Config, store: &Store) -> Result<Services> {
    let services = builder(config, store)?.open().await?;
    for cron in config.crons() {
        services.work.cron(cron.clone()).await.map_err(|error| match error {
            work::Error::Store(_) => Error::Work(error),
            // The cron of the file contradicts other definitions.
            other => Error::Config(vec![config.refusal(&config::crons::COLLECTION, &cron.name, other)]),
        })?;
    }
    Ok(services)
}

fn builder(config: &Config, store: &Store) -> Result<Builder> {
    let client = config::endpoint::client(config::egress::rules(config));
    let unusable = |problem| Error::Config(vec![problem]);
    let mut builder = Builder::on_store(store.clone())
        .max_pools(config::work::max_pools(config))
        .dead_letters(config::dead_letters::upkeep(config));
    for circuit in config.circuits() {
        builder = builder.circuit(&circuit.name, circuit.settings);
    }
    for limit in config.limits() {
        builder = builder.limit(&limit.name, limit.definition);
    }
    for pool in config.pools() {
        builder = builder.pool(pool.clone());
    }
    for function in config.functions() {
        builder = builder.http(&function.name, function.connect(client.clone()).map_err(unusable)?);
        if let Some(circuit) = &function.circuit {
            builder = builder.behind(&function.name, circuit);
        }
    }
    let mut targets = Targets::new(config::targets::USUAL).upkeep(config::publications::upkeep(config));
    for target in config.targets() {
        targets = targets.with(target.connect(client.clone()).map_err(unusable)?);
        if let Some(circuit) = &target.circuit {
            builder = builder.target_behind(&target.name, circuit);
        }
    }
    Ok(builder.targets(targets))
}

/// How a verb opens a store that no server holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    /// For a verb that looks: a missing store is refused, and nothing of the configuration is defined.
    Existing,
    /// A missing store is made.
    Anew,
    /// A missing store is made, and pools and functions of the configuration are declared, in case no server has run on it yet.
    Declared,
    /// A missing store is refused, and everything is defined as a server does it.
    Whole,
}

impl Opening {
    /// Whether a missing store is refused.
    pub(crate) fn is_of_existing(self) -> bool {
        matches!(self, Self::Existing | Self::Whole)
    }
}

/// Opens the services of a store for a verb. Nothing is started.
pub(crate) async fn open_for_a_verb(config: &Config, store: &Store, opening: Opening) -> Result<Services> {
    if opening == Opening::Whole {
        return open(config, store).await;
    }
    let mut builder = Builder::on_store(store.clone()).max_pools(config::work::max_pools(config));
    if opening != Opening::Declared {
        return Ok(builder.open().await?);
    }
    for pool in config.pools() {
        builder = builder.pool(pool.clone());
    }
    let services = builder.open().await?;
    for function in config.functions() {
        services.work.declare(&function.name, FunctionKind::Action).await?;
    }
    Ok(services)
}
