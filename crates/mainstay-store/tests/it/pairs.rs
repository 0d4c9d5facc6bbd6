//! What the tests of "nothing lost" write, and how they look for it afterwards.
//!
//! Every transaction inserts one number into two tables. A number that was acknowledged must be in both, one that
//! failed in neither, and a number in one table alone is half a transaction.

use mainstay_store::{Options, Result, Store, Tx, params};
use std::collections::BTreeSet;
use std::path::Path;

const TABLES: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS lefts (id BIGINT PRIMARY KEY, filling TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS rights (id BIGINT PRIMARY KEY, filling TEXT NOT NULL)",
];
const INSERT_LEFT: &str = "INSERT INTO lefts (id, filling) VALUES ($1, $2)";
const INSERT_RIGHT: &str = "INSERT INTO rights (id, filling) VALUES ($1, $2)";

/// The numbers that are there.
#[derive(Debug, Default)]
pub(crate) struct Found {
    lefts: BTreeSet<i64>,
    rights: BTreeSet<i64>,
}

/// Whether the long runs are asked for, which CI has no time for.
pub(crate) fn is_long() -> bool {
    std::env::var_os("MAINSTAY_LONG").is_some_and(|value| value == "1")
}

/// Runs `work` on a runtime of its own with several threads, as a server does.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(work)
}

pub(crate) async fn create_tables(store: &Store) -> Result<()> {
    let create = async |tx: Tx| {
        for table in TABLES {
            tx.execute(table, &[]).await?;
        }
        Ok(())
    };
    store.transact(create).await
}

/// Inserts both halves in one transaction.
pub(crate) async fn insert(store: &Store, id: i64, filling: &str) -> Result<()> {
    let work = async |tx: Tx, (id, filling): (i64, String)| {
        insert_left(&tx, id, &filling).await?;
        insert_right(&tx, id, &filling).await
    };
    store.transact_with((id, filling.to_owned()), work).await
}

pub(crate) async fn insert_left(tx: &Tx, id: i64, filling: &str) -> Result<()> {
    tx.execute(INSERT_LEFT, params![id, filling]).await.map(drop)
}

pub(crate) async fn insert_right(tx: &Tx, id: i64, filling: &str) -> Result<()> {
    tx.execute(INSERT_RIGHT, params![id, filling]).await.map(drop)
}

impl Found {
    /// Looks for the numbers from `first` on.
    pub(crate) async fn load(store: &Store, first: i64) -> Result<Self> {
        let load = async |tx: Tx, first: i64| {
            let ids = async |sql| -> Result<BTreeSet<i64>> {
                tx.query(sql, params![first]).await?.iter().map(|row| row.get(0)).collect()
            };
            Ok(Self {
                lefts: ids("SELECT id FROM lefts WHERE id >= $1").await?,
                rights: ids("SELECT id FROM rights WHERE id >= $1").await?,
            })
        };
        store.read_with(first, load).await
    }

    /// Opens the file anew, without the disk or the process that it was written with, looks, and lets it go.
    pub(crate) async fn in_file(file: &Path) -> Result<Self> {
        let store = Options::new(format!("sqlite:{}", file.display())).readers(1).open().await?;
        create_tables(&store).await?;
        let found = Self::load(&store, i64::MIN).await;
        store.close().await;
        found
    }

    pub(crate) fn contains(&self, id: i64) -> bool {
        self.lefts.contains(&id) && self.rights.contains(&id)
    }

    /// The first of `ids` that is missing.
    pub(crate) fn missing<'a>(&self, ids: impl IntoIterator<Item = &'a i64>) -> Option<i64> {
        ids.into_iter().copied().find(|id| !self.contains(*id))
    }

    /// Says what is wrong when transactions are there by half.
    pub(crate) fn check_whole(&self) -> std::result::Result<(), String> {
        match self.lefts.symmetric_difference(&self.rights).next() {
            Some(id) => Err(format!("there is half of {id}")),
            None => Ok(()),
        }
    }

    /// Says what is wrong when something acknowledged is lost or a transaction is there by half.
    pub(crate) fn check(&self, acknowledged: &[i64]) -> std::result::Result<(), String> {
        self.check_whole()?;
        match self.missing(acknowledged) {
            Some(id) => Err(format!("{id} was acknowledged and is lost")),
            None => Ok(()),
        }
    }
}

/// Lets SQLite look for damage. Nobody may have the file open for writing.
pub(crate) fn check_integrity(file: &Path) -> std::result::Result<(), String> {
    let check = || -> rusqlite::Result<String> {
        let db = rusqlite::Connection::open(file)?;
        db.query_row("PRAGMA integrity_check", [], |row| row.get(0))
    };
    match check() {
        Ok(said) if said == "ok" => Ok(()),
        Ok(damage) => Err(format!("the file is damaged: {damage}")),
        Err(error) => Err(format!("the file cannot be checked: {error}")),
    }
}
