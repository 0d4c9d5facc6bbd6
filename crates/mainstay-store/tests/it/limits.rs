//! What bounds a call: how many wait, how long one runs.

use crate::notes::{ENDLESS, create_table, ids, insert};
use mainstay_store::{Result, Tx};
use mainstay_testkit::stores::{Kind, for_each_store};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_full_queue_is_busy_after_the_deadline_and_nothing_was_done() {
    for_each_store(async |place| {
        let options = place.options().queue_limit(1).connections(2).busy_timeout(Duration::from_secs(1));
        let store = options.transaction_timeout(Duration::from_secs(5)).open().await.unwrap();
        create_table(&store).await;
        let started = Arc::new(tokio::sync::Notify::new());
        let slow = tokio::spawn({
            let (store, started) = (store.clone(), started.clone());
            async move {
                let work = async |tx: Tx, started: Arc<tokio::sync::Notify>| {
                    insert(&tx, 1).await?;
                    started.notify_one();
                    tx.query(ENDLESS, &[]).await
                };
                store.transact_with(started, work).await
            }
        });
        started.notified().await;
        // The slow one may have been started on its caller's thread and be on its way to the writer's.
        let mut id = 2;
        let busy = loop {
            match store.transact_with(id, async |tx, id| insert(&tx, id).await).await {
                Ok(_) if slow.is_finished() => panic!("nobody was in the way: {:?}", slow.await.unwrap()),
                Ok(_) => id += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(busy.code(), "STORE_BUSY", "{busy}");
        assert!(busy.is_retryable() && !busy.is_outcome_unknown());
        assert_eq!(store.figures().busy.get(), 1);
        assert_eq!(slow.await.unwrap().unwrap_err().code(), "STORE_TIMEOUT");
        store.close().await;
        if place.kind() != Kind::SqliteMemory {
            assert_eq!(ids(&place.open().await).await, (2..id).collect::<Vec<_>>());
        }
    });
}

#[test]
fn a_transaction_that_runs_too_long_is_stopped() {
    for_each_store(async |place| {
        let options = place.options().transaction_timeout(Duration::from_millis(500));
        let store = options.open().await.unwrap();
        create_table(&store).await;
        let stopped = store
            .transact(async |tx| {
                insert(&tx, 1).await?;
                tx.query(ENDLESS, &[]).await
            })
            .await
            .unwrap_err();
        assert_eq!(stopped.code(), "STORE_TIMEOUT", "{stopped}");
        assert_eq!(ids(&store).await, [] as [i64; 0]);
        store.transact(async |tx| insert(&tx, 2).await).await.unwrap();
    });
}

#[test]
fn a_handle_can_allow_more_time() {
    for_each_store(async |place| {
        let short = Duration::from_millis(200);
        let store = place.options().transaction_timeout(short).read_timeout(short).open().await.unwrap();
        let patient = store.with_time_limit(Duration::from_secs(60));
        // Takes longer than the usual limit, and ends by itself.
        let count = async |tx: Tx| -> Result<i64> {
            let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000000) \
                       SELECT count(*) FROM n";
            tx.query_one(sql, &[]).await?.get(0)
        };
        assert_eq!(store.transact(count).await.unwrap_err().code(), "STORE_TIMEOUT");
        assert_eq!(patient.transact(count).await.unwrap(), 3_000_000);
        assert_eq!(patient.read(count).await.unwrap(), 3_000_000);
    });
}
