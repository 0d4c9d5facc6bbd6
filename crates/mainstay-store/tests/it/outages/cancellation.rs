//! Calls whose callers have gone.

use super::line::SLEEPING;
use super::{PATIENCE, create_pairs, ids, on_postgres, until};
use mainstay_store::Tx;
use std::time::Duration;

/// Far less than what is slow here would take by itself.
const SOON: Duration = Duration::from_secs(16);

/// Sessions of this database that are in a transaction, besides the one that asks.
const OPEN: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
    AND xact_start IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend'";

async fn slow(tx: Tx) -> mainstay_store::Result<()> {
    tx.lock("cancelled").await?;
    tx.execute("INSERT INTO pairs (id, half) VALUES (1, 1)", &[]).await?;
    tx.query("SELECT pg_sleep(600)", &[]).await.map(drop)
}

#[test]
fn a_call_dropped_during_a_slow_statement_leaves_nothing_behind() {
    on_postgres(async |place| {
        let observer = place.open().await;
        let store = place.options().connections(1).transaction_timeout(PATIENCE).open().await.unwrap();
        create_pairs(&store).await;
        for _ in 0..3 {
            let call = tokio::spawn({
                let store = store.clone();
                async move { store.transact(slow).await }
            });
            until(&observer, SLEEPING, 1).await;
            call.abort();
            assert!(call.await.unwrap_err().is_cancelled());
            // The one connection of the pool is used again or replaced, and the lock is free.
            let next = store.transact(async |tx| tx.lock("cancelled").await);
            tokio::time::timeout(SOON, next).await.expect("in time").unwrap();
            until(&observer, OPEN, 0).await;
            assert_eq!(ids(&observer).await, [] as [i64; 0]);
        }
    });
}

#[test]
fn a_call_that_ran_out_of_time_leaves_nothing_behind() {
    on_postgres(async |place| {
        let observer = place.open().await;
        let options = place.options().connections(1).transaction_timeout(Duration::from_secs(1));
        let store = options.open().await.unwrap();
        create_pairs(&store).await;
        let late = store.transact(slow).await.unwrap_err();
        assert_eq!(late.code(), "STORE_TIMEOUT", "{late}");
        let next = observer.transact(async |tx| tx.lock("cancelled").await);
        tokio::time::timeout(SOON, next).await.expect("in time").unwrap();
        until(&observer, OPEN, 0).await;
        assert_eq!(ids(&observer).await, [] as [i64; 0]);
        store.transact(async |tx| tx.lock("cancelled").await).await.unwrap();
    });
}

#[test]
fn a_cancelled_call_never_stops_the_statement_of_another() {
    on_postgres(async |place| {
        let store = place.options().connections(1).open().await.unwrap();
        create_pairs(&store).await;
        for round in 0..100_u64 {
            let call = store.transact(async |tx| tx.query("SELECT pg_sleep(0.002)", &[]).await);
            // Dropped before, during and after the statement.
            drop(tokio::time::timeout(Duration::from_micros(round * 40), call).await);
            let next = store.transact(async |tx| tx.query("SELECT pg_sleep(0.002)", &[]).await).await;
            assert!(next.is_ok(), "round {round}: {}", next.unwrap_err());
        }
    });
}

#[test]
fn closing_waits_for_calls_under_way() {
    on_postgres(async |place| {
        let observer = place.open().await;
        let store = place.open().await;
        create_pairs(&store).await;
        let call = tokio::spawn({
            let store = store.clone();
            async move {
                let work = async |tx: Tx| {
                    tx.query("SELECT pg_sleep(1)", &[]).await?;
                    tx.execute("INSERT INTO pairs (id, half) VALUES (1, 1)", &[]).await
                };
                store.transact(work).await
            }
        });
        until(&observer, SLEEPING, 1).await;
        store.close().await;
        assert_eq!(ids(&observer).await, [1]);
        call.await.unwrap().unwrap();
    });
}
