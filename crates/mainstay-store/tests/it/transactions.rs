//! What a transaction promises, alike on every kind of store.

use crate::notes::{create_table, ids, insert, with_table};
use mainstay_store::{Constraint, Error, Isolation, Result, Store, Topic, Tx, params};
use mainstay_testkit::stores::{Kind, for_each_kind, for_each_lasting_store, for_each_store};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn commits_all_or_nothing() {
    for_each_store(async |place| {
        let store = with_table(&place).await;
        store
            .transact(async |tx| {
                insert(&tx, 1).await?;
                insert(&tx, 2).await
            })
            .await
            .unwrap();
        let failed = store
            .transact(async |tx| {
                insert(&tx, 3).await?;
                Err::<(), _>(Error::application("no"))
            })
            .await
            .unwrap_err();
        assert_eq!(failed.code(), "STORE_ROLLED_BACK");
        assert_eq!(ids(&store).await, [1, 2]);
    });
}

#[test]
fn a_transaction_reads_its_own_writes() {
    for_each_store(async |place| {
        let store = with_table(&place).await;
        let inside = store.transact(async |tx| {
            insert(&tx, 1).await?;
            ids_in(&tx).await
        });
        assert_eq!(inside.await.unwrap(), [1]);
    });
}

#[test]
fn a_foreign_await_is_refused_and_undone() {
    for_each_store(async |place| {
        let store = with_table(&place).await;
        let waits = store
            .transact(async |tx| {
                insert(&tx, 1).await?;
                tokio::time::sleep(Duration::from_millis(1)).await;
                insert(&tx, 2).await
            })
            .await
            .unwrap_err();
        assert_eq!(waits.code(), "STORE_FOREIGN_AWAIT");
        let yields = store
            .transact(async |tx| {
                insert(&tx, 1).await?;
                tokio::task::yield_now().await;
                Ok(())
            })
            .await
            .unwrap_err();
        assert_eq!(yields.code(), "STORE_FOREIGN_AWAIT");
        assert_eq!(ids(&store).await, [] as [i64; 0]);
    });
}

#[test]
fn a_wait_beside_an_operation_is_refused_once_the_operation_is_over() {
    for_each_store(async |place| {
        let store = with_table(&place).await;
        let waits = store
            .transact(async |tx| {
                let (inserted, ()) =
                    tokio::join!(insert(&tx, 1), tokio::time::sleep(Duration::from_secs(60)));
                inserted
            })
            .await
            .unwrap_err();
        assert_eq!(waits.code(), "STORE_FOREIGN_AWAIT");
        assert_eq!(ids(&store).await, [] as [i64; 0]);
    });
}

#[test]
fn operations_may_be_joined() {
    for_each_store(async |place| {
        let store = with_table(&place).await;
        let joined = store
            .transact(async |tx| {
                let (a, b, c) = tokio::join!(insert(&tx, 1), insert(&tx, 2), insert(&tx, 3));
                Ok(a? + b? + c?)
            })
            .await;
        assert_eq!(joined.unwrap(), 3);
        assert_eq!(ids(&store).await, [1, 2, 3]);
    });
}

#[test]
fn a_panic_is_an_error_and_undone() {
    for_each_store(async |place| {
        let store = with_table(&place).await;
        let panicked = store
            .transact(async |tx| {
                insert(&tx, 1).await?;
                if ids_in(&tx).await? == [1] {
                    panic!("at the disco");
                }
                Ok(())
            })
            .await
            .unwrap_err();
        assert_eq!(panicked.to_string(), "the transaction panicked: at the disco");
        assert_eq!(ids(&store).await, [] as [i64; 0]);
        store.transact(async |tx| insert(&tx, 2).await).await.unwrap();
        assert_eq!(ids(&store).await, [2]);
    });
}

async fn ids_in(tx: &Tx) -> Result<Vec<i64>> {
    tx.query("SELECT id FROM notes ORDER BY id", &[]).await?.iter().map(|row| row.get(0)).collect()
}

#[test]
fn a_failed_statement_ends_the_transaction_even_when_its_error_is_swallowed() {
    for_each_store(async |place| {
        let store = with_table(&place).await;
        store.transact(async |tx| insert(&tx, 1).await).await.unwrap();
        let swallowed = store
            .transact(async |tx| {
                insert(&tx, 2).await?;
                let doubled = insert(&tx, 1).await.unwrap_err();
                assert!(matches!(doubled, Error::Constraint { kind: Constraint::Unique, .. }), "{doubled}");
                let after = insert(&tx, 3).await.unwrap_err();
                assert_eq!(after.code(), "STORE_TRANSACTION_FAILED");
                Ok(())
            })
            .await
            .unwrap_err();
        assert_eq!(swallowed.code(), "STORE_TRANSACTION_FAILED");
        assert_eq!(ids(&store).await, [1]);
    });
}

#[test]
fn an_operation_dropped_half_way_fails_the_transaction() {
    for_each_store(async |place| {
        let store = with_table(&place).await;
        store.transact(async |tx| insert(&tx, 1).await).await.unwrap();
        let dropped = store
            .transact(async |tx| {
                insert(&tx, 2).await?;
                // The server would answer this one with an error that nobody reads.
                let mut doubled = Box::pin(insert(&tx, 1));
                std::future::poll_fn(|context| {
                    drop(doubled.as_mut().poll(context));
                    std::task::Poll::Ready(())
                })
                .await;
                drop(doubled);
                Ok(())
            })
            .await
            .unwrap_err();
        assert_eq!(dropped.code(), "STORE_TRANSACTION_FAILED");
        assert_eq!(ids(&store).await, [1]);
    });
}

#[test]
fn a_tx_is_refused_outside_of_its_closure() {
    for_each_store(async |place| {
        let store = with_table(&place).await;
        let escaped: Tx = store.transact(async |tx| Ok(tx)).await.unwrap();
        assert_eq!(insert(&escaped, 1).await.unwrap_err().code(), "STORE_TRANSACTION_CLOSED");
        let topic = Topic::new("late").unwrap();
        assert_eq!(escaped.wake(&topic).unwrap_err().code(), "STORE_TRANSACTION_CLOSED");
        store.transact(async |tx| insert(&tx, 2).await).await.unwrap();
        assert_eq!(insert(&escaped, 3).await.unwrap_err().code(), "STORE_TRANSACTION_CLOSED");
        assert_eq!(ids(&store).await, [2]);
    });
}

/// On PostgreSQL; on SQLite no operation outlasts the poll that began it.
#[test]
fn an_operation_still_running_elsewhere_undoes_the_transaction() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let store = with_table(&place).await;
        // Prepares the statement or leaves that to the one that escapes.
        for is_prepared in [false, true] {
            let store = if is_prepared { store.clone() } else { place.open().await };
            // Nothing can be answered, however slow this thread is, before the table is free again.
            let (holder, connection) =
                tokio_postgres::connect(place.url(), tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            holder.batch_execute("BEGIN; LOCK TABLE notes IN ACCESS EXCLUSIVE MODE").await.unwrap();
            let (sender, mut escaped) = tokio::sync::mpsc::unbounded_channel();
            let escapes = store.transact_with((sender, Arc::new(holder)), async |tx, (sender, holder)| {
                tx.query("SELECT 1", &[]).await?;
                let elsewhere = tx.clone();
                let mut running = Box::pin(async move { insert(&elsewhere, 1).await });
                std::future::poll_fn(|context| {
                    assert!(running.as_mut().poll(context).is_pending());
                    std::task::Poll::Ready(())
                })
                .await;
                assert!(sender.send(running).is_ok());
                tokio::spawn(async move { holder.batch_execute("COMMIT").await });
                Ok(())
            });
            assert_eq!(escapes.await.unwrap_err().code(), "STORE_TRANSACTION_ESCAPED");
            let running = escaped.recv().await.unwrap();
            let late = tokio::time::timeout(Duration::from_secs(10), running).await.unwrap();
            // Whatever it is told, it did nothing that lasts.
            drop(late);
            assert_eq!(ids(&store).await, [] as [i64; 0]);
            let insert_and_undo = async |tx: Tx| {
                insert(&tx, 2).await?;
                Err::<(), _>(Error::application("only prepared"))
            };
            store.transact(insert_and_undo).await.unwrap_err();
        }
    });
}

#[test]
fn transaction_control_is_refused() {
    for_each_store(async |place| {
        let store = with_table(&place).await;
        for sql in
            ["COMMIT", "ROLLBACK", "SAVEPOINT a", "BEGIN", "PRAGMA foreign_keys = OFF", "ATTACH 'x' AS x"]
        {
            let refused = store
                .transact_with(sql, async |tx, sql| {
                    insert(&tx, 1).await?;
                    tx.execute(sql, &[]).await
                })
                .await
                .unwrap_err();
            assert_eq!(refused.code(), "STORE_STATEMENT_REFUSED", "{sql}: {refused}");
        }
        assert_eq!(ids(&store).await, [] as [i64; 0]);
    });
}

#[test]
fn a_read_cannot_write() {
    for_each_store(async |place| {
        let store = with_table(&place).await;
        let refused = store.read(async |tx| insert(&tx, 1).await).await.unwrap_err();
        assert_eq!(refused.code(), "STORE_READ_ONLY");
        let sneaky = "INSERT INTO notes (id, text) VALUES (1, 'x') RETURNING id";
        let refused = store.read_with(sneaky, async |tx, sql| tx.query(sql, &[]).await).await.unwrap_err();
        assert_eq!(refused.code(), "STORE_READ_ONLY");
        assert_eq!(ids(&store).await, [] as [i64; 0]);
    });
}

#[test]
fn a_dropped_call_commits_or_does_nothing() {
    for_each_store(async |place| {
        let store = with_table(&place).await;
        for id in 0..50 {
            let call = store.transact_with(id, async |tx, id| {
                insert(&tx, 2 * id).await?;
                insert(&tx, 2 * id + 1).await
            });
            // Some are dropped before they begin, some while they wait, some after they are done.
            drop(tokio::time::timeout(Duration::from_micros(20 * id as u64), call).await);
        }
        // Whoever is still at it is in front of this one.
        store.transact(async |tx| insert(&tx, 1_000).await).await.unwrap();
        store.clone().close().await;
        let mut found =
            if place.kind() == Kind::SqliteMemory { return } else { ids(&place.open().await).await };
        found.pop();
        let pairs: Vec<i64> = found.iter().map(|id| id / 2).collect();
        assert!(pairs.chunks(2).all(|pair| pair.len() == 2 && pair[0] == pair[1]), "{found:?}");
    });
}

#[test]
fn callers_wait_for_each_other_and_none_is_lost() {
    for_each_store(async |place| {
        let store = with_table(&place).await;
        let callers = (0..64_i64).map(|caller| {
            let store = store.clone();
            tokio::spawn(async move {
                for number in 0..5 {
                    store
                        .transact_with(caller * 100 + number, async |tx, id| insert(&tx, id).await)
                        .await
                        .unwrap();
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.unwrap();
        }
        assert_eq!(ids(&store).await.len(), 320);
        assert_eq!(store.figures().committed.get(), 320 + 1 + 1, "and the table, and the migration");
        if place.kind() == Kind::SqliteFile {
            let groups = store.figures().group_size.snapshot();
            assert!(groups.count < 300, "{} commits for 320 transactions", groups.count);
        }
    });
}

#[test]
fn counters_under_a_lock_lose_no_update() {
    for_each_store(async |place| {
        let store = place.open().await;
        count_to(&store, 20, true).await;
    });
}

#[test]
fn serializable_transactions_lose_no_update_without_a_lock() {
    for_each_store(async |place| {
        let store = place.options().busy_timeout(Duration::from_secs(30)).open().await.unwrap();
        count_to(&store.with_isolation(Isolation::Serializable), 6, false).await;
    });
}

/// Eight tasks read a number and write it back, one higher.
async fn count_to(store: &Store, each: i64, with_lock: bool) {
    store
        .transact(async |tx| tx.execute("CREATE TABLE counter (n BIGINT NOT NULL)", &[]).await)
        .await
        .unwrap();
    store.transact(async |tx| tx.execute("INSERT INTO counter VALUES (0)", &[]).await).await.unwrap();
    let tasks = (0..8).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            for _ in 0..each {
                loop {
                    let step = store.transact(move |tx| async move {
                        if with_lock {
                            tx.lock("counter").await?;
                        }
                        let n: i64 = tx.query_one("SELECT n FROM counter", &[]).await?.get(0)?;
                        tx.execute("UPDATE counter SET n = $1", params![n + 1]).await
                    });
                    match step.await {
                        Ok(_) => break,
                        Err(Error::Conflict { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let n: i64 =
        store.read(async |tx| tx.query_one("SELECT n FROM counter", &[]).await?.get(0)).await.unwrap();
    assert_eq!(n, 8 * each);
}

#[test]
fn a_closed_store_refuses_and_lets_go() {
    for_each_lasting_store(async |place| {
        let store = with_table(&place).await;
        let other = store.clone();
        store.close().await;
        let refused = other.transact(async |tx| insert(&tx, 1).await).await.unwrap_err();
        assert_eq!(refused.code(), "STORE_CLOSED");
        drop(other);
        assert_eq!(ids(&place.open().await).await, [] as [i64; 0]);
    });
}

#[test]
fn a_change_of_the_schema_elsewhere_does_not_disturb_prepared_statements() {
    for_each_store(async |place| {
        let store = place.options().connections(1).open().await.unwrap();
        create_table(&store).await;
        store.transact(async |tx| insert(&tx, 1).await).await.unwrap();
        let all =
            async || store.transact(async |tx| tx.query("SELECT * FROM notes", &[]).await).await.unwrap();
        assert_eq!(all().await[0].columns().len(), 2);
        store
            .transact(async |tx| tx.execute("ALTER TABLE notes ADD COLUMN more TEXT", &[]).await)
            .await
            .unwrap();
        assert_eq!(all().await[0].columns().len(), 3);
    });
}
