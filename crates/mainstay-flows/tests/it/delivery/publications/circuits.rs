//! Targets behind circuits.

use super::bench::{Bench, Context, PATIENCE, components, targets};
use super::webhook::loopback;
use crate::delivery::server::{Server, reply};
use mainstay_events::Log;
use mainstay_flows::delivery::publications::{Publisher, Status, Target, Webhook};
use mainstay_guards::circuits::{Circuits, Force, Settings, State};
use mainstay_store::Tx;
use mainstay_testkit::stores::for_each_store;
use mainstay_testkit::time::VirtualTime;
use mainstay_work::http::HttpConfig;
use mainstay_work::{Functions, Native, Work};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

fn force(is_open: bool) -> Force {
    Force { is_open, actor: "ada".into(), reason: "test".into(), for_ms: None }
}

#[test]
fn b_172_a_target_behind_an_open_circuit_waits_and_spends_no_attempts() {
    for_each_store(async |place| {
        let store = components(place.options()).open().await.unwrap();
        let circuits = Circuits::open(&store).await.unwrap();
        let circuit = Arc::new(circuits.circuit("inventory").unwrap());
        circuits.force("inventory", force(true)).await.unwrap();
        let (inventory, analytics) = (Context::default(), Context::default());
        let behind = inventory.target("inventory").behind(circuit);
        let bench = Bench::on(store, targets([behind, analytics.target("analytics")])).await;
        let _engine = bench.start().await;
        let mut ids = Vec::new();
        for number in 0..20 {
            let id = bench.event("OrderSubmitted", &json!(number)).await;
            bench.publish(&id, &["inventory", "analytics"]).await;
            ids.push(id);
        }
        for id in &ids {
            bench.until(id, "analytics", Status::Delivered).await;
        }
        for id in &ids {
            let waiting = bench.publication(id, "inventory").await;
            assert_eq!((waiting.status, waiting.attempt_count), (Status::Pending, 0));
            let item = bench.work.status(&waiting.work_id.unwrap()).await.unwrap().unwrap();
            assert!(matches!(item.native, Native::Ready | Native::Delayed), "{:?}", item.native);
        }
        assert!(inventory.given().is_empty());
        circuits.force("inventory", force(false)).await.unwrap();
        for id in &ids {
            let delivered = bench.until(id, "inventory", Status::Delivered).await;
            assert_eq!(delivered.attempt_count, 1);
        }
        assert_eq!(inventory.given().len(), 20);
    });
}

#[test]
fn b_172_webhooks_that_fail_open_their_circuit_and_a_probe_closes_it_again() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let circuits = Circuits::open(&store).await.unwrap();
        let settings = Settings::consecutive(3, 30_000, 1).unwrap();
        let circuit = circuits.circuit_with("inventory", settings).unwrap();
        let server = Server::new(reply("503 Service Unavailable", "", "")).await;
        let webhook = Webhook::new(HttpConfig::new(server.url()), loopback()).unwrap();
        let target = Target::webhook("inventory", webhook).behind(Arc::new(circuit.clone())).at_once(2);
        // The clock is moved by minutes, which no lease is to notice.
        let bench = Bench::leased(store, targets([target]), Duration::from_secs(86_400)).await;
        let engine = bench.start().await;
        let mut ids = Vec::new();
        for number in 0..10 {
            let id = bench.event("OrderSubmitted", &json!(number)).await;
            bench.publish(&id, &["inventory"]).await;
            ids.push(id);
        }
        let opened = async {
            while circuit.status().await.unwrap().state != State::Open {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, opened).await.expect("it opens by itself");
        let attempts = async || {
            let mut attempts = Vec::new();
            for id in &ids {
                let publication = bench.publication(id, "inventory").await;
                assert_eq!(publication.status, Status::Pending);
                attempts.push(publication.attempt_count);
            }
            attempts
        };
        // Three that failed, and those that were beside them.
        let settled = async {
            let runs = async || bench.work.depth("publicationPool.inventory").await.unwrap().running > 0;
            while runs().await || attempts().await.iter().sum::<u32>() as usize != server.requests().len() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, settled).await.expect("what was under way has ended");
        let failed = server.requests().len();
        assert!((3..=5).contains(&failed), "{failed} requests");
        // Retries come due, and are not made.
        time.advance(10_000).await.unwrap();
        engine.look_around();
        assert_eq!(bench.work.depth("publicationPool.inventory").await.unwrap().pending, 10);
        assert_eq!(server.requests().len(), failed);

        server.turn(reply("200 OK", "", ""));
        time.advance(20_000).await.unwrap();
        let delivered = async {
            for id in &ids {
                while bench.publication(id, "inventory").await.status != Status::Delivered {
                    circuits.look_around().await.unwrap();
                    // What failed or was postponed waits for its time, on a clock that stands still.
                    time.advance(1_000).await.unwrap();
                    engine.look_around();
                    tokio::task::yield_now().await;
                }
            }
        };
        tokio::time::timeout(PATIENCE, delivered).await.expect("all of them come");
        circuits.flush().await.unwrap();
        assert_eq!(circuit.status().await.unwrap().state, State::Closed);
        assert_eq!(server.requests().len(), failed + 10, "each once more, and none in between");
        let changes = circuits.changes(Some("inventory"), None, 10).await.unwrap();
        let mut states: Vec<State> = changes.iter().map(|change| change.to).collect();
        states.reverse();
        assert_eq!(states, [State::Open, State::HalfOpen, State::Closed], "{changes:?}");
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_handler_of_this_process_has_no_circuit() {
    for_each_store(async |place| {
        let store = components(place.options()).open().await.unwrap();
        let circuits = Circuits::open(&store).await.unwrap();
        let handler = Target::handler("inventory", async |_: Tx, _| Ok(()));
        let behind = targets([handler.behind(Arc::new(circuits.circuit("inventory").unwrap()))]);
        // A mutation cannot have a circuit before it. The publisher refuses to open.
        let (log, work) =
            (Log::open(&store).await.unwrap(), Work::open(&store, Functions::new()).await.unwrap());
        let refused = Publisher::open(&log, &work, behind).await;
        assert_eq!(refused.map(drop).unwrap_err().code(), "FLOW_INVALID");
    });
}
