//! A table to write into, for tests that do not care what is written.

use mainstay_store::{Result, Store, Tx, params};
use mainstay_testkit::stores::Place;
use std::time::Duration;

/// Keeps a statement busy until it is stopped.
pub(crate) const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000000) \
                       SELECT count(*) FROM n";

pub(crate) async fn with_table(place: &Place) -> Store {
    let store = place.open().await;
    create_table(&store).await;
    store
}

/// However short the store's own limits are: they are for what comes after.
pub(crate) async fn create_table(store: &Store) {
    let sql = "CREATE TABLE notes (id BIGINT PRIMARY KEY, text TEXT NOT NULL)";
    let patient = store.with_time_limit(Duration::from_secs(60));
    patient.transact(async |tx| tx.execute(sql, &[]).await).await.unwrap();
}

pub(crate) async fn insert(tx: &Tx, id: i64) -> Result<u64> {
    tx.execute("INSERT INTO notes (id, text) VALUES ($1, $2)", params![id, "note"]).await
}

pub(crate) async fn ids(store: &Store) -> Vec<i64> {
    let sql = "SELECT id FROM notes ORDER BY id";
    let rows = store.read(async |tx| tx.query(sql, &[]).await).await.unwrap();
    rows.iter().map(|row| row.get(0).unwrap()).collect()
}
