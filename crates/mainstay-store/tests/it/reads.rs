//! Reads: they have a limit, stop when nobody waits for them, and do not keep the log of SQLite growing for ever.

use crate::notes::ENDLESS;
use mainstay_store::{Options, Store, Tx, params};
use mainstay_testkit::stores::{Kind, for_each_kind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const PAGE_OF_TEXT: usize = 3_000;

async fn with_table(options: Options) -> Store {
    let store = options.open().await.unwrap();
    let sql = "CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL)";
    store.transact(async |tx| tx.execute(sql, &[]).await).await.unwrap();
    store
}

/// Writes about `pages` pages, a hundred at a time.
async fn write_pages(store: &Store, pages: usize) {
    for _ in 0..pages / 100 {
        store
            .transact(async |tx| {
                let rows = vec![params!["x".repeat(PAGE_OF_TEXT)].to_vec(); 100];
                tx.execute_many("INSERT INTO notes (text) VALUES ($1)", &rows).await
            })
            .await
            .unwrap();
    }
}

#[test]
fn the_log_starts_over_under_constant_writing() {
    const TIMES: usize = 3;
    for_each_kind(&[Kind::SqliteFile], async |place| {
        let store = with_table(place.options()).await;
        let fresh_starts = Arc::new(AtomicUsize::new(0));
        let writers = (0..4).map(|_| {
            let (store, fresh_starts) = (store.clone(), fresh_starts.clone());
            tokio::spawn(async move {
                let mut before = 0;
                // How soon it starts over is the disk's business; that it does while everyone writes is ours.
                for _ in 0..400 {
                    write_pages(&store, 100).await;
                    let now = store.figures().wal_bytes.get();
                    fresh_starts.fetch_add(usize::from(now < before), Ordering::Relaxed);
                    before = now;
                    if fresh_starts.load(Ordering::Relaxed) >= TIMES {
                        break;
                    }
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        assert!(fresh_starts.load(Ordering::Relaxed) >= TIMES, "{} bytes", store.figures().wal_bytes.get());
        assert!(store.figures().checkpoint_hold.snapshot().count > 0);
    });
}

#[test]
fn a_read_that_keeps_the_log_alive_is_ended_at_the_limit() {
    for_each_kind(&[Kind::SqliteFile], async |place| {
        let store =
            with_table(place.options().wal_limit_bytes(70 << 20).read_timeout(Duration::from_secs(600)))
                .await;
        write_pages(&store, 100).await;
        let (begun, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
        let reader = tokio::spawn({
            let store = store.clone();
            async move {
                let long = async |tx: Tx, begun: tokio::sync::mpsc::UnboundedSender<()>| {
                    tx.query_one("SELECT count(*) FROM notes", &[]).await?;
                    let _ = begun.send(());
                    tx.query_one(ENDLESS, &[]).await
                };
                store.read_with(begun, long).await
            }
        });
        has_begun.recv().await.unwrap();
        let mut written = 0;
        while !reader.is_finished() {
            assert!(written < 200_000, "the log grew to {} bytes", store.figures().wal_bytes.get());
            write_pages(&store, 1_000).await;
            written += 1_000;
        }
        let ended = reader.await.unwrap().unwrap_err();
        assert_eq!(ended.code(), "STORE_READ_EVICTED", "{ended}");
        assert!(store.figures().reads_evicted.get() >= 1);
        // And the log is cleared by what comes next.
        let mut written = 0;
        while store.figures().wal_bytes.get() > 20 << 20 {
            assert!(written < 200_000, "the log has {} bytes", store.figures().wal_bytes.get());
            write_pages(&store, 100).await;
            written += 100;
        }
    });
}

#[test]
fn a_read_has_a_time_limit() {
    for_each_kind(&[Kind::SqliteFile, Kind::Postgres], async |place| {
        let store = with_table(place.options().read_timeout(Duration::from_millis(100))).await;
        let stopped = store.read(async |tx| tx.query(ENDLESS, &[]).await).await.unwrap_err();
        assert_eq!(stopped.code(), "STORE_TIMEOUT");
    });
}

#[test]
fn a_read_whose_caller_has_gone_stops() {
    for_each_kind(&[Kind::SqliteFile, Kind::Postgres], async |place| {
        let store = with_table(place.options().readers(2).connections(2)).await;
        let (begun, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..2 {
            let long = async |tx: Tx, begun: tokio::sync::mpsc::UnboundedSender<()>| {
                tx.query_one("SELECT count(*) FROM notes", &[]).await?;
                let _ = begun.send(());
                tx.query_one(ENDLESS, &[]).await
            };
            let reader = tokio::spawn({
                let (store, begun) = (store.clone(), begun.clone());
                async move { store.read_with(begun, long).await }
            });
            has_begun.recv().await.unwrap();
            reader.abort();
            assert!(reader.await.unwrap_err().is_cancelled());
        }
        // There are two readers: one must have come free, long before its time was up.
        store.read(async |tx| tx.query_one("SELECT count(*) FROM notes", &[]).await).await.unwrap();
    });
}
