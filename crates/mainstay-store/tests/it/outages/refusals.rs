//! Databases that cannot be opened, and pools with nothing left.

use super::line::SLEEPING;
use super::{Line, at_address, on_postgres, until};
use mainstay_store::migrations::{Component, Script, Step};
use mainstay_store::{Error, Options};
use mainstay_testkit::stores::Place;
use std::time::{Duration, Instant};

async fn refused(url: &str) -> Error {
    refused_within(url, Duration::from_secs(5)).await
}

async fn refused_within(url: &str, busy_timeout: Duration) -> Error {
    let began = Instant::now();
    let error = Options::new(url).busy_timeout(busy_timeout).open().await.unwrap_err();
    // With what a busy machine adds, and still less than what a store waits by itself.
    assert!(began.elapsed() < busy_timeout + Duration::from_secs(4), "{:?}: {error}", began.elapsed());
    error
}

#[test]
fn a_server_that_is_not_there_is_unavailable() {
    on_postgres(async |place| {
        let line = Line::to(&place);
        line.proxy.cut().await;
        let error = refused(&line.url).await;
        assert_eq!(error.code(), "STORE_UNAVAILABLE", "{error}");
        assert!(error.is_retryable());
    });
}

#[test]
fn a_server_that_does_not_answer_is_unavailable() {
    on_postgres(async |place| {
        let line = Line::to(&place);
        line.proxy.half_open();
        let error = refused_within(&line.url, Duration::from_millis(400)).await;
        assert_eq!(error.code(), "STORE_UNAVAILABLE", "{error}");
    });
}

#[test]
fn an_unknown_user_is_denied_and_an_unknown_database_cannot_be_opened() {
    on_postgres(async |place| {
        let (_, range) = super::address(place.url());
        let host_on = &place.url()[range.start..];
        let unknown = refused(&format!("postgres://nobody_of_that_name:secret@{host_on}")).await;
        assert_eq!(unknown.code(), "STORE_PERMISSION_DENIED", "{unknown}");
        assert!(unknown.to_string().contains("nobody_of_that_name"), "{unknown}");
        assert!(!unknown.to_string().contains("secret"), "{unknown}");

        let name = place.database().unwrap().name();
        let missing = refused(&place.url().replace(name, "no_such_database")).await;
        assert_eq!(missing.code(), "STORE_OPEN_FAILED", "{missing}");
        assert!(missing.to_string().contains("no_such_database"), "{missing}");
    });
}

const NOTES: Component = Component {
    name: "notes",
    steps: &[Step {
        name: "create_notes",
        script: Script::Both(&["CREATE TABLE notes (id BIGINT PRIMARY KEY)"]),
        needs: 0,
    }],
};

#[test]
fn a_user_without_rights_is_denied_and_nothing_is_made() {
    on_postgres(async |place| {
        let url = place.database().unwrap().limited_user().unwrap();
        let empty = refused(&url).await;
        assert_eq!(empty.code(), "STORE_PERMISSION_DENIED", "{empty}");
        assert!(empty.entry().remedy.contains("GRANT"), "{}", empty.entry().remedy);

        // May read and write the history, but make no tables.
        let owner = place.open().await;
        let user = format!("{}_limited", place.database().unwrap().name());
        let grant = format!("GRANT SELECT, INSERT ON mainstay_migrations TO {user}");
        let (client, connection) = tokio_postgres::connect(place.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(&grant).await.unwrap();
        let denied = Options::new(&url).component(NOTES).open().await.unwrap_err();
        assert_eq!(denied.code(), "STORE_PERMISSION_DENIED", "{denied}");
        assert!(denied.to_string().contains("create_notes"), "which step: {denied}");
        until(&owner, "SELECT count(*) FROM mainstay_migrations WHERE component <> 'store'", 0).await;
    });
}

#[test]
fn a_pool_with_nothing_left_is_busy() {
    on_postgres(async |place: Place| {
        let observer = place.open().await;
        // Long enough for a connection to be made on a busy machine.
        let store = place.options().connections(2).busy_timeout(Duration::from_secs(2)).open().await.unwrap();
        let slow = (0..2).map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                store.transact(async |tx| tx.query("SELECT pg_sleep(600)", &[]).await).await
            })
        });
        let slow: Vec<_> = slow.collect();
        until(&observer, SLEEPING, 2).await;
        let (write, read) = tokio::join!(
            store.transact(async |tx| tx.query("SELECT 1", &[]).await),
            store.read(async |tx| tx.query("SELECT 1", &[]).await)
        );
        for busy in [write.unwrap_err(), read.unwrap_err()] {
            assert_eq!(busy.code(), "STORE_BUSY", "{busy}");
        }
        assert_eq!(store.figures().busy.get(), 2);
        slow.iter().for_each(tokio::task::JoinHandle::abort);
        until(&observer, SLEEPING, 0).await;
        store.read(async |tx| tx.query("SELECT 1", &[]).await).await.unwrap();
    });
}

#[test]
fn a_url_with_another_address_is_the_same_database() {
    let moved = at_address("postgres://a:b@127.0.0.1:1/db?x=y", "127.0.0.1:2".parse().unwrap());
    assert_eq!(moved, "postgres://a:b@127.0.0.1:2/db?x=y");
}
