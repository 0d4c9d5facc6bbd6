//! The pools, lanes and functions of a store.
//!
//! Lanes and functions are looked up once and remembered. A pool's number is read in each transaction, because a pool can
//! be deleted. Numbers of pools and lanes are never given out again.

use crate::bounds::{self, Bound, MAX_FUNCTIONS, MAX_LANES, MAX_LANES_OF_POOL};
use crate::error::{Error, Result};
use crate::functions::{FunctionKind, Functions, Recording};
use crate::pool::Pool;
use crate::work::Ground;
use mainstay_core::names::is_reserved;
use mainstay_store::{Hold, Topic, Tx, params};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What is woken when a lane is new.
pub(crate) fn lanes_topic() -> Topic {
    Topic::new("mainstay.work.lanes").expect("a constant that fits")
}

/// Topic of the pools: woken when one is made or deleted.
pub(crate) fn pools_topic() -> Topic {
    Topic::new("mainstay.work.pools").expect("a constant that fits")
}

/// What is woken when an item waits for its time.
pub(crate) fn time_topic() -> Topic {
    Topic::new("mainstay.work.time").expect("a constant that fits")
}

/// What is woken when items have ended.
pub(crate) fn ended_topic() -> Topic {
    Topic::new("mainstay.work.ended").expect("a constant that fits")
}

/// What is woken when a running item is to stop.
pub(crate) fn cancels_topic() -> Topic {
    Topic::new("mainstay.work.cancels").expect("a constant that fits")
}

/// What is woken when there is work for a pool, or the pool has changed.
pub(crate) fn pool_topic(pool: i64) -> Topic {
    Topic::new(&format!("mainstay.work.pool.{pool}")).expect("a number fits")
}

/// Where a pool's items of one function and priority wait.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Lane {
    pub(crate) pool: i64,
    pub(crate) function: Arc<str>,
    pub(crate) priority: i64,
}

/// Most names or lanes that are remembered: more than there can be, unless many were deleted.
const MAX_KNOWN: usize = 2 * MAX_LANES;

/// Numbers that this process has read. They never change, so they stay true until their row is deleted.
#[derive(Default)]
pub(crate) struct Directory {
    known: Arc<RwLock<Known>>,
}

#[derive(Default)]
struct Known {
    /// Names of pools, also of deleted ones.
    names: HashMap<i64, String>,
    lanes: HashMap<Lane, i64>,
    functions: HashMap<String, String>,
}

const POOL: &str = "SELECT number FROM mainstay_pools WHERE name = $1";
const POOL_NAME: &str = "SELECT name FROM mainstay_pools WHERE number = $1 \
     UNION ALL SELECT name FROM mainstay_deleted_pools WHERE number = $1";
const POOL_NAMES: &str = "SELECT name FROM mainstay_pools";
const PUT_POOL: &str = "INSERT INTO mainstay_pools (number, name, settings, is_paused, started_until, changed_at) \
     SELECT coalesce(max(given.number), 0) + 1, $1, $2, 0, 0, mainstay_now() FROM (SELECT number FROM mainstay_pools \
     UNION ALL SELECT number FROM mainstay_deleted_pools) AS given WHERE true \
     ON CONFLICT (name) DO UPDATE SET settings = excluded.settings, changed_at = excluded.changed_at \
     WHERE mainstay_pools.settings <> excluded.settings";
const LANE: &str = "SELECT number FROM mainstay_lanes WHERE pool = $1 AND function = $2 AND priority = $3";
const LANES_OF: &str = "SELECT number, function, priority FROM mainstay_lanes WHERE pool = $1";
const PUT_LANE: &str = "INSERT INTO mainstay_lanes (number, pool, function, priority) \
     SELECT coalesce(max(given.number), 0) + 1, $1, $2, $3 FROM (SELECT number FROM mainstay_lanes \
     UNION ALL SELECT last_lane FROM mainstay_deleted_pools) AS given WHERE true ON CONFLICT DO NOTHING";
/// Lanes of callers. Functions of the platform begin with `mainstay.`, and `/` follows `.` in the order of bytes.
const COUNT_LANES: &str =
    "SELECT count(*) FROM mainstay_lanes WHERE NOT (function >= 'mainstay.' AND function < 'mainstay/')";
const COUNT_LANES_OF: &str = "SELECT count(*) FROM mainstay_lanes \
     WHERE pool = $1 AND NOT (function >= 'mainstay.' AND function < 'mainstay/')";
const FUNCTION: &str = "SELECT kind FROM mainstay_functions WHERE name = $1";
const FUNCTION_NAMES: &str = "SELECT name FROM mainstay_functions";
const PUT_FUNCTION: &str = "INSERT INTO mainstay_functions (name, kind, declared_at) \
     VALUES ($1, $2, mainstay_now()) ON CONFLICT (name) DO UPDATE SET kind = excluded.kind \
     WHERE mainstay_functions.kind <> excluded.kind";
const RECORDING: &str = "SELECT recording FROM mainstay_functions WHERE name = $1";
const PUT_RECORDING: &str =
    "UPDATE mainstay_functions SET recording = $2 WHERE name = $1 AND recording <> $2";

impl Directory {
    /// Declares a pool, or changes its settings; refuses a new one of a caller when there are too many.
    pub(crate) async fn put_pool(
        ground: &Ground,
        tx: &Tx,
        pool: &Pool,
        bound: Bound,
    ) -> mainstay_store::Result<i64> {
        bounds::lock(tx).await?;
        let is_bounded = bound == Bound::Held && !pool.is_platform();
        if is_bounded && tx.query_optional(POOL, params![&pool.name]).await?.is_none() {
            let platform = Pool::platform_names();
            let is_counted = |name: &str| !platform.contains(name) && !ground.is_declared(name);
            bounds::room_among(tx, "pools", ground.max_pools(), POOL_NAMES, is_counted).await?;
        }
        let settings = serde_json::to_string(pool).map_err(mainstay_store::Error::application)?;
        let changed = tx.execute(PUT_POOL, params![&pool.name, settings]).await?;
        let number = tx.query_one(POOL, params![&pool.name]).await?.get(0)?;
        if changed > 0 {
            tx.wake(&pools_topic())?;
            tx.wake(&pool_topic(number))?;
        }
        Ok(number)
    }

    /// Declares a pool of the program or the platform that does not exist yet.
    pub(crate) async fn ensure_pool(ground: &Ground, tx: &Tx, pool: &Pool) -> mainstay_store::Result<()> {
        if tx.query_optional(POOL, params![&pool.name]).await?.is_none() {
            Self::put_pool(ground, tx, pool, Bound::Waived).await?;
        }
        Ok(())
    }

    /// Declares the functions that this program registers. They are not counted: the program could not start otherwise.
    pub(crate) async fn put_functions(tx: &Tx, functions: &Functions) -> mainstay_store::Result<()> {
        for (name, function) in functions.iter() {
            Self::put_function(tx, name, function.kind().as_str()).await?;
            tx.execute(PUT_RECORDING, params![name, function.recording.number()]).await?;
        }
        Ok(())
    }

    pub(crate) async fn put_function(tx: &Tx, name: &str, kind: &str) -> mainstay_store::Result<()> {
        tx.execute(PUT_FUNCTION, params![name, kind]).await.map(drop)
    }

    /// The treatment of failures by a function of another node. It changes with the program, so nothing is remembered.
    pub(crate) async fn recording(tx: &Tx, name: &str) -> mainstay_store::Result<Recording> {
        let row = tx.query_optional(RECORDING, params![name]).await?;
        row.map_or(Ok(Recording::Nothing), |row| row.get(0).map(Recording::of))
    }

    /// Declares an action that runs elsewhere, on behalf of a worker; refuses a new one when there are too many.
    pub(crate) async fn put_remote_action(
        ground: &Ground,
        tx: &Tx,
        name: &str,
    ) -> mainstay_store::Result<()> {
        bounds::lock(tx).await?;
        if tx.query_optional(FUNCTION, params![name]).await?.is_none() {
            let functions = ground.functions();
            let is_counted = |name: &str| !is_reserved(name) && functions.get(name).is_none();
            bounds::room_among(tx, "functions", MAX_FUNCTIONS, FUNCTION_NAMES, is_counted).await?;
        }
        Self::put_function(tx, name, FunctionKind::Action.as_str()).await
    }

    /// The number of a pool.
    pub(crate) async fn pool(tx: &Tx, name: &str) -> mainstay_store::Result<Result<i64>> {
        let row = tx.query_optional(POOL, params![name]).await?;
        row.map_or_else(|| Ok(Err(Error::UnknownPool(name.to_owned()))), |row| row.get(0).map(Ok))
    }

    /// The numbers of pools, which cannot be deleted before this transaction ends. A name that is missing has no pool.
    pub(crate) async fn hold_pools<'a>(
        tx: &Tx,
        names: impl IntoIterator<Item = &'a str>,
    ) -> mainstay_store::Result<HashMap<String, i64>> {
        let mut numbers = HashMap::new();
        for name in names.into_iter().collect::<BTreeSet<_>>() {
            if let Some(row) = tx.query_holding(POOL, params![name], Hold::InPlace).await?.first() {
                numbers.insert(name.to_owned(), row.get(0)?);
            }
        }
        Ok(numbers)
    }

    /// The name of a pool; that of a deleted one while items that ended in it are kept, then an empty text.
    pub(crate) async fn pool_name(&self, tx: &Tx, number: i64) -> mainstay_store::Result<String> {
        if let Some(name) = self.read().names.get(&number) {
            return Ok(name.clone());
        }
        let Some(row) = tx.query_optional(POOL_NAME, params![number]).await? else {
            return Ok(String::new());
        };
        let name: String = row.get(0)?;
        let mut known = self.write();
        if known.names.len() >= MAX_KNOWN {
            known.names.clear();
        }
        known.names.insert(number, name.clone());
        Ok(name)
    }

    /// Whether these functions are known here as actions.
    pub(crate) fn are_actions(&self, functions: &[String]) -> bool {
        let known = self.read();
        let is_action =
            |function: &String| known.functions.get(function).is_some_and(|kind| kind == "action");
        functions.iter().all(is_action)
    }

    pub(crate) fn forget_function(&self, name: &str) {
        self.write().functions.remove(name);
    }

    /// Forgets the lanes of a pool that was deleted; their numbers.
    pub(crate) fn forget_pool(&self, pool: i64) -> Vec<i64> {
        let mut known = self.write();
        known.lanes.extract_if(|lane, _| lane.pool == pool).map(|(_, number)| number).collect()
    }

    /// The kind of a function that somebody has declared.
    pub(crate) async fn function(&self, tx: &Tx, name: &str) -> mainstay_store::Result<Result<String>> {
        if let Some(kind) = self.read().functions.get(name) {
            return Ok(Ok(kind.clone()));
        }
        let Some(row) = tx.query_optional(FUNCTION, params![name]).await? else {
            return Ok(Err(Error::UnknownFunction(name.to_owned())));
        };
        let kind: String = row.get(0)?;
        // As with lanes: it may have been declared by this very transaction.
        let (known, function) = (self.known.clone(), (name.to_owned(), kind.clone()));
        tx.after_commit(Arc::new(move || {
            let (name, kind) = function.clone();
            known.write().unwrap_or_else(PoisonError::into_inner).functions.insert(name, kind);
        }))?;
        Ok(Ok(kind))
    }

    /// The number of a lane, which is made if there is none yet.
    ///
    /// A new lane needs its function to be declared. The function's row is read under the same lock as a deletion takes, so
    /// that no node can give work to a function that another node has deleted, whatever it remembers.
    pub(crate) async fn lane(&self, tx: &Tx, lane: &Lane, bound: Bound) -> mainstay_store::Result<i64> {
        if let Some(number) = self.read().lanes.get(lane) {
            return Ok(*number);
        }
        let params = params![lane.pool, &*lane.function, lane.priority];
        let row = match tx.query_optional(LANE, params).await? {
            Some(row) => row,
            None => {
                bounds::lock(tx).await?;
                if bound != Bound::Kept && tx.query_optional(LANE, params).await?.is_none() {
                    if tx.query_optional(FUNCTION, params![&*lane.function]).await?.is_none() {
                        self.forget_function(&lane.function);
                        return Err(Error::UnknownFunction(lane.function.to_string()).into());
                    }
                    if bound == Bound::Held {
                        let (of_pool, most) = (params![lane.pool], MAX_LANES_OF_POOL);
                        bounds::room(tx, "lanes of a pool", most, COUNT_LANES_OF, of_pool).await?;
                        bounds::room(tx, "lanes", MAX_LANES, COUNT_LANES, &[]).await?;
                    }
                }
                tx.execute(PUT_LANE, params).await?;
                tx.wake(&lanes_topic())?;
                tx.query_one(LANE, params).await?
            }
        };
        let number = row.get(0)?;
        // Remembered once it is committed. It may be of this very transaction, which may run again without it.
        let (known, lane) = (self.known.clone(), lane.clone());
        tx.after_commit(Arc::new(move || {
            let mut known = known.write().unwrap_or_else(PoisonError::into_inner);
            if known.lanes.len() >= MAX_KNOWN {
                known.lanes.clear();
            }
            known.lanes.insert(lane.clone(), number);
        }))?;
        Ok(number)
    }

    /// A pool's lanes that hold what this node can do, the most urgent first; those of the same priority together.
    pub(crate) async fn lanes_of(
        tx: &Tx,
        pool: i64,
        can_do: impl Fn(&str) -> bool,
    ) -> mainstay_store::Result<Vec<Vec<i64>>> {
        let mut by_priority: std::collections::BTreeMap<i64, Vec<i64>> = std::collections::BTreeMap::new();
        for row in tx.query(LANES_OF, params![pool]).await? {
            if can_do(row.get(1)?) {
                by_priority.entry(row.get(2)?).or_default().push(row.get(0)?);
            }
        }
        Ok(by_priority.into_values().collect())
    }

    fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Known> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }
}
