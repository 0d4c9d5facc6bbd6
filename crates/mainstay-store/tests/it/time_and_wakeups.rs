//! The two things that a transaction shares with the world outside: the clock and wake-ups.

use crate::notes::{insert, with_table};
use crate::outages::{forget, until_linked};
use mainstay_store::{Error, Listener, Store, Topic};
use mainstay_testkit::stores::{Kind, Place, for_each_store};
use mainstay_testkit::time::{START_MS, VirtualTime};
use std::time::Duration;

/// A listener that nothing wakes by itself any more: on PostgreSQL everyone is woken once when the link is up.
async fn listen(place: &Place, store: &Store, topic: &Topic) -> Listener {
    let mut listener = store.listen(topic.clone());
    if place.kind() == Kind::Postgres {
        until_linked(&place.open().await, store).await;
    }
    forget(&mut listener).await;
    listener
}

#[test]
fn wake_ups_come_after_the_commit_and_only_then() {
    for_each_store(async |place| {
        let store = with_table(&place).await;
        let topic = Topic::new("notes").unwrap();
        let mut listener = listen(&place, &store, &topic).await;
        let failed = store.transact_with(topic.clone(), async |tx, topic| {
            tx.wake(&topic)?;
            Err::<(), _>(Error::application("no"))
        });
        failed.await.unwrap_err();
        assert!(!listener.woken(Duration::ZERO).await);
        let committed = store.transact_with(topic, async |tx, topic| {
            tx.wake(&topic)?;
            insert(&tx, 1).await
        });
        committed.await.unwrap();
        assert!(listener.woken(Duration::from_secs(10)).await);
    });
}

#[test]
fn a_transaction_that_only_wakes_wakes() {
    for_each_store(async |place| {
        let store = place.open().await;
        let topic = Topic::new("notes").unwrap();
        let mut listener = listen(&place, &store, &topic).await;
        store.transact_with(topic, async |tx, topic| tx.wake(&topic)).await.unwrap();
        assert!(listener.woken(Duration::from_secs(10)).await);
    });
}

#[test]
fn time_in_sql_is_the_tests_to_set() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open(&place).await.unwrap();
        let now = async || store.read(async |tx| tx.now_ms().await).await.unwrap();
        assert_eq!(now().await, START_MS);
        time.advance(86_400_000).await.unwrap();
        assert_eq!(now().await, START_MS + 86_400_000);
        time.advance(-172_800_000).await.unwrap();
        assert_eq!(now().await, START_MS - 86_400_000);
    });
}

#[test]
fn time_in_sql_is_the_real_time_otherwise() {
    for_each_store(async |place| {
        let store = place.open().await;
        let told = store.read(async |tx| tx.now_ms().await).await.unwrap();
        let now =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64;
        assert!((now - told).abs() < 60_000, "{told} against {now}");
    });
}
