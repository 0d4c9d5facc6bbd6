//! Publishing every event of some types.

use super::bench::{Bench, Context, PATIENCE, components, targets};
use mainstay_events::{Append, Log, NewEvent};
use mainstay_flows::delivery::publications::{PublicationFilter, Publisher, Status};
use mainstay_flows::projections::{Projections, Registry};
use mainstay_testkit::stores::for_each_store;
use mainstay_work::{Functions, Work};
use std::collections::BTreeSet;

#[test]
fn every_event_of_some_types_is_published_once() {
    for_each_store(async |place| {
        let store = components(place.options()).open().await.unwrap();
        let (inventory, log) = (Context::default(), Log::open(&store).await.unwrap());
        let targets = targets([inventory.target("inventory")]).forward(
            "toInventory",
            &["OrderSubmitted"],
            "orders",
            &["inventory"],
        );
        let work = Work::open(&store, Functions::new()).await.unwrap();
        let publisher = Publisher::open(&log, &work, targets).await.unwrap();
        let registry = publisher.forwardings().fold(Registry::new(), Registry::with);
        let projections = Projections::open(&store, &log, &work, registry).await.unwrap();
        let bench = Bench { store, log, work, publisher };
        let mut ids = BTreeSet::new();
        for number in 0..30 {
            let event_type = if number % 3 == 0 { "OrderCreated" } else { "OrderSubmitted" };
            let event = NewEvent::new(event_type, &number).unwrap();
            let appended = bench.log.append(Append::from(event)).await.unwrap();
            if number % 3 != 0 {
                ids.insert(appended.events[0].event_id.clone());
            }
        }
        let (projecting, _engine) = (projections.start(), bench.start().await);
        let head = bench.log.head().await.unwrap();
        projections.wait_for("toInventory", head, PATIENCE).await.unwrap();
        projecting.stop(PATIENCE).await;
        // The same again from the start: what was published is not published anew.
        projections.set_checkpoint("toInventory", 0, 0).await.unwrap();
        let projecting = projections.start();
        projections.wait_for("toInventory", head, PATIENCE).await.unwrap();
        projecting.stop(PATIENCE).await;
        for id in &ids {
            bench.until(id, "inventory", Status::Delivered).await;
        }
        let given: Vec<String> = inventory.given().into_iter().map(|one| one.event.event_id).collect();
        assert_eq!((given.len(), given.into_iter().collect::<BTreeSet<_>>()), (20, ids));
        assert_eq!(bench.publisher.list(PublicationFilter::default(), 100).await.unwrap().len(), 20);
    });
}
