//! Which pools, lanes and functions there are: looked up once and remembered.

use crate::error::{Error, Result};
use crate::pool::Pool;
use mainstay_store::{Topic, Tx, params};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What is woken when a lane is new.
pub(crate) fn lanes_topic() -> Topic {
    Topic::new("mainstay.work.lanes").expect("a constant that fits")
}

/// What is woken when a pool is new.
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

/// What this process knows. Nothing here ever changes its number, so what was found once stays true.
#[derive(Default)]
pub(crate) struct Directory {
    known: Arc<RwLock<Known>>,
}

#[derive(Default)]
struct Known {
    pools: HashMap<String, i64>,
    names: HashMap<i64, String>,
    lanes: HashMap<Lane, i64>,
    functions: HashMap<String, String>,
}

const POOL: &str = "SELECT number FROM mainstay_pools WHERE name = $1";
const POOL_NAME: &str = "SELECT name FROM mainstay_pools WHERE number = $1";
const PUT_POOL: &str = "INSERT INTO mainstay_pools (number, name, settings, is_paused, started_until, changed_at) \
     SELECT coalesce(max(number), 0) + 1, $1, $2, 0, 0, mainstay_now() FROM mainstay_pools WHERE true \
     ON CONFLICT (name) DO UPDATE SET settings = excluded.settings, changed_at = excluded.changed_at \
     WHERE mainstay_pools.settings <> excluded.settings";
const LANE: &str = "SELECT number FROM mainstay_lanes WHERE pool = $1 AND function = $2 AND priority = $3";
const LANES_OF: &str = "SELECT number, function, priority FROM mainstay_lanes WHERE pool = $1";
const PUT_LANE: &str = "INSERT INTO mainstay_lanes (number, pool, function, priority) \
     SELECT coalesce(max(number), 0) + 1, $1, $2, $3 FROM mainstay_lanes WHERE true ON CONFLICT DO NOTHING";
const FUNCTION: &str = "SELECT kind FROM mainstay_functions WHERE name = $1";
const PUT_FUNCTION: &str = "INSERT INTO mainstay_functions (name, kind, declared_at) \
     VALUES ($1, $2, mainstay_now()) ON CONFLICT (name) DO UPDATE SET kind = excluded.kind \
     WHERE mainstay_functions.kind <> excluded.kind";

impl Directory {
    /// Declares a pool, or changes its settings.
    pub(crate) async fn put_pool(tx: &Tx, pool: &Pool) -> mainstay_store::Result<i64> {
        // Numbers are given out one after another.
        tx.lock("mainstay.work.directory").await?;
        let settings = serde_json::to_string(pool).map_err(mainstay_store::Error::application)?;
        let changed = tx.execute(PUT_POOL, params![&pool.name, settings]).await?;
        let number = tx.query_one(POOL, params![&pool.name]).await?.get(0)?;
        if changed > 0 {
            tx.wake(&pools_topic())?;
            tx.wake(&pool_topic(number))?;
        }
        Ok(number)
    }

    /// Declares a pool unless somebody has.
    pub(crate) async fn ensure_pool(tx: &Tx, pool: &Pool) -> mainstay_store::Result<()> {
        if tx.query_optional(POOL, params![&pool.name]).await?.is_none() {
            Self::put_pool(tx, pool).await?;
        }
        Ok(())
    }

    /// Declares a function.
    pub(crate) async fn put_function(tx: &Tx, name: &str, kind: &str) -> mainstay_store::Result<()> {
        tx.execute(PUT_FUNCTION, params![name, kind]).await.map(drop)
    }

    pub(crate) async fn pool(&self, tx: &Tx, name: &str) -> mainstay_store::Result<Result<i64>> {
        if let Some(number) = self.read().pools.get(name) {
            return Ok(Ok(*number));
        }
        let Some(row) = tx.query_optional(POOL, params![name]).await? else {
            return Ok(Err(Error::UnknownPool(name.to_owned())));
        };
        let number = row.get(0)?;
        // Pools are declared in transactions of their own, and never removed.
        let mut known = self.write();
        known.pools.insert(name.to_owned(), number);
        known.names.insert(number, name.to_owned());
        Ok(Ok(number))
    }

    pub(crate) async fn pool_name(&self, tx: &Tx, number: i64) -> mainstay_store::Result<String> {
        if let Some(name) = self.read().names.get(&number) {
            return Ok(name.clone());
        }
        let name: String = tx.query_one(POOL_NAME, params![number]).await?.get(0)?;
        self.write().names.insert(number, name.clone());
        Ok(name)
    }

    /// The number of a pool, if it and these functions are known here, the functions as actions.
    pub(crate) fn known(&self, pool: &str, functions: &[String]) -> Option<i64> {
        let known = self.read();
        let is_action =
            |function: &String| known.functions.get(function).is_some_and(|kind| kind == "action");
        functions.iter().all(is_action).then(|| known.pools.get(pool).copied()).flatten()
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
    pub(crate) async fn lane(&self, tx: &Tx, lane: &Lane) -> mainstay_store::Result<i64> {
        if let Some(number) = self.read().lanes.get(lane) {
            return Ok(*number);
        }
        let params = params![lane.pool, &*lane.function, lane.priority];
        let row = match tx.query_optional(LANE, params).await? {
            Some(row) => row,
            None => {
                tx.lock("mainstay.work.directory").await?;
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
