//! What the handles, the keeper and the operators of a store's circuits have in common.

use super::MAX_CIRCUITS;
use super::figures::Figures;
use super::interest::Interest;
use super::keeper;
use super::local::{Core, Report};
use super::record::{Record, Status};
use crate::{Error, Result};
use mainstay_core::circuit::{Standing, State};
use mainstay_core::ids::Ids;
use mainstay_store::{Store, Tx};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::Instant;

/// What the handles, the keeper and the operators have in common.
pub(super) struct Shared {
    pub(super) store: Store,
    pub(super) figures: Arc<Figures>,
    ids: Ids,
    /// Every circuit that is in the database or in use here.
    cores: Mutex<HashMap<Arc<str>, Arc<Core>>>,
    /// Those of which the database is to be told something.
    dirty: Mutex<Vec<Arc<Core>>>,
    pub(super) signal: Arc<Notify>,
    /// The database's time at a moment of ours.
    time: Mutex<(Instant, i64)>,
    began: Instant,
    /// Which of the nodes this is.
    pub(super) node: i64,
    /// Held by whoever writes reports.
    pub(super) writing: tokio::sync::Mutex<keeper::Unheard>,
    /// Held by whoever looks at the database and the clock: two at once would each act upon the other's time.
    pub(super) looking: tokio::sync::Mutex<()>,
    interest: Interest,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The keeper finds out that there is nothing left to keep.
        self.signal.notify_one();
    }
}

impl Shared {
    pub(super) fn new(store: &Store) -> Self {
        Self {
            store: store.clone(),
            figures: Arc::default(),
            ids: Ids::new(store.clock().clone(), store.random().clone()),
            cores: Mutex::default(),
            dirty: Mutex::default(),
            signal: Arc::default(),
            time: Mutex::new((Instant::now(), store.clock().now_ms())),
            began: Instant::now(),
            node: store.random().next_u64().cast_signed(),
            writing: tokio::sync::Mutex::default(),
            looking: tokio::sync::Mutex::default(),
            interest: Interest::default(),
        }
    }

    fn cores(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Core>>> {
        self.cores.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn all_cores(&self) -> Vec<Arc<Core>> {
        self.cores().values().cloned().collect()
    }

    /// The copy of a circuit on this node, if there is one.
    pub(super) fn known_core(&self, name: &str) -> Option<Arc<Core>> {
        self.cores().get(name).cloned()
    }

    pub(super) fn core(&self, name: &str) -> Arc<Core> {
        let mut cores = self.cores();
        if let Some(core) = cores.get(name) {
            return core.clone();
        }
        if cores.len() >= 2 * MAX_CIRCUITS {
            // Those of which nothing is known and which nobody uses; whatever is in the database comes back by itself.
            cores.retain(|_, core| {
                Arc::strong_count(core) > 1 || core.local().standing != Standing::default()
            });
        }
        let name: Arc<str> = name.into();
        let core = Arc::new(Core::new(name.clone()));
        cores.insert(name, core.clone());
        core
    }

    /// Refuses another circuit when there are too many. Circuits of callers and those of this program have a bound each, so
    /// that callers cannot use up the room of the program.
    pub(super) async fn check_room(&self, tx: &Tx, core: &Core) -> mainstay_store::Result<()> {
        let own: HashSet<Arc<str>> =
            self.all_cores().iter().filter(|core| core.is_own()).map(|core| core.name.clone()).collect();
        let is_full = match core.is_own() {
            // It is among them.
            true => own.len() > MAX_CIRCUITS,
            false => {
                let names = Record::names(tx).await?;
                names.iter().filter(|name| !own.contains(name.as_str())).count() >= MAX_CIRCUITS
            }
        };
        if is_full { Err(Error::TooManyCircuits.into()) } else { Ok(()) }
    }

    /// Somebody asks a circuit.
    #[inline]
    pub(super) fn asked(&self) {
        if !self.interest.is_known() {
            self.show_interest();
        }
    }

    #[cold]
    fn show_interest(&self) {
        if self.interest.show() {
            self.signal.notify_one();
        }
    }

    /// Whether the keeper may rest: all circuits are closed, and nobody has asked since the last look.
    pub(super) fn may_rest(&self) -> bool {
        let is_closed = |core: &Arc<Core>| core.local().standing.state == State::Closed;
        !self.interest.take() && self.all_cores().iter().all(is_closed) && self.interest.rest()
    }

    pub(super) fn new_run_id(&self) -> Box<str> {
        format!("probe_{}", self.ids.uuid()).into()
    }

    /// The database has to be told something about a circuit.
    pub(super) fn tell(&self, core: &Arc<Core>) {
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner).push(core.clone());
        self.signal.notify_one();
    }

    /// What the database is to be told.
    pub(super) fn take_reports(&self) -> Vec<(Arc<Core>, Vec<Report>)> {
        let mut dirty = std::mem::take(&mut *self.dirty.lock().unwrap_or_else(PoisonError::into_inner));
        // In one order on all nodes, so that they do not wait for each other in a circle.
        dirty.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        dirty.dedup_by(|one, other| one.name == other.name);
        let reports = dirty.into_iter().map(|core| {
            let reports = core.take_pending();
            (core, reports)
        });
        reports.filter(|(_, reports)| !reports.is_empty()).collect()
    }

    /// Writes what was heard, in a task of its own: what it has taken is not lost when nobody waits for it any more.
    pub(super) async fn flush(self: &Arc<Self>) -> Result<()> {
        let shared = self.clone();
        let writing = tokio::spawn(async move { shared.write_reports().await });
        writing.await.unwrap_or(Err(Error::Store(Arc::new(mainstay_store::Error::Closed))))
    }

    /// The database's time, as far as is known here. The process that owns a SQLite file is the database.
    pub(super) fn now_ms(&self) -> i64 {
        if !self.store.capabilities().own_clock {
            return self.store.clock().now_ms();
        }
        let (at, now_ms) = *self.time.lock().unwrap_or_else(PoisonError::into_inner);
        now_ms.saturating_add(i64::try_from(at.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    /// The database's time.
    pub(super) async fn now_in(&self, tx: &Tx) -> mainstay_store::Result<i64> {
        let now_ms = tx.now_ms().await?;
        *self.time.lock().unwrap_or_else(PoisonError::into_inner) = (Instant::now(), now_ms);
        Ok(now_ms)
    }

    /// Milliseconds that only go forward, by which the length of calls is measured.
    pub(super) fn measured_ms(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    pub(super) async fn status(self: &Arc<Self>, name: &str) -> Result<Status> {
        let core = self.core(name);
        let read = async |tx: Tx, (shared, core): (Arc<Self>, Arc<Core>)| {
            let now_ms = shared.now_in(&tx).await?;
            let record = Record::find(&tx, &core.name).await?;
            Ok(Status::new(record.unwrap_or_else(|| Record::unheard_of(&core.name, core.settings())), now_ms))
        };
        Ok(self.store.read_with((self.clone(), core), read).await?)
    }

    /// What the database has counts, whatever was thought here.
    pub(super) fn adopt(&self, core: &Core, record: Option<&Record>) {
        match record {
            Some(record) => core.adopt(record, self.now_ms()),
            None => core.adopt_nothing(self.now_ms()),
        }
    }
}
