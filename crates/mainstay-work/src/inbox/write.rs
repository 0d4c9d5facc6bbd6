//! Writing rows of the inbox, in the transactions of those whose letters they are.

use super::{Kind, Status, fingerprint, listed};
use mainstay_store::Column::{Int, Text};
use mainstay_store::{Bulk, Result, Row, Tx, Value};
use std::collections::HashMap;
use std::sync::LazyLock;

/// A letter of somebody's who keeps the rest of it.
#[derive(Debug, Clone)]
pub struct Entry<'a> {
    /// The kind.
    pub kind: Kind,
    /// What failed: a function, a projection, a target.
    pub name: &'a str,
    /// By what its keeper knows it.
    pub reference: &'a str,
    /// What was done about it.
    pub status: Status,
    /// When it failed last.
    pub failed_at: i64,
    /// How often it was tried again.
    pub retries: u32,
    /// What it belongs together with.
    pub correlation: Option<&'a str>,
    /// What happened.
    pub error: &'a str,
    /// The number of its pool, if it is work.
    pub pool: Option<i64>,
}

/// The values of one row.
pub(crate) const WIDTH: usize = 11;

impl Entry<'_> {
    pub(crate) fn values(&self, now_ms: i64) -> [Value; WIDTH] {
        [
            Value::from(self.kind.as_str()),
            Value::from(self.name),
            Value::from(self.reference),
            Value::Int(self.status.number()),
            Value::Int(fingerprint::group(self.error)),
            Value::Int(self.failed_at),
            Value::Int(now_ms),
            Value::Int(self.retries.into()),
            Value::from(self.correlation),
            Value::from(listed(self.error)),
            Value::from(self.pool),
        ]
    }
}

const COLUMNS: &str =
    "kind, name, reference, status, error_group, failed_at, changed_at, retries, correlation, error, pool";
static PUT: LazyLock<Bulk> = LazyLock::new(|| {
    let text = format!(
        "INSERT INTO mainstay_dead_letters ({COLUMNS}) VALUES {{rows}} ON CONFLICT (kind, name, reference) DO UPDATE \
         SET status = excluded.status, error_group = excluded.error_group, failed_at = excluded.failed_at, \
         changed_at = excluded.changed_at, retries = excluded.retries, correlation = excluded.correlation, \
         error = excluded.error, pool = excluded.pool"
    );
    Bulk::insert(&text, &[Text, Text, Text, Int, Int, Int, Int, Int, Text, Text, Int])
});
/// A letter that was tried again and has failed again is the same one, also if its row was removed meanwhile.
static AGAIN: LazyLock<Bulk> = LazyLock::new(|| {
    let text = format!(
        "INSERT INTO mainstay_dead_letters (number, {COLUMNS}) VALUES {{rows}} ON CONFLICT (number) DO UPDATE \
         SET reference = excluded.reference, status = excluded.status, error_group = excluded.error_group, \
         failed_at = excluded.failed_at, changed_at = excluded.changed_at, error = excluded.error, \
         pool = excluded.pool"
    );
    Bulk::insert(&text, &[Int, Text, Text, Text, Int, Int, Int, Int, Int, Text, Text, Int])
});
static RETRYING: LazyLock<Bulk> = LazyLock::new(|| set("status = 1, retries = retries + 1", "IN (0, 3)"));
static RESOLVED: LazyLock<Bulk> = LazyLock::new(|| set("status = 2", "= 1"));
static RETURNED: LazyLock<Bulk> = LazyLock::new(|| set("status = 0", "= 1"));
static IGNORED: LazyLock<Bulk> = LazyLock::new(|| set("status = 3", "= 0"));
static NUMBERS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::among("SELECT reference, number FROM mainstay_dead_letters WHERE reference IN ({values})", Text)
});
static REMOVE: LazyLock<Bulk> =
    LazyLock::new(|| Bulk::among("DELETE FROM mainstay_dead_letters WHERE reference IN ({values})", Text));
static REMOVE_NUMBERS: LazyLock<Bulk> =
    LazyLock::new(|| Bulk::among("DELETE FROM mainstay_dead_letters WHERE number IN ({values})", Int));
const REMOVE_OF: &str = "DELETE FROM mainstay_dead_letters WHERE kind = $1 AND name = $2";
const RESOLVE_OF: &str = "UPDATE mainstay_dead_letters SET status = 2, changed_at = mainstay_now() \
     WHERE kind = $1 AND name = $2 AND status IN (0, 1)";
const RESOLVE_RETRIED: &str = "UPDATE mainstay_dead_letters SET status = 2, changed_at = mainstay_now() \
     WHERE kind = $1 AND name = $2 AND status = 1 AND (CAST($3 AS TEXT) IS NULL OR reference = $3)";
const REMOVE_ONE: &str = "DELETE FROM mainstay_dead_letters WHERE kind = $1 AND name = $2 AND reference = $3";
const UNGROUPED: &str = "SELECT number, error FROM mainstay_dead_letters WHERE error_group = 0 \
     ORDER BY number LIMIT 500";
const REGROUP: &str =
    "UPDATE mainstay_dead_letters SET error_group = $2 WHERE number = $1 AND error_group = 0";

/// Rows are found by their numbers and never by their status, whatever the planner believes: all letters of an operation have
/// the same one.
fn set(what: &str, of: &str) -> Bulk {
    let text = format!(
        "UPDATE mainstay_dead_letters SET {what}, changed_at = mainstay_now() WHERE status + 0 {of} \
         AND number IN ({{values}})"
    );
    Bulk::among(&text, Int)
}

/// Writes letters as they are now, those that are listed already and those that are not.
pub async fn put(tx: &Tx, entries: &[Entry<'_>]) -> Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    let now_ms = tx.now_ms().await?;
    let values: Vec<Value> = entries.iter().flat_map(|entry| entry.values(now_ms)).collect();
    PUT.execute(tx, &values).await.map(drop)
}

/// Removes a letter that is none any more; without a reference all of them of this name.
pub async fn remove(tx: &Tx, kind: &Kind, name: &str, reference: Option<&str>) -> Result<()> {
    let kind = kind.as_str();
    let done = match reference {
        Some(reference) => tx.execute(REMOVE_ONE, mainstay_store::params![kind, name, reference]).await,
        None => tx.execute(REMOVE_OF, mainstay_store::params![kind, name]).await,
    };
    done.map(drop)
}

/// Resolves all letters of this name that are open, whatever else is known of them: what failed there is made good at once.
pub async fn resolve(tx: &Tx, kind: &Kind, name: &str) -> Result<()> {
    tx.execute(RESOLVE_OF, mainstay_store::params![kind.as_str(), name]).await.map(drop)
}

/// Resolves letters of this name that are being retried; without a reference all of them.
pub async fn resolve_retried(tx: &Tx, kind: &Kind, name: &str, reference: Option<&str>) -> Result<()> {
    tx.execute(RESOLVE_RETRIED, mainstay_store::params![kind.as_str(), name, reference]).await.map(drop)
}

/// Removes letters that their sources have removed.
pub async fn remove_numbers(tx: &Tx, numbers: &[i64]) -> Result<()> {
    REMOVE_NUMBERS.execute(tx, &values(numbers.iter().copied())).await.map(drop)
}

/// Finds the groups of letters that come from a time before there were any; how many, 500 at the most.
pub async fn regroup(tx: &Tx) -> Result<usize> {
    let rows = tx.query(UNGROUPED, &[]).await?;
    for row in &rows {
        let (number, error): (i64, &str) = (row.get(0)?, row.get(1)?);
        tx.execute(REGROUP, mainstay_store::params![number, fingerprint::group(error)]).await?;
    }
    Ok(rows.len())
}

/// What a settlement writes, collected.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    new: Vec<Value>,
    again: Vec<Value>,
    resolved: Vec<Value>,
    returned: Vec<Value>,
}

impl Ended {
    /// An item ended failed; `number` is the letter that it tried again.
    pub(crate) fn failed(&mut self, number: Option<i64>, entry: &Entry<'_>, now_ms: i64) {
        match number {
            Some(number) => {
                self.again.push(Value::Int(number));
                self.again.extend(entry.values(now_ms));
            }
            None => self.new.extend(entry.values(now_ms)),
        }
    }

    /// An item that tried a letter again has succeeded.
    pub(crate) fn resolved(&mut self, number: i64) {
        self.resolved.push(Value::Int(number));
    }

    /// An item that was to try a letter again was cancelled.
    pub(crate) fn returned(&mut self, number: i64) {
        self.returned.push(Value::Int(number));
    }

    pub(crate) async fn write(&self, tx: &Tx) -> Result<()> {
        let writes: [(&Bulk, &Vec<Value>); 4] = [
            (&PUT, &self.new),
            (&AGAIN, &self.again),
            (&RESOLVED, &self.resolved),
            (&RETURNED, &self.returned),
        ];
        for (bulk, values) in writes {
            if !values.is_empty() {
                bulk.execute(tx, values).await?;
            }
        }
        Ok(())
    }
}

/// The numbers of letters of work, by the items that they are known by.
pub(crate) async fn numbers(tx: &Tx, references: &[String]) -> Result<HashMap<String, i64>> {
    let values: Vec<Value> = references.iter().map(Value::from).collect();
    let rows = NUMBERS.query(tx, &values).await?;
    rows.iter().map(|row: &Row| Ok((row.get(0)?, row.get(1)?))).collect()
}

fn values(numbers: impl IntoIterator<Item = i64>) -> Vec<Value> {
    numbers.into_iter().map(Value::Int).collect()
}

pub(crate) async fn retrying(tx: &Tx, numbers: impl IntoIterator<Item = i64>) -> Result<()> {
    RETRYING.execute(tx, &values(numbers)).await.map(drop)
}

pub(crate) async fn ignored(tx: &Tx, numbers: impl IntoIterator<Item = i64>) -> Result<()> {
    IGNORED.execute(tx, &values(numbers)).await.map(drop)
}

/// Removes letters of work by the items that they are known by.
pub(crate) async fn removed(tx: &Tx, references: &[String]) -> Result<()> {
    let values: Vec<Value> = references.iter().map(Value::from).collect();
    REMOVE.execute(tx, &values).await.map(drop)
}
