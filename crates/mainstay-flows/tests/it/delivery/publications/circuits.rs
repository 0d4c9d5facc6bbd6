//! Targets behind circuits.

use super::bench::{Bench, Context, components, targets};
use mainstay_flows::delivery::publications::{Status, Target};
use mainstay_guards::circuits::{Circuits, Force};
use mainstay_store::Tx;
use mainstay_testkit::stores::for_each_store;
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
fn a_handler_of_this_process_has_no_circuit() {
    for_each_store(async |place| {
        let store = components(place.options()).open().await.unwrap();
        let circuits = Circuits::open(&store).await.unwrap();
        let handler = Target::handler("inventory", async |_: Tx, _| Ok(()));
        let behind = targets([handler.behind(Arc::new(circuits.circuit("inventory").unwrap()))]);
        // Work refuses a circuit before a mutation, before anything is published.
        let refused =
            Work::open_with_lease(&store, behind.functions(Functions::new()), Duration::from_secs(15));
        assert_eq!(refused.await.map(drop).unwrap_err().code(), "WORK_INVALID");
    });
}
