//! The contest on SQLite, and a bare loop by hand: one connection, one table, a synced transaction for each step. As on
//! PostgreSQL, it shows how much room there is.

use super::{Answer, BATCH, BODY, CLAIM, Contender, Entry, handle, load, mainstay};
use crate::rounds;
use anyhow::{Result, ensure};
use rusqlite::{Connection, params};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

const CREATE: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    CREATE TABLE items (id INTEGER PRIMARY KEY, pool TEXT NOT NULL, state INTEGER NOT NULL DEFAULT 0,
                        lease INTEGER, body TEXT NOT NULL)";
const ENQUEUE: &str = "INSERT INTO items (pool, body) VALUES (?1, ?2)";
const CLAIM_SOME: &str = "
    UPDATE items SET state = 1, lease = unixepoch() + 30
    WHERE id IN (SELECT id FROM items WHERE pool = ?1 AND state = 0 ORDER BY id LIMIT ?2)
    RETURNING id, body";
const COMPLETE: &str = "DELETE FROM items WHERE id = ?1";
const COUNT: &str = "SELECT count(*) FROM items";

const POOL: &str = "noop";

/// Prints the table.
pub async fn run(items: u64) -> Result<()> {
    println!("\nSQLite {}, WAL, synchronous=FULL", rusqlite::version());
    load::contest("SQLite", &contenders(), items).await
}

/// Those on SQLite, each in a file of its own.
fn contenders() -> Vec<Entry> {
    vec![
        Entry::new("bare loop", async |folder| Ok(Arc::new(Bare::open(&folder)?) as _)),
        mainstay::on_sqlite("mainstay", false),
        mainstay::on_sqlite("mainstay, told", true),
    ]
}

struct Bare {
    connection: Arc<Mutex<Connection>>,
}

impl Bare {
    fn open(folder: &Path) -> Result<Self> {
        let connection = Connection::open(folder.join("items.db"))?;
        connection.execute_batch(CREATE)?;
        let journal: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
        let synchronous: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
        ensure!(journal == "wal" && synchronous == 2, "journal {journal}, synchronous {synchronous}");
        Ok(Self { connection: Arc::new(Mutex::new(connection)) })
    }

    /// On a thread that may block.
    fn with<T: Send + 'static>(
        &self,
        what: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Answer<'_, T> {
        let connection = self.connection.clone();
        Box::pin(async move {
            let held = move || what(&mut connection.lock().unwrap_or_else(PoisonError::into_inner));
            Ok(tokio::task::spawn_blocking(held).await??)
        })
    }
}

impl Contender for Bare {
    fn about(&self) -> String {
        format!("rusqlite {}, one connection, {CLAIM} at a time", rounds::version("rusqlite"))
    }

    fn enqueue(&self, batches: u64) -> Answer<'_, ()> {
        self.with(move |connection| {
            for _ in 0..batches {
                let transaction = connection.transaction()?;
                let mut enqueue = transaction.prepare_cached(ENQUEUE)?;
                for _ in 0..BATCH {
                    enqueue.execute([POOL, BODY])?;
                }
                drop(enqueue);
                transaction.commit()?;
            }
            Ok(())
        })
    }

    fn work(&self) -> Answer<'_, u64> {
        self.with(|connection| {
            let mut ran = 0;
            loop {
                let claimed = claim(connection)?;
                if claimed.is_empty() {
                    return Ok(ran);
                }
                for (_, body) in &claimed {
                    handle(body);
                    ran += 1;
                }
                complete(connection, &claimed)?;
            }
        })
    }

    fn left(&self) -> Answer<'_, u64> {
        self.with(|connection| {
            connection.query_row(COUNT, [], |row| row.get::<_, i64>(0)).map(|left| left as u64)
        })
    }
}

/// Claims up to [`CLAIM`] items; one statement is one transaction.
fn claim(connection: &Connection) -> rusqlite::Result<Vec<(i64, String)>> {
    let mut claim = connection.prepare_cached(CLAIM_SOME)?;
    let rows = claim.query_map(params![POOL, CLAIM as i64], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

/// Removes them in one transaction.
fn complete(connection: &mut Connection, claimed: &[(i64, String)]) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    let mut complete = transaction.prepare_cached(COMPLETE)?;
    for (id, _) in claimed {
        complete.execute([id])?;
    }
    drop(complete);
    transaction.commit()
}
