//! What else a store is full of: publications that came, intents that nobody has ended, a read model, and circuits.

use super::PATIENCE;
use crate::{Error, Result};
use mainstay::Services;
use mainstay::core::ids::Ids;
use mainstay::events::Event;
use mainstay::flows::delivery::intents::{Intents, NewIntent, OnTimeout};
use mainstay::flows::delivery::publications::{
    Delivery, POOL, PublicEvent, Publisher, Retry, Target, Targets,
};
use mainstay::flows::projections::{Category, Model, Projection, Registry};
use mainstay::guards::circuits::Settings;
use mainstay::store::{self, Store, Tx};
use std::time::Duration;

const NAME: &str = "bench";
/// What is written in one transaction.
const BATCH: usize = 100;
/// More than a page of them.
const CIRCUITS: usize = 100;
/// Longer than any bench: nobody is to be told of them meanwhile.
const IN_TIME: Duration = Duration::from_secs(86_400);

/// A read model of everything.
pub(super) fn registry() -> Registry {
    let take = async |_: Tx, _: Model, _: Event| Ok(());
    Registry::new().with(Projection::new(NAME, Category::View).each(take))
}

/// A target that takes everything.
pub(super) fn targets() -> Targets {
    let retry = Retry { max_retries: 0, initial_backoff_ms: 1, base: 1.0 };
    Targets::new(retry).with(Target::handler(NAME, async |_: Tx, _: Delivery| Ok(())))
}

/// What is written in one transaction: for whom, under which name, and which of them.
type Batch = (Publisher, Intents, String, std::ops::Range<usize>);

/// Writes so many of each, and waits until everything that follows from it was done.
pub(super) async fn fill(store: &Store, services: &Services, count: usize) -> Result<()> {
    // Those of an earlier bench may be there.
    let series = Ids::new(store.clock().clone(), store.random().clone()).uuid().to_string();
    for from in (0..count).step_by(BATCH) {
        let batch = (
            services.publications.clone(),
            services.intents.clone(),
            series.clone(),
            from..count.min(from + BATCH),
        );
        store.transact_with(batch, write).await?;
    }
    for number in 0..CIRCUITS {
        services.circuits.define(&format!("{NAME}.{number}"), Settings::default()).await?;
    }
    let (engine, projecting) = (services.work.start().await?, services.projections.start());
    let head = services.log.head().await?;
    while services.work.depth(POOL).await?.pending > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let caught_up = services.projections.wait_for(NAME, head, IN_TIME).await;
    projecting.stop(PATIENCE).await;
    engine.stop(PATIENCE).await?;
    caught_up.map(drop).map_err(Error::from)
}

async fn write(tx: Tx, (publisher, intents, series, numbers): Batch) -> store::Result<()> {
    for number in numbers {
        let id = format!("{series}-{number}");
        let event = PublicEvent::new(id.clone(), "mainstay.BenchNoted", &number)?;
        publisher.publish_in(&tx, &event, NAME, [NAME]).await?;
        let intent = NewIntent::new("bench", ("Bench", id), NAME, IN_TIME, OnTimeout::alert());
        intents.record_in(&tx, intent).await?;
    }
    Ok(())
}
