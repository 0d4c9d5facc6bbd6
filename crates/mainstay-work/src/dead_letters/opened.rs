//! The inbox of a store.

use super::POOL;
use super::operations;
use super::upkeep::{self, Upkeep};
use crate::error::{Error, Result};
use crate::inbox::{self, Kind, Source};
use crate::service::ServiceRef;
use crate::{Functions, Pool, Work};
use mainstay_core::failpoints::Point;
use mainstay_core::ids::Ids;
use mainstay_core::retry::RetryPolicy;
use mainstay_store::{Store, Tx};
use std::sync::Arc;

/// Sources of dead letters other than work. Letters of the first ones are held first in every transaction.
#[derive(Default)]
pub struct Sources(Vec<Arc<dyn Source>>);

impl Sources {
    /// Adds a source.
    #[must_use]
    pub fn with(mut self, source: impl Source) -> Self {
        self.0.push(Arc::new(source));
        self
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &dyn Source> {
        self.0.iter().map(|source| &**source)
    }

    pub(super) fn of(&self, kind: &Kind) -> Option<&dyn Source> {
        self.iter().find(|source| source.keeps(kind))
    }
}

/// What every part of the inbox stands on.
pub(super) struct Shared {
    pub(super) store: Store,
    pub(super) work: Work,
    pub(super) sources: Sources,
    pub(super) ids: Ids,
    pub(super) upkeep: Upkeep,
}

impl Shared {
    /// Passes a failpoint.
    pub(super) fn pass(&self, point: Point) -> mainstay_store::Result<()> {
        Ok(self.store.failpoints().hit(point)?)
    }
}

/// Dead letters of all kinds, and what is done about them. Clones are the same.
#[derive(Clone)]
pub struct DeadLetters {
    pub(super) shared: Arc<Shared>,
}

/// How often what is done about many letters is tried, and from which wait on: a database may be away for a while.
const ATTEMPTS: u32 = 10;
const FIRST_WAIT_MS: u64 = 250;
const LONGEST_WAIT_MS: u64 = 30_000;

impl DeadLetters {
    /// Opens the inbox of a store that was opened with [`COMPONENT`](super::COMPONENT), over work and other sources of dead
    /// letters, and registers its functions. Call it before the engine starts.
    pub async fn open(work: &Work, sources: Sources, upkeep: Upkeep) -> Result<Self> {
        upkeep.check()?;
        let store = work.store();
        let shared = Arc::new(Shared {
            store: store.clone(),
            work: work.clone(),
            sources: sources.with(work.clone()),
            ids: Ids::new(store.clock().clone(), store.random().clone()),
            upkeep,
        });
        let service = ServiceRef::new("deadLetters", &shared);
        let functions = upkeep::functions(operations::functions(Functions::new(), &service), &service);
        work.register(functions).await?;
        let retry = RetryPolicy::new(ATTEMPTS, FIRST_WAIT_MS, 2.0, LONGEST_WAIT_MS);
        let retry = retry.map_err(|error| Error::invalid("retry", error.to_string()))?;
        work.ensure_pool(Pool::new(POOL).max_parallelism(1).retry(retry)).await?;
        // Letters from before there was an inbox.
        while store.transact(async |tx: Tx| inbox::regroup(&tx).await).await? > 0 {}
        upkeep::schedule(work, &shared.upkeep).await?;
        Ok(Self { shared })
    }
}

impl std::fmt::Debug for DeadLetters {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("DeadLetters").field("upkeep", &self.shared.upkeep).finish_non_exhaustive()
    }
}
