//! What an operator does: pause, resume, set a checkpoint; and lanes that change.

use super::support::{Bench, PATIENCE, components, noting, until};
use mainstay_events::Log;
use mainstay_flows::projections::{By, Lifecycle, Projections, Registry};
use mainstay_store::Tx;
use mainstay_testkit::stores::{for_each_lasting_store, for_each_store};
use mainstay_work::{Functions, Work};

#[test]
fn a_paused_projection_waits_and_goes_on_where_it_was() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, vec![noting("a"), noting("b")]).await;
        let projecting = bench.projections.start();
        bench.append_many(10).await;
        bench.caught_up("a").await;
        bench.projections.pause("a").await.unwrap();
        bench.append_many(10).await;
        bench.caught_up("b").await;
        let status = bench.projections.status("a").await.unwrap();
        assert_eq!((status.status, status.lag), (Lifecycle::Paused, 10));
        let twice = bench.projections.pause("a").await.unwrap_err();
        assert_eq!(twice.code(), "PROJECTION_STATUS_CONFLICT");
        assert_eq!(twice.to_string(), "projection \"a\" is paused, which does not allow PAUSE");
        bench.projections.resume("a").await.unwrap();
        bench.caught_up("a").await;
        assert_eq!(bench.noted("a").await, (1..=20).collect::<Vec<u64>>());
        assert_eq!(bench.projections.status("a").await.unwrap().status, Lifecycle::Active);
        projecting.stop(PATIENCE).await;
    });
}

#[test]
fn a_checkpoint_can_be_set_but_not_beyond_the_head() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, vec![noting("a")]).await;
        bench.append_many(10).await;
        let beyond = bench.projections.set_checkpoint("a", 0, 11).await.unwrap_err();
        assert_eq!(beyond.code(), "CHECKPOINT_BEYOND_HEAD");
        let no_lane = bench.projections.set_checkpoint("a", 1, 1).await.unwrap_err();
        assert_eq!(no_lane.code(), "FLOW_INVALID");
        let unknown = bench.projections.set_checkpoint("b", 0, 1).await.unwrap_err();
        assert_eq!(unknown.code(), "UNKNOWN_PROJECTION");
        assert_eq!(bench.projections.status("a").await.unwrap().lag, 10);
        bench.projections.set_checkpoint("a", 0, 8).await.unwrap();
        let projecting = bench.projections.start();
        bench.caught_up("a").await;
        assert_eq!(bench.noted("a").await, [9, 10]);
        // A projector that is awake notices that it was put back.
        bench.projections.set_checkpoint("a", 0, 5).await.unwrap();
        let expected = [6, 7, 8, 9, 9, 10, 10];
        until("events are applied again", async || bench.noted("a").await == expected).await;
        projecting.stop(PATIENCE).await;
    });
}

#[test]
fn an_event_that_cannot_be_read_stops_the_projection_and_says_so() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, vec![noting("a")]).await;
        bench.append_many(5).await;
        let damage = async |tx: Tx| {
            tx.execute("UPDATE mainstay_events SET header = payload WHERE position = 3", &[]).await
        };
        bench.store.transact(damage).await.unwrap();
        let projecting = bench.projections.start();
        until("the projection stops", async || {
            bench.projections.status("a").await.unwrap().status == Lifecycle::Error
        })
        .await;
        let status = bench.projections.status("a").await.unwrap();
        assert!(status.error_message.is_some_and(|text| text.contains('3')));
        // The operator passes over it.
        bench.projections.set_checkpoint("a", 0, 3).await.unwrap();
        bench.projections.recover("a").await.unwrap();
        bench.caught_up("a").await;
        assert_eq!(bench.noted("a").await, [4, 5]);
        assert_eq!(bench.projections.status("a").await.unwrap().error_message, None);
        projecting.stop(PATIENCE).await;
    });
}

#[test]
fn lanes_change_only_when_they_are_level() {
    for_each_lasting_store(async |place| {
        let bench = Bench::open(&place, vec![noting("a").partitioned(2, By::Stream)]).await;
        bench.append_many(20).await;
        bench.projections.set_checkpoint("a", 0, 5).await.unwrap();
        let Bench { store, log, work, projections } = bench;
        drop((log, work, projections));
        store.close().await;
        let store = components(place.options()).open().await.unwrap();
        let log = Log::open(&store).await.unwrap();
        let registry = Registry::new().with(noting("a").partitioned(3, By::Stream));
        let work = Work::open(&store, Functions::new()).await.unwrap();
        let refused = Projections::open(&store, &log, &work, registry).await.unwrap_err();
        assert_eq!(refused.code(), "PROJECTION_LANES_CHANGED");
        let level = async |tx: Tx| tx.execute("UPDATE mainstay_projection_lanes SET position = 5", &[]).await;
        store.transact(level).await.unwrap();
        let bench = Bench::on(store, vec![noting("a").partitioned(3, By::Stream)]).await;
        let projecting = bench.projections.start();
        bench.caught_up("a").await;
        assert_eq!(bench.noted("a").await, (6..=20).collect::<Vec<u64>>());
        assert_eq!(bench.projections.checkpoints().await.unwrap().len(), 3);
        projecting.stop(PATIENCE).await;
    });
}
