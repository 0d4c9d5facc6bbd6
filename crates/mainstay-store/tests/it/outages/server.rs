//! A server that is killed and comes back.

use super::load::Load;
use super::{PATIENCE, create_pairs, soon};
use mainstay_store::{Options, Store};
use mainstay_testkit::postgres::{Postgres, Private};
use mainstay_testkit::stores::open_at_last;
use std::time::{Duration, Instant};

const KILLS: usize = 4;

/// Starting, killing and recovering block; the stores' tasks go on meanwhile.
async fn with_server(
    mut server: Private,
    change: impl FnOnce(&mut Private) -> anyhow::Result<()> + Send + 'static,
) -> Private {
    let changing = move || change(&mut server).map(|()| server);
    tokio::task::spawn_blocking(changing).await.unwrap().unwrap()
}

/// The time from now until a call that is made now, and again whenever it fails, succeeds.
async fn until_served(store: &Store) -> Duration {
    let began = Instant::now();
    let call = async || store.transact(async |tx| tx.query("SELECT 1", &[]).await).await;
    while let Err(error) = call().await {
        assert!(error.is_retryable() && began.elapsed() < PATIENCE, "{error}");
    }
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_under_load_loses_nothing_and_is_back_within_five_seconds() {
    let mut server = tokio::task::spawn_blocking(Postgres::private).await.unwrap().unwrap();
    let patient = Options::new(server.url()).connections(8).open().await.unwrap();
    // Tells its callers of the outage instead of waiting for its end.
    let hasty = Options::new(server.url()).connections(8).busy_timeout(Duration::from_millis(250));
    let hasty = open_at_last(hasty).await;
    assert!(patient.durability().await.unwrap().contains("fsync=on"));
    create_pairs(&patient).await;

    let load = Load::start(&[patient.clone(), hasty.clone()], 16);
    for kill in 1..=KILLS {
        load.until_more(200).await;
        server = with_server(server, Private::kill9).await;
        let before = load.acks();
        server = with_server(server, Private::start).await;
        let (all, first, second) =
            tokio::join!(load.until_each_since(&before), until_served(&patient), until_served(&hasty));
        eprintln!(
            "kill {kill}: new calls succeed after {first:?} and {second:?}, all 16 callers after {all:?}"
        );
        assert!(all.max(first).max(second) < soon());
    }
    let account = load.stop().await;
    eprintln!("{account}");
    account.check(&patient).await;
    drop((patient, hasty));
    with_server(server, Private::stop_fast).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_restarted_in_good_order_loses_nothing() {
    let mut server = tokio::task::spawn_blocking(Postgres::private).await.unwrap().unwrap();
    let store = Options::new(server.url()).connections(8).open().await.unwrap();
    create_pairs(&store).await;
    let load = Load::start(std::slice::from_ref(&store), 16);
    for _ in 0..2 {
        load.until_more(100).await;
        server = with_server(server, Private::stop_fast).await;
        let before = load.acks();
        server = with_server(server, Private::start).await;
        let all = load.until_each_since(&before).await;
        eprintln!("restart: all 16 callers after {all:?}");
    }
    let account = load.stop().await;
    eprintln!("{account}");
    account.check(&store).await;
}
