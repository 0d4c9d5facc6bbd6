//! The engine: what a node does about work.
//!
//! - `attendant`: one for each pool; takes items and hands them to their functions. An idle pool is a task that waits to
//!   be woken, and nothing else
//! - `floor`: what runs, and the watchman who ends what takes too long
//! - `settler`: one for each pool that is not idle; ends executions, many in one transaction
//! - `keeper`: keeps the node's lease, takes back what others left, finds new pools, tidies up
//! - `timekeeper`: lets items be ready when their time has come

mod attendant;
mod floor;
mod keeper;
mod settler;
mod timekeeper;

pub(crate) use keeper::{canceled_ones, reap_in};

use self::floor::Floor;
use crate::claim::Held;
use crate::error::{Error, Result};
use crate::lease;
use crate::next::Outcome;
use crate::pool::Pool;
use crate::work::Ground;
use mainstay_store::Tx;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

/// How long a lease lasts. A node that is silent for longer has lost its work.
pub(crate) const LEASE: Duration = Duration::from_secs(15);
/// How long to wait after something failed that is not about any item.
const PAUSE: Duration = Duration::from_millis(500);

/// A running engine. Dropping it stops it at once: what ran is found by others when its lease has run out.
pub struct Engine {
    shared: Arc<Shared>,
    tasks: Arc<Mutex<JoinSet<()>>>,
}

/// What the parts of an engine have in common.
pub(crate) struct Shared {
    ground: Arc<Ground>,
    holder: String,
    /// The lease under which this node works.
    lease: AtomicI64,
    renewing: tokio::sync::Mutex<()>,
    stop: watch::Sender<bool>,
    /// Whether the engine was dropped: what ran then is lost when its lease is over, as if the process had died.
    is_gone: AtomicBool,
    /// Woken when somebody should look by itself.
    look: watch::Sender<u64>,
    floor: Floor,
    /// How many items had been taken when the keeper last looked.
    taken: AtomicU64,
    /// The pools that are attended, by number.
    pools: Mutex<HashMap<i64, Arc<Bell>>>,
}

/// Signals to the loops of one pool.
struct Bell {
    name: String,
    /// Woken when there is something to do.
    nudge: Notify,
    is_deleted: AtomicBool,
}

impl Bell {
    fn new(name: String) -> Self {
        Self { name, nudge: Notify::new(), is_deleted: AtomicBool::new(false) }
    }

    fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Acquire)
    }

    /// The pool was deleted, so its loops end.
    fn delete(&self) {
        self.is_deleted.store(true, Ordering::Release);
        self.nudge.notify_one();
    }
}

/// What is known here of one pool's work.
struct Desk {
    pool: i64,
    name: String,
    /// Batches that are not all done.
    held: Mutex<HashMap<i64, Held>>,
    /// The pool's settings as of the last claim.
    settings: Mutex<Option<Arc<Pool>>>,
    running: AtomicUsize,
    /// Woken when something has ended.
    freed: Notify,
}

impl Desk {
    fn held(&self) -> MutexGuard<'_, HashMap<i64, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    pub(crate) async fn start(ground: Arc<Ground>) -> Result<Self> {
        let functions = ground.seal_functions();
        let holder = format!("node-{:08x}", ground.random.next_u64() as u32);
        let lease = take_lease(&ground, &holder).await?;
        let shared = Arc::new(Shared {
            ground,
            holder,
            lease: AtomicI64::new(lease),
            renewing: tokio::sync::Mutex::default(),
            stop: watch::Sender::new(false),
            is_gone: AtomicBool::new(false),
            look: watch::Sender::new(0),
            floor: Floor::default(),
            taken: AtomicU64::new(u64::MAX),
            pools: Mutex::default(),
        });
        shared.floor.watch(shared.ground.figures.clone()).map_err(mainstay_store::Error::application)?;
        for (_, circuit) in functions.circuits() {
            let shared = Arc::downgrade(&shared);
            // What may be taken has changed.
            circuit.on_change(Arc::new(move || {
                let Some(shared) = shared.upgrade() else { return false };
                shared.look.send_modify(|count| *count += 1);
                !shared.is_stopping()
            }));
        }
        let tasks: Arc<Mutex<JoinSet<()>>> = Arc::default();
        {
            let mut set = tasks.lock().unwrap_or_else(PoisonError::into_inner);
            set.spawn(keeper::keep(shared.clone(), Arc::downgrade(&tasks)));
            set.spawn(timekeeper::watch(shared.clone()));
        }
        Ok(Self { shared, tasks })
    }

    /// Stops: takes nothing new, waits for what runs for at most `grace`, and gives back the rest.
    pub async fn stop(self, grace: Duration) -> Result<()> {
        self.shared.stop.send_replace(true);
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        let all_ended = async { while tasks.join_next().await.is_some() {} };
        let is_quiet = tokio::time::timeout(grace, all_ended).await.is_ok();
        tasks.shutdown().await;
        self.shared.floor.close();
        if !is_quiet {
            tracing::info!("work still runs after the grace; it is given back");
        }
        let lease = self.shared.lease.load(Ordering::Relaxed);
        let end = async |tx: Tx, (ground, lease): (Arc<Ground>, i64)| {
            lease::give_up(&tx, lease).await?;
            reap_in(&ground, &tx, lease, &Outcome::Lost).await
        };
        self.shared.ground.store.transact_with((self.shared.ground.clone(), lease), end).await?;
        Ok(())
    }

    /// Lets every part look by itself, as it does now and then: for tests that move the clock.
    #[doc(hidden)]
    pub fn look_around(&self) {
        self.shared.look.send_modify(|count| *count += 1);
    }

    /// The lease that the node works under.
    #[doc(hidden)]
    pub fn lease(&self) -> i64 {
        self.shared.lease.load(Ordering::Relaxed)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.is_gone.store(true, Ordering::Release);
        self.shared.stop.send_replace(true);
        self.shared.floor.close();
    }
}

async fn take_lease(ground: &Ground, holder: &str) -> mainstay_store::Result<i64> {
    let take = async |tx: Tx, (holder, for_ms): (String, i64)| lease::take(&tx, &holder, for_ms).await;
    ground.store.transact_with((holder.to_owned(), ground.lease_ms), take).await
}

impl Shared {
    /// How often a lease is extended: two of three may be missed.
    fn extend_every(&self) -> Duration {
        Duration::from_millis(self.ground.lease_ms.unsigned_abs() / 3)
    }

    /// Makes a lease last; false when it is over.
    async fn extend(&self, lease: i64) -> mainstay_store::Result<bool> {
        let extend = async |tx: Tx, (lease, for_ms): (i64, i64)| lease::extend(&tx, lease, for_ms).await;
        self.ground.store.transact_with((lease, self.ground.lease_ms), extend).await
    }

    fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Ready when the engine stops.
    async fn stopped(&self) {
        // The sender lives as long as this.
        drop(self.stop.subscribe().wait_for(|is_stopping| *is_stopping).await);
    }

    /// Waits a moment, unless the engine stops.
    async fn pause(&self, moment: Duration) {
        tokio::select! {
            () = self.stopped() => {}
            () = tokio::time::sleep(moment) => {}
        }
    }

    /// The lease is over: whatever runs under it does not count any more, and the node begins anew.
    async fn renew(&self, lost: i64) {
        let _one_at_a_time = self.renewing.lock().await;
        if self.lease.load(Ordering::Acquire) != lost {
            return;
        }
        self.ground.figures.lost.increment();
        tracing::warn!(lease = lost, "the lease is over; what ran under it is dropped");
        self.floor.lose_all();
        while !self.is_stopping() {
            match take_lease(&self.ground, &self.holder).await {
                Ok(lease) => return self.lease.store(lease, Ordering::Release),
                Err(error) => self.endure(&error.into(), "taking a lease").await,
            }
        }
    }

    /// Deals with a failure that is not about any item.
    async fn recover(&self, lease: i64, error: &Error, what: &str) {
        if matches!(error, Error::LeaseLost(_)) {
            self.renew(lease).await;
        } else {
            self.endure(error, what).await;
        }
    }

    /// Tells that the store has failed, and waits a moment before it is tried again.
    async fn endure(&self, error: &Error, what: &str) {
        self.ground.figures.store_failures.increment();
        tracing::warn!(%error, code = error.code(), "{what} failed; trying again");
        self.pause(PAUSE).await;
    }
}

/// What a simulation drives by itself.
#[cfg(test)]
pub(crate) mod parts {
    pub(crate) use super::keeper::{reap_in, tidy};
    pub(crate) use super::timekeeper::make_ready;
    pub(crate) use crate::blame::{Blame, adjust, blame, suspect};
}
