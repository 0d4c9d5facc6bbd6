//! The workshop as its users see it.

use crate::bounds::{Bound, MAX_POOLS};
use crate::directory::{Directory, pool_topic};
use crate::engine::{Engine, LEASE};
use crate::enqueue::{Enqueued, Receipt, given, noted, parse, text};
use crate::error::{Error, Result};
use crate::figures::Figures;
use crate::fronts::Fronts;
use crate::functions::{FunctionKind, Functions};
use crate::item::{NewWork, own_name};
use crate::lease;
use crate::pool::Pool;
use crate::retrier::own_pools;
use mainstay_core::ids::Ids;
use mainstay_core::random::Random;
use mainstay_store::{Store, Tx, params};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// The functions of this node. They can be added until an engine starts.
#[derive(Default)]
struct Registered {
    functions: Arc<Functions>,
    is_sealed: bool,
}

/// What every part of the workshop stands on.
pub(crate) struct Ground {
    pub(crate) store: Store,
    functions: RwLock<Registered>,
    pub(crate) directory: Directory,
    pub(crate) figures: Arc<Figures>,
    pub(crate) ids: Ids,
    pub(crate) random: Arc<dyn Random>,
    /// How long a lease lasts.
    pub(crate) lease_ms: i64,
    /// Settings as they were read last, by their text.
    settings: Mutex<HashMap<String, (String, Arc<Pool>)>>,
    /// Pools that this program declares: they are not deleted under it.
    declared: Mutex<HashSet<String>>,
    /// Crons that this program declares.
    crons: Mutex<HashSet<String>>,
    max_pools: AtomicUsize,
    pub(crate) fronts: Arc<Fronts>,
}

impl Ground {
    /// The functions of this node.
    pub(crate) fn functions(&self) -> Arc<Functions> {
        self.functions.read().unwrap_or_else(PoisonError::into_inner).functions.clone()
    }

    /// The functions of this node, to which none can be added from here on.
    pub(crate) fn seal_functions(&self) -> Arc<Functions> {
        let mut registered = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        registered.is_sealed = true;
        registered.functions.clone()
    }

    /// Adds functions to those of this node.
    fn add_functions(&self, added: &Functions) -> Result<()> {
        let mut registered = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        if registered.is_sealed {
            return Err(Error::invalid("functions", "cannot be registered after the engine has started"));
        }
        let all = registered.functions.with(added)?;
        registered.functions = Arc::new(all);
        Ok(())
    }

    /// That a column is among those that a statement selects. On PostgreSQL as a list that is made first: with stale
    /// figures about a table the server may otherwise select anew for every row.
    pub(crate) fn among(&self, column: &str, select: &str) -> String {
        if self.store.capabilities().plans_by_statistics {
            format!("{column} = ANY (ARRAY({select}))")
        } else {
            format!("{column} IN ({select})")
        }
    }

    /// The place after which none of these lanes has been taken. On SQLite nothing lies in the way before it.
    pub(crate) fn reached(&self, lanes: &[i64]) -> i64 {
        if self.store.capabilities().concurrent_writers { self.fronts.reached(lanes) } else { 0 }
    }

    /// A pool's settings, read once for each text.
    pub(crate) fn settings(&self, name: &str, text: &str) -> mainstay_store::Result<Arc<Pool>> {
        let mut known = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((read, pool)) = known.get(name)
            && read == text
        {
            return Ok(pool.clone());
        }
        let mut pool: Pool = serde_json::from_str(text).map_err(mainstay_store::Error::application)?;
        pool.name = name.to_owned();
        let pool = Arc::new(pool);
        if known.len() >= 2 * self.max_pools() {
            // More than there can be, so most were deleted.
            known.clear();
        }
        known.insert(name.to_owned(), (text.to_owned(), pool.clone()));
        Ok(pool)
    }
}

impl Ground {
    pub(crate) fn is_declared(&self, pool: &str) -> bool {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner).contains(pool)
    }

    fn declare(&self, pool: &str) {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner).insert(pool.to_owned());
    }

    pub(crate) fn max_pools(&self) -> usize {
        self.max_pools.load(Ordering::Relaxed)
    }

    /// Whether this program declares a cron.
    pub(crate) fn is_cron_declared(&self, name: &str) -> bool {
        self.crons.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    pub(crate) fn declare_cron(&self, name: &str) {
        self.crons.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
    }

    /// Forgets a pool that was deleted, and its lanes.
    pub(crate) fn forget_pool(&self, number: i64, name: &str) {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        self.fronts.forget(&self.directory.forget_pool(number));
    }
}

const POOL: &str = "SELECT name, settings FROM mainstay_pools WHERE number = $1";

impl Ground {
    /// A pool's name and settings.
    pub(crate) async fn pool(&self, tx: &Tx, number: i64) -> mainstay_store::Result<(String, Arc<Pool>)> {
        let row = tx.query_one(POOL, params![number]).await?;
        let name: String = row.get(0)?;
        let settings = self.settings(&name, row.get(1)?)?;
        Ok((name, settings))
    }

    /// A pool's settings as they were read last.
    pub(crate) fn settings_of(&self, name: &str) -> Option<Arc<Pool>> {
        let known = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(name).map(|(_, pool)| pool.clone())
    }
}

/// Work of a store: enqueueing, looking, cancelling. Clones are the same.
#[derive(Clone)]
pub struct Work {
    ground: Arc<Ground>,
}

/// That this process has opened its own SQLite file before.
struct Opened;

const SET_PAUSED: &str =
    "UPDATE mainstay_pools SET is_paused = $2, changed_at = mainstay_now() WHERE number = $1";
pub(crate) const TOTALS: &str = "SELECT CAST(coalesce(sum(pending), 0) AS BIGINT), CAST(coalesce(sum(started), 0) AS BIGINT), \
     CAST(coalesce(sum(ended), 0) AS BIGINT) FROM (\
     SELECT pending, started, ended FROM mainstay_pool_totals WHERE pool = $1 UNION ALL \
     SELECT pending, started, ended FROM mainstay_pool_changes WHERE pool = $1) AS parts";
const READY: &str = "SELECT count(*) FROM (SELECT place FROM mainstay_work WHERE lane = $1 AND state = 0 AND place > $2 \
     LIMIT $3) AS some_of_them";
/// What is due and nobody has made ready yet; looked for among as many as count.
const OVERDUE: &str = "SELECT count(*) FROM (SELECT pool FROM mainstay_work WHERE state = 1 AND due_at <= $2 \
     ORDER BY due_at LIMIT $3) AS overdue WHERE pool = $1";

/// How far back "lately" goes.
pub(crate) const LATELY_MS: i64 = 10_000;

impl Work {
    /// Opens the work of a store that was opened with [`COMPONENT`](crate::COMPONENT), and declares what this node can do.
    pub async fn open(store: &Store, functions: Functions) -> Result<Self> {
        Self::open_with_lease(store, functions, LEASE).await
    }

    /// As [`open`](Self::open), with another length of this node's leases: for tests that wait for one to run out.
    #[doc(hidden)]
    pub async fn open_with_lease(store: &Store, functions: Functions, lease: Duration) -> Result<Self> {
        let ground = Arc::new(Ground {
            store: store.clone(),
            functions: RwLock::default(),
            directory: Directory::default(),
            figures: Arc::default(),
            ids: Ids::new(store.clock().clone(), store.random().clone()),
            random: store.random().clone(),
            lease_ms: i64::try_from(lease.as_millis()).unwrap_or(i64::MAX).max(1),
            settings: Mutex::default(),
            declared: Mutex::default(),
            crons: Mutex::default(),
            max_pools: AtomicUsize::new(MAX_POOLS),
            fronts: Arc::default(),
        });
        ground.add_functions(&functions)?;
        // A store of one node has one owner at a time: the process that held a lease has ended.
        let is_first = !store.capabilities().many_nodes && store.companion::<Opened>(None).is_none();
        if is_first {
            store.companion(Some(Arc::new(Opened)));
        }
        let declare = async |tx: Tx, (ground, functions, is_first): (Arc<Ground>, Functions, bool)| {
            if is_first {
                lease::give_up_all(&tx).await?;
            }
            for pool in own_pools() {
                Directory::ensure_pool(&ground, &tx, &pool).await?;
            }
            Directory::put_functions(&tx, &functions).await
        };
        store.transact_with((ground.clone(), functions, is_first), declare).await?;
        Ok(Self { ground })
    }

    /// Registers more functions of this node, until an engine starts: a service that needs the work registers its own when it
    /// opens. A name that is registered already is refused.
    pub async fn register(&self, functions: Functions) -> Result<()> {
        self.ground.add_functions(&functions)?;
        let put = async |tx: Tx, functions: Functions| Directory::put_functions(&tx, &functions).await;
        Ok(self.store().transact_with(functions, put).await?)
    }

    /// Bounds the pools of callers in the store, for this process: give every node the same. [`MAX_POOLS`] unless given.
    pub fn max_pools(&self, most: usize) {
        self.ground.max_pools.store(most, Ordering::Relaxed);
    }

    /// Declares a pool, or changes its settings. This program then needs it, so it cannot be deleted here, and no bound
    /// refuses it.
    pub async fn pool(&self, pool: Pool) -> Result<()> {
        let name = pool.name.clone();
        self.put(pool, Bound::Waived).await?;
        self.ground.declare(&name);
        Ok(())
    }

    /// Declares a pool unless it exists: an operator's settings stay. It cannot be deleted here either, and no bound refuses
    /// it.
    pub async fn ensure_pool(&self, pool: Pool) -> Result<()> {
        pool.check()?;
        self.ground.declare(&pool.name);
        let ensure = async |tx: Tx, (ground, pool): (Arc<Ground>, Pool)| {
            Directory::ensure_pool(&ground, &tx, &pool).await
        };
        Ok(self.store().transact_with((self.ground.clone(), pool), ensure).await?)
    }

    /// Makes a pool, or changes its settings, on behalf of an operator. Unlike one of [`pool`](Self::pool) it can be deleted.
    pub async fn put_pool(&self, pool: Pool) -> Result<()> {
        self.put(pool, Bound::Held).await
    }

    async fn put(&self, pool: Pool, bound: Bound) -> Result<()> {
        pool.check()?;
        let put = async |tx: Tx, (ground, pool, bound): (Arc<Ground>, Pool, Bound)| {
            Directory::put_pool(&ground, &tx, &pool, bound).await
        };
        self.store().transact_with((self.ground.clone(), pool, bound), put).await?;
        Ok(())
    }

    /// Declares a function that runs elsewhere, such as in a pull worker, on behalf of this program: no bound refuses it.
    pub async fn declare(&self, function: &str, kind: FunctionKind) -> Result<()> {
        own_name("function", function)?;
        let put = async |tx: Tx, (function, kind): (String, FunctionKind)| {
            Directory::put_function(&tx, &function, kind.as_str()).await
        };
        Ok(self.store().transact_with((function.to_owned(), kind), put).await?)
    }

    /// Whether anybody has declared a function, inside of a transaction.
    pub async fn knows_in(&self, tx: &Tx, function: &str) -> mainstay_store::Result<bool> {
        Ok(self.ground.directory.function(tx, function).await?.is_ok())
    }

    /// Makes room, at the end of a transaction, for work of a function that is to come into a pool later. The caller is refused
    /// now instead of the platform then, and the function cannot be deleted meanwhile. Only for code of the platform.
    #[doc(hidden)]
    pub fn promise_in(&self, tx: &Tx, pool: &str, function: &str) {
        noted(&self.ground, tx).promise(pool, function);
    }

    /// Enqueues an item in a transaction of its own.
    pub async fn enqueue(&self, item: NewWork) -> Result<Enqueued> {
        let mut enqueued = self.enqueue_all(vec![item]).await?;
        enqueued.pop().ok_or_else(|| Error::invalid("items", "must be at least one"))
    }

    /// Enqueues many items in one transaction: all of them or none.
    pub async fn enqueue_all(&self, items: Vec<NewWork>) -> Result<Vec<Enqueued>> {
        let items = given(&self.ground.functions(), items)?;
        let ground = self.ground.clone();
        let add = async |tx: Tx, (ground, items): (Arc<Ground>, Arc<Vec<NewWork>>)| {
            Ok(noted(&ground, &tx).add((*items).clone()))
        };
        let receipt = self.store().transact_with((ground, Arc::new(items)), add).await?;
        Ok(receipt.get().unwrap_or_default().to_vec())
    }

    /// Enqueues at the end of a transaction, beside what its author writes: all of it is committed, or nothing.
    pub fn enqueue_in(&self, tx: &Tx, items: impl IntoIterator<Item = NewWork>) -> Result<Receipt> {
        let items = given(&self.ground.functions(), items)?;
        Ok(noted(&self.ground, tx).add(items))
    }

    /// An id for [`enqueue_as`](Self::enqueue_as): for whoever must write it down before there is an item.
    pub fn new_id(&self) -> String {
        text(self.ground.ids.uuid())
    }

    /// As [`enqueue_in`](Self::enqueue_in), with ids that [`new_id`](Self::new_id) has made, each for one item. Dedupe
    /// keys are not for such items.
    pub fn enqueue_as(&self, tx: &Tx, items: impl IntoIterator<Item = (String, NewWork)>) -> Result<()> {
        for (id, item) in items {
            let id = parse(&id).ok_or_else(|| Error::invalid("id", "is no id of work"))?;
            if item.dedupe.is_some() {
                return Err(Error::invalid("dedupe", "is not for an item that has an id"));
            }
            for item in given(&self.ground.functions(), [item])? {
                noted(&self.ground, tx).add_as(item, id);
            }
        }
        Ok(())
    }

    /// Lets nothing of a pool start. What runs goes on.
    pub async fn pause(&self, pool: &str) -> Result<()> {
        self.set_paused(pool, true).await
    }

    /// Lets a pool's items start again.
    pub async fn resume(&self, pool: &str) -> Result<()> {
        self.set_paused(pool, false).await
    }

    async fn set_paused(&self, pool: &str, is_paused: bool) -> Result<()> {
        let set = async |tx: Tx, (pool, is_paused): (String, bool)| {
            let number = Directory::pool(&tx, &pool).await??;
            if tx.execute(SET_PAUSED, params![number, i64::from(is_paused)]).await? == 0 {
                return Err(Error::UnknownPool(pool).into());
            }
            tx.wake(&pool_topic(number))
        };
        Ok(self.store().transact_with((pool.to_owned(), is_paused), set).await?)
    }

    /// How many items of a pool could start now and have not been taken, counted up to `most`. Unlike
    /// [`Depth::pending`](crate::Depth::pending) that leaves out what waits for its time or its key.
    pub async fn due(&self, pool: &str, most: u64) -> Result<u64> {
        let read = async |tx: Tx, (ground, pool, most): (Arc<Ground>, String, u64)| {
            let number = Directory::pool(&tx, &pool).await??;
            let mut due: u64 =
                tx.query_one(OVERDUE, params![number, tx.now_ms().await?, most as i64]).await?.get(0)?;
            for lane in Directory::lanes_of(&tx, number, |_| true).await?.into_iter().flatten() {
                if due >= most {
                    break;
                }
                let params = params![lane, ground.reached(&[lane]), most as i64];
                due += tx.query_one(READY, params).await?.get::<u64>(0)?;
            }
            Ok(due.min(most))
        };
        Ok(self.store().read_with((self.ground.clone(), pool.to_owned(), most), read).await?)
    }

    /// Begins to work: runs what waits in all pools that this node has functions for.
    pub async fn start(&self) -> Result<Engine> {
        Engine::start(self.ground.clone()).await
    }

    /// The store that the work is in.
    pub fn store(&self) -> &Store {
        &self.ground.store
    }

    /// What this process measures about its work.
    pub fn figures(&self) -> &Arc<Figures> {
        &self.ground.figures
    }

    pub(crate) fn ground(&self) -> &Arc<Ground> {
        &self.ground
    }
}
