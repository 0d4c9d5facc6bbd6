//! Targets that want events in order, and targets that do not hold up others.

use super::bench::{Bench, Context, PATIENCE, targets};
use mainstay_flows::delivery::publications::{Delivery, POOL, Status, Target};
use mainstay_testkit::stores::for_each_store;
use mainstay_work::{Failure, Pool};
use serde_json::json;
use std::sync::Arc;
use tokio::sync::Semaphore;

#[test]
fn an_ordered_target_is_given_events_one_at_a_time_as_they_were_published() {
    for_each_store(async |place| {
        let inventory = Context::default();
        let bench = Bench::open(&place, targets([inventory.target("inventory").ordered()])).await;
        let mut ids = Vec::new();
        for number in 0..20 {
            let id = bench.event("OrderSubmitted", &json!(number)).await;
            bench.publish(&id, &["inventory"]).await;
            ids.push(id);
        }
        inventory.fail_times(3, &Failure::retryable("not now"));
        let _engine = bench.start().await;
        bench.until(&ids[19], "inventory", Status::Delivered).await;
        let mut given: Vec<String> = inventory.given().into_iter().map(|one| one.event.event_id).collect();
        assert_eq!(given.len(), 23, "the first one was tried four times before any other");
        assert_eq!(given[..4], [ids[0].as_str(); 4]);
        given.dedup();
        assert_eq!(given, ids);
    });
}

#[test]
fn an_ordered_target_goes_on_behind_a_dead_letter() {
    for_each_store(async |place| {
        let inventory = Context::default();
        let bench = Bench::open(&place, targets([inventory.target("inventory").ordered()])).await;
        let (first, second) = (bench.event("A", &json!(1)).await, bench.event("B", &json!(2)).await);
        for id in [&first, &second] {
            bench.publish(id, &["inventory"]).await;
        }
        inventory.fail_times(6, &Failure::retryable("never"));
        let _engine = bench.start().await;
        bench.until(&second, "inventory", Status::Delivered).await;
        assert_eq!(bench.publication(&first, "inventory").await.status, Status::DeadLetter);
    });
}

#[test]
fn b_175_a_target_that_hangs_leaves_others_alone_when_it_has_a_pool_of_its_own() {
    for_each_store(async |place| {
        let (gate, inventory) = (Arc::new(Semaphore::new(0)), Context::default());
        let hangs = gate.clone();
        let hanging = Target::subscriber("hanging", move |_: Delivery| {
            let gate = hangs.clone();
            async move {
                gate.acquire().await.unwrap().forget();
                Ok(())
            }
        });
        let bench = Bench::open(&place, targets([hanging.at_once(2), inventory.target("inventory")])).await;
        bench.work.pool(Pool::new(POOL).max_parallelism(2)).await.unwrap();
        let _engine = bench.start().await;
        let mut ids = Vec::new();
        for number in 0..5 {
            let id = bench.event("OrderSubmitted", &json!(number)).await;
            bench.publish(&id, &["hanging", "inventory"]).await;
            ids.push(id);
        }
        for id in &ids {
            bench.until(id, "inventory", Status::Delivered).await;
            assert_eq!(bench.publication(id, "hanging").await.status, Status::Pending);
        }
        let pool = bench.work.pool_status("publicationPool.hanging").await.unwrap();
        assert_eq!(pool.settings.at_once(), 2);
        gate.add_permits(5);
        for id in &ids {
            bench.until(id, "hanging", Status::Delivered).await;
        }
        assert_eq!(tokio::time::timeout(PATIENCE, bench.work.depth(POOL)).await.unwrap().unwrap().pending, 0);
    });
}

#[test]
fn a_program_that_says_otherwise_changes_the_pool_of_its_target_and_leaves_the_shared_one_to_operators() {
    for_each_store(async |place| {
        let of = |most| {
            targets([Context::default().target("own").at_once(most), Context::default().target("shared")])
        };
        let bench = Bench::open(&place, of(2)).await;
        bench.work.pool(Pool::new(POOL).max_parallelism(7)).await.unwrap();
        let bench = Bench::on(bench.store, of(64)).await;
        for (pool, most) in [("publicationPool.own", 64), (POOL, 7)] {
            assert_eq!(bench.work.pool_status(pool).await.unwrap().settings.at_once(), most, "{pool}");
        }
    });
}
