//! Bulk operations where no server runs.
//!
//! This program is no node then. It carries the operation out, and nothing else: what is tried again waits for a server.

use crate::Result;
use mainstay::Services;
use mainstay::flows::dead_letters::{DeadLetters, Sources, Upkeep};
use mainstay::work::{Engine, Functions, Work};
use std::time::Duration;

/// Time for the chunk that runs when the operation has ended; it takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// Engine that knows the functions of bulk operations only, and the service that they are functions of.
pub(super) struct Carrier {
    engine: Engine,
    _letters: DeadLetters,
}

impl Carrier {
    pub(super) async fn start(services: &Services) -> Result<Self> {
        let work = Work::open(services.store(), Functions::new()).await?;
        let sources =
            Sources::default().with(services.projections.clone()).with(services.publications.clone());
        let letters = DeadLetters::open(&work, sources, Upkeep::none()).await?;
        Ok(Self { engine: work.start().await?, _letters: letters })
    }

    pub(super) async fn stop(self) -> Result<()> {
        Ok(self.engine.stop(PATIENCE).await?)
    }
}
