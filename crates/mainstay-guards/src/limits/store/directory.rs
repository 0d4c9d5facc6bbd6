//! Which limits there are.

use super::super::definition::{Definition, MAX_LIMITS};
use crate::{Error, Result};
use mainstay_core::limits::Limit;
use mainstay_store::{Bulk, Row, Tx, Value, params};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

static LIMITS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::list("SELECT name, version, definition FROM mainstay_limits WHERE name IN ({values})")
});
const PAGE: &str = "SELECT name, definition FROM mainstay_limits WHERE name > $1 ORDER BY name LIMIT $2";
const NAMES: &str = "SELECT name FROM mainstay_limits";
const IS_THERE: &str = "SELECT 1 FROM mainstay_limits WHERE name = $1";
const VERSION: &str = "SELECT definition FROM mainstay_limit_versions WHERE name = $1 AND version = $2";
/// Versions begin with the time, so that a limit that was deleted and made anew has other ones than before.
const PUT: &str = "INSERT INTO mainstay_limits (name, version, definition, changed_at) \
     VALUES ($1, mainstay_now(), $2, mainstay_now()) ON CONFLICT (name) DO UPDATE SET \
     version = mainstay_limits.version + 1, definition = excluded.definition, changed_at = excluded.changed_at \
     WHERE mainstay_limits.definition <> excluded.definition";
const PUT_NEW: &str = "INSERT INTO mainstay_limits (name, version, definition, changed_at) \
     VALUES ($1, 1, $2, mainstay_now()) ON CONFLICT (name) DO NOTHING";
const DELETE: &str = "DELETE FROM mainstay_limits WHERE name = $1";
const DELETE_VERSIONS: &str = "DELETE FROM mainstay_limit_versions WHERE name = $1";
const PUT_VERSION: &str = "INSERT INTO mainstay_limit_versions (name, version, definition) \
     SELECT name, version, definition FROM mainstay_limits WHERE name = $1 ON CONFLICT DO NOTHING";
/// Versions of a limit that are kept. A budget that was last used before so many changes counts as full.
const VERSIONS_KEPT: i64 = 100;
const DELETE_OLD_VERSIONS: &str = "DELETE FROM mainstay_limit_versions WHERE name = $1 AND version <= (\
     SELECT version FROM mainstay_limit_versions WHERE name = $1 ORDER BY version DESC LIMIT 1 OFFSET $2)";

/// A limit as it was at one version.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) version: i64,
    text: String,
    pub(super) definition: Definition,
    /// Of each shard.
    pub(super) limits: Vec<Limit>,
}

/// What this process has read, so that it need not be understood again. What a limit is now is asked in every
/// transaction: it may have been changed elsewhere, and a change that was read may never be committed.
#[derive(Default)]
pub(super) struct Directory {
    known: RwLock<HashMap<String, Arc<Named>>>,
    /// Limits that this program declares. They are neither refused nor counted.
    own: RwLock<HashSet<String>>,
}

impl Directory {
    /// The limits of these names, as of this transaction. Those that are missing do not exist.
    pub(super) async fn limits(
        &self,
        tx: &Tx,
        names: &[String],
    ) -> mainstay_store::Result<HashMap<String, Arc<Named>>> {
        let names: Vec<Value> = names.iter().map(Value::from).collect();
        let mut found = HashMap::new();
        for row in LIMITS.query(tx, &names).await? {
            let name: String = row.get(0)?;
            let named = self.named(&name, &row)?;
            found.insert(name, named);
        }
        Ok(found)
    }

    fn named(&self, name: &str, row: &Row) -> mainstay_store::Result<Arc<Named>> {
        let (version, text) = (row.get(1)?, row.get::<&str>(2)?);
        if let Some(known) = self.known(name).filter(|known| known.version == version && known.text == text) {
            return Ok(known);
        }
        let named = Arc::new(Named::read(version, text)?);
        let mut all = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= 2 * MAX_LIMITS {
            // More than there can be, so most were deleted.
            all.clear();
        }
        all.insert(name.to_owned(), named.clone());
        Ok(named)
    }

    /// The limit of this name, as it was read last.
    pub(super) fn known(&self, name: &str) -> Option<Arc<Named>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// The limit at an earlier version.
    pub(super) async fn earlier(tx: &Tx, name: &str, version: i64) -> mainstay_store::Result<Option<Named>> {
        let row = tx.query_optional(VERSION, params![name, version]).await?;
        row.map(|row| Named::read(version, row.get(0)?)).transpose()
    }

    /// This program declares a limit.
    pub(super) fn own(&self, name: &str) {
        self.own.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
    }

    /// Defines a limit, or changes it.
    pub(super) async fn put(
        &self,
        tx: &Tx,
        name: &str,
        definition: &Definition,
    ) -> mainstay_store::Result<bool> {
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner).clone();
        if !own.contains(name) && tx.query(IS_THERE, params![name]).await?.is_empty() {
            // One after another on all nodes, so that two do not pass the bound together.
            tx.lock("mainstay.limits.names").await?;
            let mut found = 0;
            for row in tx.query(NAMES, &[]).await? {
                found += usize::from(!own.contains(row.get::<&str>(0)?));
            }
            if found >= MAX_LIMITS {
                return Err(Error::TooManyLimits.into());
            }
        }
        Self::write(tx, name, definition, PUT).await
    }

    /// Deletes a limit. Its budgets are removed as recovered ones are: without their version they count for nothing.
    pub(super) async fn delete(tx: &Tx, name: &str) -> mainstay_store::Result<()> {
        if tx.execute(DELETE, params![name]).await? == 0 {
            return Err(Error::UnknownLimit(name.to_owned()).into());
        }
        tx.execute(DELETE_VERSIONS, params![name]).await.map(drop)
    }

    /// Forgets a limit that was deleted.
    pub(super) fn forget(&self, name: &str) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Defines a limit unless there is one of this name.
    pub(super) async fn put_new(
        tx: &Tx,
        name: &str,
        definition: &Definition,
    ) -> mainstay_store::Result<bool> {
        Self::write(tx, name, definition, PUT_NEW).await
    }

    async fn write(tx: &Tx, name: &str, definition: &Definition, sql: &str) -> mainstay_store::Result<bool> {
        let text = serde_json::to_string(definition).map_err(mainstay_store::Error::application)?;
        let changed = tx.execute(sql, params![name, text]).await? > 0;
        if changed {
            tx.execute(PUT_VERSION, params![name]).await?;
            tx.execute(DELETE_OLD_VERSIONS, params![name, VERSIONS_KEPT]).await?;
        }
        Ok(changed)
    }

    /// Limits, in the order of names.
    pub(super) async fn page(
        tx: &Tx,
        after: &str,
        limit: i64,
    ) -> mainstay_store::Result<Vec<(String, Definition)>> {
        let rows = tx.query(PAGE, params![after, limit]).await?;
        rows.iter().map(|row| Ok((row.get(0)?, read(row.get(1)?)?))).collect()
    }
}

impl Named {
    fn read(version: i64, text: &str) -> mainstay_store::Result<Self> {
        let definition = read(text)?;
        let limits = (0..definition.shards()).map(|index| definition.shard(index)).collect();
        Ok(Self { version, text: text.to_owned(), definition, limits })
    }
}

fn read(text: &str) -> mainstay_store::Result<Definition> {
    serde_json::from_str(text).map_err(mainstay_store::Error::application)
}

/// The limit of this name among those that were found.
pub(super) fn find<'a>(found: &'a HashMap<String, Arc<Named>>, name: &str) -> Result<&'a Arc<Named>> {
    found.get(name).ok_or_else(|| Error::UnknownLimit(name.to_owned()))
}
