//! `mainstay bench store`: transactions with two small inserts, by one caller and by many.

use super::load::{Load, Outcome};
use mainstay::store::{Result, Store, params};

const CREATE: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS mainstay_bench_orders (id TEXT PRIMARY KEY, at BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS mainstay_bench_lines (id TEXT PRIMARY KEY, note TEXT NOT NULL)",
];
const DROP: [&str; 2] = ["DROP TABLE mainstay_bench_orders", "DROP TABLE mainstay_bench_lines"];

/// The first insert of a measured transaction.
pub const INSERT_ORDER: &str = "INSERT INTO mainstay_bench_orders (id, at) VALUES ($1, $2)";
/// The second.
pub const INSERT_LINE: &str = "INSERT INTO mainstay_bench_lines (id, note) VALUES ($1, $2)";
/// What the second inserts: small, but not nothing.
pub const NOTE: &str = "two small inserts";

/// Makes the tables that are measured on.
pub async fn prepare(store: &Store) -> Result<()> {
    store
        .transact(async |tx| {
            for sql in CREATE {
                tx.execute(sql, &[]).await?;
            }
            Ok(())
        })
        .await
}

/// Removes them.
pub async fn clean_up(store: &Store) -> Result<()> {
    store
        .transact(async |tx| {
            for sql in DROP {
                tx.execute(sql, &[]).await?;
            }
            Ok(())
        })
        .await
}

/// The key of a row: like a UUID v7 it sorts by time, so rows of the same moment are neighbours.
pub fn key(run: u64, caller: usize, number: u64) -> String {
    format!("{run:08x}-{number:012x}-{caller:04x}")
}

/// Measures `transact` with two inserts.
pub async fn measure(store: &Store, load: Load, run: u64) -> Outcome {
    let store = store.clone();
    load.run(move |caller, number| {
        let store = store.clone();
        async move {
            let key = key(run, caller, number);
            store
                .transact_with((key, number as i64), async |tx, (key, number)| {
                    tx.execute(INSERT_ORDER, params![&key, number]).await?;
                    tx.execute(INSERT_LINE, params![key, NOTE]).await?;
                    Ok(())
                })
                .await?;
            Ok(())
        }
    })
    .await
}
