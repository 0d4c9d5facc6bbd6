//! A PostgreSQL transaction of the application's own, lent to the store.

use crate::outages::{forget, until_linked};
use mainstay_store::{Error, Result, Store, Topic, Tx};
use mainstay_testkit::stores::{Kind, Place, for_each_kind};
use std::time::Duration;
use tokio_postgres::{Client, NoTls};

const INSERT: &str = "INSERT INTO notes (id) VALUES ($1)";

/// A store with a table, and a lender.
struct Pair {
    place: Place,
    store: Store,
    client: Client,
}

fn with_lender(body: impl AsyncFn(Pair)) {
    for_each_kind(&[Kind::Postgres], async |place| {
        let store = place.open().await;
        let sql = "CREATE TABLE notes (id BIGINT PRIMARY KEY)";
        store.transact(async |tx| tx.execute(sql, &[]).await).await.unwrap();
        let client = connect(&place).await;
        body(Pair { place, store, client }).await;
    });
}

async fn connect(place: &Place) -> Client {
    let (client, connection) = tokio_postgres::connect(place.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn insert(tx: &Tx, id: i64) -> Result<u64> {
    tx.execute(INSERT, mainstay_store::params![id]).await
}

async fn ids(store: &Store) -> Vec<i64> {
    let sql = "SELECT id FROM notes ORDER BY id";
    let rows = store.read(async |tx| tx.query(sql, &[]).await).await.unwrap();
    rows.iter().map(|row| row.get(0).unwrap()).collect()
}

#[test]
fn both_commit_together() {
    with_lender(async |Pair { store, mut client, .. }| {
        let lender = client.transaction().await.unwrap();
        lender.execute(INSERT, &[&1_i64]).await.unwrap();
        let lent = store
            .lend(&lender, async |tx| {
                insert(&tx, 2).await?;
                let (a, b) = tokio::join!(insert(&tx, 3), insert(&tx, 4));
                let seen: i64 = tx.query_one("SELECT count(*) FROM notes", &[]).await?.get(0)?;
                Ok((a? + b?, seen))
            })
            .await
            .unwrap();
        assert_eq!(*lent.value(), (2, 4), "and the lender's row is seen");
        assert_eq!(ids(&store).await, [] as [i64; 0], "nothing before the lender commits");
        lender.execute(INSERT, &[&5_i64]).await.unwrap();
        lender.commit().await.unwrap();
        assert_eq!(lent.committed(), (2, 4));
        assert_eq!(ids(&store).await, [1, 2, 3, 4, 5]);
    });
}

#[test]
fn both_roll_back_together() {
    with_lender(async |Pair { store, mut client, .. }| {
        let lender = client.transaction().await.unwrap();
        lender.execute(INSERT, &[&1_i64]).await.unwrap();
        drop(store.lend(&lender, async |tx| insert(&tx, 2).await).await.unwrap());
        lender.rollback().await.unwrap();
        assert_eq!(ids(&store).await, [] as [i64; 0]);
    });
}

#[test]
fn what_fails_is_undone_alone_and_the_lender_goes_on() {
    with_lender(async |Pair { store, mut client, .. }| {
        let lender = client.transaction().await.unwrap();
        lender.execute(INSERT, &[&1_i64]).await.unwrap();
        let failed = store.lend(&lender, async |tx| {
            insert(&tx, 2).await?;
            Err::<(), _>(Error::application("no"))
        });
        assert_eq!(failed.await.unwrap_err().code(), "STORE_ROLLED_BACK");
        let doubled = store.lend(&lender, async |tx| {
            insert(&tx, 2).await?;
            insert(&tx, 1).await
        });
        assert_eq!(doubled.await.unwrap_err().code(), "STORE_CONSTRAINT");
        let swallowed = store.lend(&lender, async |tx| {
            insert(&tx, 2).await?;
            drop(insert(&tx, 1).await);
            Ok(())
        });
        assert_eq!(swallowed.await.unwrap_err().code(), "STORE_TRANSACTION_FAILED");
        let controls = store.lend(&lender, async |tx| {
            insert(&tx, 2).await?;
            tx.execute("COMMIT", &[]).await
        });
        assert_eq!(controls.await.unwrap_err().code(), "STORE_STATEMENT_REFUSED");
        drop(store.lend(&lender, async |tx| insert(&tx, 3).await).await.unwrap());
        lender.execute(INSERT, &[&4_i64]).await.unwrap();
        lender.commit().await.unwrap();
        assert_eq!(ids(&store).await, [1, 3, 4]);
    });
}

#[test]
fn a_foreign_await_and_a_panic_are_refused_and_undone() {
    with_lender(async |Pair { store, mut client, .. }| {
        let lender = client.transaction().await.unwrap();
        let waits = store.lend(&lender, async |tx| {
            insert(&tx, 1).await?;
            tokio::time::sleep(Duration::from_secs(60)).await;
            Ok(())
        });
        assert_eq!(waits.await.unwrap_err().code(), "STORE_FOREIGN_AWAIT");
        let beside = store.lend(&lender, async |tx| {
            let (inserted, ()) = tokio::join!(insert(&tx, 1), tokio::time::sleep(Duration::from_secs(60)));
            inserted
        });
        assert_eq!(beside.await.unwrap_err().code(), "STORE_FOREIGN_AWAIT");
        let panics = store.lend(&lender, async |tx| {
            if insert(&tx, 1).await? == 1 {
                panic!("at the disco");
            }
            Ok(())
        });
        assert_eq!(panics.await.unwrap_err().to_string(), "the transaction panicked: at the disco");
        lender.execute(INSERT, &[&2_i64]).await.unwrap();
        lender.commit().await.unwrap();
        assert_eq!(ids(&store).await, [2]);
    });
}

#[test]
fn a_dropped_loan_is_undone_and_the_lender_goes_on() {
    with_lender(async |Pair { store, mut client, .. }| {
        let lender = client.transaction().await.unwrap();
        lender.execute(INSERT, &[&1_i64]).await.unwrap();
        let slow = store.lend(&lender, async |tx| {
            insert(&tx, 2).await?;
            tx.query("SELECT pg_sleep(2)", &[]).await?;
            insert(&tx, 3).await
        });
        assert!(tokio::time::timeout(Duration::from_millis(100), slow).await.is_err());
        lender.execute(INSERT, &[&4_i64]).await.unwrap();
        lender.commit().await.unwrap();
        assert_eq!(ids(&store).await, [1, 4]);
    });
}

#[test]
fn wake_ups_go_out_when_the_lender_says_that_it_committed() {
    with_lender(async |Pair { place, store, mut client }| {
        let topic = Topic::new("notes").unwrap();
        let other = place.open().await;
        let (mut here, mut there) = (store.listen(topic.clone()), other.listen(topic.clone()));
        // Everyone is woken once when the link is up.
        until_linked(&store, &other).await;
        until_linked(&other, &store).await;
        forget(&mut here).await;
        forget(&mut there).await;
        let lender = client.transaction().await.unwrap();
        let lend = async || {
            let work = async |tx: Tx| tx.wake(&topic);
            store.lend(&lender, work).await.unwrap()
        };
        drop(lend().await);
        let lent = lend().await;
        lender.commit().await.unwrap();
        assert!(!here.woken(Duration::from_millis(100)).await && !there.woken(Duration::ZERO).await);
        lent.committed();
        assert!(here.woken(Duration::from_secs(10)).await && there.woken(Duration::from_secs(10)).await);
    });
}

#[test]
fn a_tx_that_outlives_its_loan_is_refused() {
    with_lender(async |Pair { store, mut client, .. }| {
        let lender = client.transaction().await.unwrap();
        let lent = store.lend(&lender, async |tx| Ok(tx)).await.unwrap();
        let closed = insert(lent.value(), 1).await.unwrap_err();
        assert_eq!(closed.code(), "STORE_TRANSACTION_CLOSED");
        let topic = Topic::new("late").unwrap();
        assert_eq!(lent.value().wake(&topic).unwrap_err().code(), "STORE_TRANSACTION_CLOSED");
        lender.commit().await.unwrap();
        assert_eq!(insert(&lent.committed(), 1).await.unwrap_err().code(), "STORE_TRANSACTION_CLOSED");
        assert_eq!(ids(&store).await, [] as [i64; 0]);
    });
}

#[test]
fn a_loan_whose_operation_is_still_running_elsewhere_is_undone() {
    with_lender(async |Pair { store, mut client, .. }| {
        let lender = client.transaction().await.unwrap();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let escapes = store.lend(&lender, async |tx: Tx| {
            insert(&tx, 1).await?;
            let elsewhere = tx.clone();
            let mut running = Box::pin(async move { insert(&elsewhere, 2).await });
            std::future::poll_fn(|context| {
                assert!(running.as_mut().poll(context).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
            assert!(sender.send(running).is_ok());
            Ok(())
        });
        assert_eq!(escapes.await.unwrap_err().code(), "STORE_TRANSACTION_ESCAPED");
        let late = tokio::time::timeout(Duration::from_secs(10), receiver.await.unwrap()).await.unwrap();
        assert_eq!(late.unwrap_err().code(), "STORE_TRANSACTION_CLOSED");
        lender.execute(INSERT, &[&3_i64]).await.unwrap();
        lender.commit().await.unwrap();
        assert_eq!(ids(&store).await, [3]);
    });
}

#[test]
fn a_sqlite_store_takes_no_loans() {
    with_lender(async |Pair { mut client, .. }| {
        let store = Store::open("sqlite::memory:").await.unwrap();
        let lender = client.transaction().await.unwrap();
        let refused = store.lend(&lender, async |tx| insert(&tx, 1).await).await.unwrap_err();
        assert_eq!(refused.code(), "STORE_STATEMENT_REFUSED");
        assert!(refused.to_string().contains("SQLite"), "{refused}");
        lender.execute(INSERT, &[&1_i64]).await.unwrap();
        lender.commit().await.unwrap();
    });
}
