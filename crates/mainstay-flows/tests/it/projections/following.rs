//! Following the log: every event once, in order, in lanes.

use super::support::{Bench, PATIENCE, components, noting, until};
use mainstay_events::{Event, NewEvent};
use mainstay_flows::projections::{By, Category, Kind, Model, Projection, Projections, Registry};
use mainstay_store::{Tx, params};
use mainstay_testkit::stores::{Kind as StoreKind, for_each_kind, for_each_lasting_store, for_each_store};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn every_event_is_applied_once_and_in_order() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, vec![noting("a"), noting("b")]).await;
        bench.append_many(250).await;
        let projecting = bench.projections.start();
        bench.append_many(30).await;
        bench.caught_up("a").await;
        bench.caught_up("b").await;
        let all: Vec<u64> = (1..=280).collect();
        assert_eq!(bench.noted("a").await, all);
        assert_eq!(bench.noted("b").await, all);
        let status = bench.projections.status("a").await.unwrap();
        assert_eq!((status.last_global_position, status.lag, status.events_processed), (280, 0, 280));
        projecting.stop(PATIENCE).await;
    });
}

#[test]
fn a_restart_goes_on_at_the_checkpoint() {
    for_each_lasting_store(async |place| {
        let bench = Bench::open(&place, vec![noting("a")]).await;
        let projecting = bench.projections.start();
        bench.append_many(120).await;
        bench.caught_up("a").await;
        projecting.stop(PATIENCE).await;
        bench.append_many(80).await;
        let Bench { store, log, work, projections } = bench;
        drop((log, work, projections));
        store.close().await;
        let bench = Bench::open(&place, vec![noting("a")]).await;
        assert_eq!(bench.projections.status("a").await.unwrap().lag, 80);
        let projecting = bench.projections.start();
        bench.caught_up("a").await;
        assert_eq!(bench.noted("a").await, (1..=200).collect::<Vec<u64>>());
        projecting.stop(PATIENCE).await;
    });
}

#[test]
fn checkpoints_advance_over_events_not_subscribed_to() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, vec![noting("a").on(["Wanted", "Also"])]).await;
        let projecting = bench.projections.start();
        bench.append("Other", &["x"; 150]).await;
        bench.append("Wanted", &["x"]).await;
        bench.append("Also", &["x"]).await;
        bench.append("Other", &["x"; 3]).await;
        bench.caught_up("a").await;
        assert_eq!(bench.noted("a").await, [151, 152]);
        let checkpoints = bench.projections.checkpoints().await.unwrap();
        assert_eq!(checkpoints.len(), 1);
        assert_eq!((checkpoints[0].partition, checkpoints[0].last_global_position), (0, 155));
        projecting.stop(PATIENCE).await;
    });
}

#[test]
fn a_chunk_of_events_can_be_written_at_once() {
    for_each_store(async |place| {
        let largest = Arc::new(AtomicUsize::new(0));
        let seen = largest.clone();
        let projection = Projection::new("sums", Category::Reporting)
            .table("sums", &["CREATE TABLE {table} (position BIGINT NOT NULL)"])
            .chunk(move |tx: Tx, model: Model, events: Arc<[Event]>| {
                seen.fetch_max(events.len(), Ordering::SeqCst);
                async move {
                    let sql = format!("INSERT INTO {} (position) VALUES ($1)", model.table("sums")?);
                    let rows: Vec<_> =
                        events.iter().map(|event| params![event.position() as i64].to_vec()).collect();
                    tx.execute_many(&sql, &rows).await
                }
            });
        let bench = Bench::open(&place, vec![projection]).await;
        bench.append_many(230).await;
        let projecting = bench.projections.start();
        bench.caught_up("sums").await;
        let count = async |tx: Tx| tx.query_one("SELECT count(*) FROM sums", &[]).await?.get::<i64>(0);
        assert_eq!(bench.store.read(count).await.unwrap(), 230);
        assert_eq!(largest.load(Ordering::SeqCst), 100);
        projecting.stop(PATIENCE).await;
    });
}

#[test]
fn lanes_run_beside_each_other_and_keep_the_order_of_a_key() {
    for_each_store(async |place| {
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let told = order.clone();
        let lanes = noting("lanes").partitioned(4, By::Stream);
        let watched = Projection::new("watched", Category::Logic)
            .partitioned(3, By::custom(|event| event.position().to_string()))
            .each(move |_: Tx, _: Model, event: Event| {
                told.lock().unwrap().push(event.position());
                async { Ok(()) }
            });
        let bench = Bench::open(&place, vec![lanes, watched]).await;
        bench.append_many(300).await;
        let projecting = bench.projections.start();
        bench.caught_up("lanes").await;
        bench.caught_up("watched").await;
        assert_eq!(bench.noted("lanes").await, (1..=300).collect::<Vec<u64>>());
        assert!(order.lock().unwrap().len() >= 300);
        let checkpoints = bench.projections.checkpoints().await.unwrap();
        assert_eq!(checkpoints.len(), 7);
        assert!(checkpoints.iter().all(|one| one.last_global_position == 300), "{checkpoints:?}");
        projecting.stop(PATIENCE).await;
    });
}

#[test]
fn lag_is_that_of_the_slowest_lane() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, vec![noting("a").partitioned(2, By::Stream)]).await;
        bench.append_many(50).await;
        bench.projections.set_checkpoint("a", 0, 40).await.unwrap();
        bench.projections.set_checkpoint("a", 1, 10).await.unwrap();
        let status = bench.projections.status("a").await.unwrap();
        assert_eq!((status.last_global_position, status.lag, status.partitions), (10, 40, 2));
    });
}

#[test]
fn waiting_for_a_position_sees_what_was_written() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, vec![noting("a")]).await;
        let projecting = bench.projections.start();
        for number in 1..=20 {
            let appended = bench.log.append(NewEvent::new("Noted", &"x").unwrap()).await.unwrap();
            bench.projections.wait_for("a", appended.events[0].position, PATIENCE).await.unwrap();
            assert_eq!(bench.noted("a").await.len(), number);
        }
        let late = bench.projections.wait_for("a", 21, Duration::from_millis(20)).await.unwrap_err();
        assert_eq!(late.code(), "PROJECTION_NOT_REACHED");
        assert!(late.to_string().ends_with("it is at 20"), "{late}");
        let unknown = bench.projections.wait_for("b", 1, PATIENCE).await.unwrap_err();
        assert_eq!(unknown.code(), "UNKNOWN_PROJECTION");
        projecting.stop(PATIENCE).await;
    });
}

#[test]
fn two_nodes_apply_every_event_once() {
    for_each_kind(&[StoreKind::Postgres], async |place| {
        let one = Bench::open(&place, vec![noting("a").partitioned(2, By::Stream)]).await;
        let other = Bench::open(&place, vec![noting("a").partitioned(2, By::Stream)]).await;
        let running = [one.projections.start(), other.projections.start()];
        for _ in 0..10 {
            one.append_many(40).await;
        }
        other.caught_up("a").await;
        assert_eq!(one.noted("a").await, (1..=400).collect::<Vec<u64>>());
        for projecting in running {
            projecting.stop(PATIENCE).await;
        }
    });
}

#[test]
fn an_idle_node_commits_nothing() {
    for_each_kind(&[StoreKind::SqliteFile], async |place| {
        let many = (0..30).map(|number| noting(&format!("p{number}"))).collect();
        let bench = Bench::open(&place, many).await;
        bench.append_many(3).await;
        let projecting = bench.projections.start();
        for number in 0..30 {
            bench.caught_up(&format!("p{number}")).await;
        }
        // Whatever was under way has ended when all have come this far; then nothing is committed.
        let commits = || bench.store.figures().committed.get();
        until("nothing is committed any more", async || {
            let before = commits();
            tokio::time::sleep(Duration::from_millis(300)).await;
            commits() == before
        })
        .await;
        projecting.stop(PATIENCE).await;
    });
}

#[test]
fn definitions_are_checked_before_anything_is_made() {
    for_each_store(async |place| {
        let store = components(place.options()).open().await.unwrap();
        let log = mainstay_events::Log::open(&store).await.unwrap();
        let work = mainstay_work::Work::open(&store, mainstay_work::Functions::new()).await.unwrap();
        let plain = || Projection::new("p", Category::View);
        let refused = [
            (vec![plain()], "no handler"),
            (vec![noting("")], "its name must be"),
            (vec![noting("a b")], "its name must be"),
            (vec![noting("a"), noting("a")], "two of the name \"a\""),
            (vec![noting("a").partitioned(0, By::Stream)], "lanes must be 1 to 64"),
            (vec![noting("a").on(["with\nline"])], "control characters"),
            (vec![noting("a").table("t", &["CREATE TABLE {table} (a BIGINT)"])], "both reset and managed"),
            (vec![noting("a").table("Bad Name", &["{table}"])], "both reset and managed"),
        ];
        for (definitions, reason) in refused {
            let registry = definitions.into_iter().fold(Registry::new(), Registry::with);
            let error = Projections::open(&store, &log, &work, registry).await.unwrap_err();
            assert_eq!(error.code(), "FLOW_INVALID");
            assert!(error.to_string().contains(reason), "{error}");
        }
        assert_eq!("".parse::<Category>().unwrap_err().code(), "CATEGORY_REQUIRED");
        assert_eq!("views".parse::<Category>().unwrap_err().code(), "INVALID_CATEGORY");
        assert_eq!("integration".parse::<Category>().unwrap(), Category::Integration);
    });
}

#[test]
fn b_213_the_order_of_rebuilds_is_that_of_the_registry() {
    for_each_kind(&[StoreKind::SqliteMemory], async |place| {
        let definitions = vec![
            noting("overview").kind(Kind::CrossContext),
            noting("second").kind(Kind::Secondary),
            noting("first"),
            noting("another"),
        ];
        let bench = Bench::open(&place, definitions).await;
        let names: Vec<&str> = bench.projections.definitions().map(Projection::name).collect();
        assert_eq!(names, ["first", "another", "second", "overview"]);
    });
}
