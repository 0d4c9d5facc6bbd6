//! The inbox of a store.

use super::POOL;
use super::operations;
use super::upkeep::{self, Upkeep};
use crate::delivery::publications::Publisher;
use crate::error::{Error, Result};
use crate::projections::Projections;
use mainstay_core::ids::Ids;
use mainstay_core::retry::RetryPolicy;
use mainstay_store::{Store, Tx};
use mainstay_work::{Functions, Pool, Work, inbox};
use std::sync::{Arc, OnceLock, Weak};

/// What every part of the inbox stands on.
pub(super) struct Shared {
    pub(super) store: Store,
    pub(super) work: Work,
    pub(super) projections: Projections,
    pub(super) publisher: Publisher,
    pub(super) ids: Ids,
    pub(super) upkeep: Upkeep,
}

impl Shared {
    /// Passes a point at which tests make things fail.
    pub(super) fn pass(&self, point: &'static str) -> mainstay_store::Result<()> {
        Ok(self.store.failpoints().hit(point)?)
    }
}

/// The opened inbox, for functions that were registered before.
pub(super) type Slot = Arc<OnceLock<Weak<Shared>>>;

/// Dead letters of all kinds, and what is done about them. Clones are the same.
#[derive(Clone)]
pub struct DeadLetters {
    pub(super) shared: Arc<Shared>,
}

/// An inbox that is about to be opened.
pub struct Opening {
    slot: Slot,
    upkeep: Upkeep,
}

/// Adds what is done about letters as work, and tells where to find the inbox once it is open. Call it before the work is
/// opened.
pub fn functions(functions: Functions, upkeep: Upkeep) -> (Functions, Opening) {
    let slot = Slot::default();
    let functions = upkeep::functions(operations::functions(functions, &slot), &slot);
    (functions, Opening { slot, upkeep })
}

/// How often what is done about many letters is tried, and from which wait on: a database may be away for a while.
const ATTEMPTS: u32 = 10;
const FIRST_WAIT_MS: u64 = 250;
const LONGEST_WAIT_MS: u64 = 30_000;

impl Opening {
    /// Opens the inbox of a store that was opened with [`COMPONENT`](super::COMPONENT), over all those who have letters.
    pub async fn open(
        self,
        work: &Work,
        projections: &Projections,
        publisher: &Publisher,
    ) -> Result<DeadLetters> {
        self.upkeep.check()?;
        let store = work.store();
        let shared = Arc::new(Shared {
            store: store.clone(),
            work: work.clone(),
            projections: projections.clone(),
            publisher: publisher.clone(),
            ids: Ids::new(store.clock().clone(), store.random().clone()),
            upkeep: self.upkeep,
        });
        if let Err(mainstay_work::Error::UnknownPool(_)) = work.pool_status(POOL).await {
            let retry = RetryPolicy::new(ATTEMPTS, FIRST_WAIT_MS, 2.0, LONGEST_WAIT_MS);
            let retry = retry.map_err(|error| Error::invalid("retry", error.to_string()))?;
            work.pool(Pool::new(POOL).max_parallelism(1).retry(retry)).await?;
        }
        // Letters from before there was an inbox.
        while store.transact(async |tx: Tx| inbox::regroup(&tx).await).await? > 0 {}
        upkeep::schedule(work, &shared.upkeep).await?;
        // An opening is used up, so nobody has filled the slot.
        drop(self.slot.set(Arc::downgrade(&shared)));
        Ok(DeadLetters { shared })
    }
}

/// The opened inbox behind a slot.
pub(super) fn opened(slot: &Slot) -> mainstay_store::Result<Arc<Shared>> {
    let shared = slot.get().and_then(Weak::upgrade);
    // Another node, or this one in a moment, has it.
    shared.ok_or_else(|| mainstay_store::Error::Unavailable("dead letters are not open here".to_owned()))
}

impl std::fmt::Debug for DeadLetters {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("DeadLetters").field("upkeep", &self.shared.upkeep).finish_non_exhaustive()
    }
}
