//! A receiver that dies between the event that it was given and its answer. Whoever sends tries again, and finds another one
//! over the same store: the event is handled once.

use super::inbox::{open as open_inbox, secret, take, taken};
use super::publications::bench::{Bench, PATIENCE};
use axum::Router;
use mainstay_core::failpoints::{Action as Fault, Point};
use mainstay_core::random::{Random, SeededRandom};
use mainstay_flows::delivery::inbox::Inbox;
use mainstay_flows::delivery::publications::{Retry, Status, Target, Targets, Webhook};
use mainstay_store::Options;
use mainstay_testkit::crash::{self, Child, Running};
use mainstay_testkit::stores::{Kind, Place};
use mainstay_work::egress::Egress;
use mainstay_work::http::HttpConfig;
use serde_json::json;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;

const SIGABRT: i32 = 6;
const URL: &str = "TEST_URL";
const ADDRESS: &str = "TEST_ADDRESS";
const POINT: &str = "TEST_POINT";
/// A sender waits for the next receiver for as long as this test does.
const RETRY: Retry = Retry { max_retries: 1_000, initial_backoff_ms: 60, base: 1.0 };

#[test]
fn child_receives() {
    if !crash::is_child() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = open_inbox(Options::new(std::env::var(URL).unwrap())).await;
        if let Some((name, nth)) = std::env::var(POINT).unwrap().split_once('@') {
            store.failpoints().arm(Point::named(name), Fault::Abort, nth.parse::<u64>().unwrap() - 1, 1);
        }
        let inbox = Inbox::new(&store, "inventory", [secret("s")]).unwrap();
        let listener = tokio::net::TcpListener::bind(std::env::var(ADDRESS).unwrap()).await.unwrap();
        crash::say(format!("at {}", listener.local_addr().unwrap()));
        axum::serve(listener, Router::new().route_service("/events", inbox.receiver(take))).await.unwrap();
    });
}

/// Starts a receiver that dies at a point, or never; and where it listens.
fn receiver(place: &Place, address: &str, point: &str) -> (Running, String) {
    let child = Child::of("delivery::crash_receiver::child_receives").env(URL, place.url());
    let child = child.env(ADDRESS, address).env(POINT, point).spawn().unwrap();
    let at = child.wait_for("at ", PATIENCE).unwrap()["at ".len()..].to_owned();
    (child, at)
}

async fn handled(place: &Place) -> Vec<String> {
    let store = open_inbox(place.options()).await;
    let taken = taken(&store).await;
    store.close().await;
    taken
}

async fn survive(kind: Kind, seed: u64, deaths: usize) {
    let (place, sending) = (Place::new(kind), Place::new(Kind::SqliteMemory));
    let random = SeededRandom::new(seed);
    // Nobody has begun to listen there yet, and whoever does will listen there again.
    let (mut child, address) = receiver(&place, "127.0.0.1:0", "inbox.handled@1");
    let config =
        HttpConfig { secrets: vec![secret("s")], ..HttpConfig::new(format!("http://{address}/events")) };
    let egress = Arc::new(Egress::new(&["127.0.0.1".to_owned()]).unwrap());
    let target = Target::webhook("inventory", Webhook::new(config, egress).unwrap());
    let bench = Bench::open(&sending, Targets::new(RETRY).with(target)).await;
    let engine = bench.start().await;
    let points = ["inbox.handled", "store.committed", "store.commit"];
    let mut ids = Vec::new();
    for death in 0..deaths {
        if death > 0 {
            let nth = if death < points.len() { 1 } else { 1 + random.below(3) };
            child = receiver(&place, &address, &format!("{}@{nth}", points[death % points.len()])).0;
        }
        for _ in 0..3 {
            let id = bench.event("OrderSubmitted", &json!(death)).await;
            bench.publish(&id, &["inventory"]).await;
            ids.push(id);
        }
        let status = child.wait(PATIENCE).unwrap();
        assert_eq!(status.signal(), Some(SIGABRT), "{kind}, seed {seed}, death {death}: {:?}", child.said());
        if death == 1 {
            let mut untold = 0;
            for id in handled(&place).await {
                untold += u32::from(bench.publication(&id, "inventory").await.status == Status::Pending);
            }
            assert!(untold > 0, "one was handled, and nobody was told");
        }
    }
    let (mut child, _) = receiver(&place, &address, "");
    for id in &ids {
        bench.until(id, "inventory", Status::Delivered).await;
    }
    engine.stop(PATIENCE).await.unwrap();
    child.kill9().unwrap();
    ids.sort();
    assert_eq!(handled(&place).await, ids, "{kind}, seed {seed}: each once, and nothing else");
    println!("{kind}, seed {seed}: {deaths} deaths of receivers, {} events, each handled once", ids.len());
}

#[test]
fn b_278_a_receiver_that_dies_before_it_answers_has_handled_each_event_once() {
    let is_long = std::env::var_os("MAINSTAY_LONG").is_some_and(|value| value == "1");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for kind in [Kind::SqliteFile, Kind::Postgres] {
        for seed in 1..=if is_long { 5 } else { 1 } {
            runtime.block_on(survive(kind, seed, if is_long { 30 } else { 3 }));
        }
    }
}
