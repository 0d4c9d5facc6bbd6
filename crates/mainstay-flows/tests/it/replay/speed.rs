//! How fast a replay is. Figures are printed, and mean something in a release build on a quiet machine:
//! `cargo test --release -p mainstay-flows --test it -- speed --nocapture`.

use super::ended;
use crate::projections::support::{Bench, PATIENCE};
use mainstay_events::{Append, Event, NewEvent};
use mainstay_flows::projections::replay::Rebuild;
use mainstay_flows::projections::{Category, Model, Projection};
use mainstay_store::Column::{Int, Text};
use mainstay_store::{Bulk, Tx, Value};
use mainstay_testkit::stores::for_each_lasting_store;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

static INSERT: LazyLock<Bulk> =
    LazyLock::new(|| Bulk::insert("INSERT INTO fast_rows (position, data) VALUES {rows}", &[Int, Text]));

/// One row for each event, many with one statement.
fn fast() -> Projection {
    Projection::new("fast", Category::View)
        .reset(async |tx: Tx| tx.execute("DELETE FROM fast_rows", &[]).await)
        .chunk(async |tx: Tx, _: Model, events: Arc<[Event]>| {
            let row = |event: &Event| [Value::Int(event.position() as i64), Value::from(event.data())];
            let values: Vec<Value> = events.iter().flat_map(row).collect();
            INSERT.execute(&tx, &values).await
        })
}

#[test]
fn a_replay_writes_many_rows_a_second() {
    let count = if cfg!(debug_assertions) { 5_000 } else { 100_000 };
    for_each_lasting_store(async |place| {
        let bench = Bench::open(&place, vec![fast()]).await;
        let create = "CREATE TABLE fast_rows (position BIGINT NOT NULL PRIMARY KEY, data TEXT)";
        bench.store.transact(async |tx| tx.execute(create, &[]).await).await.unwrap();
        let data = "x".repeat(100);
        for _ in 0..count / 100 {
            let events = (0..100).map(|_| NewEvent::new("Noted", &data).unwrap());
            bench.log.append(Append::new(events)).await.unwrap();
        }
        let engine = bench.work.start().await.unwrap();
        for chunk_size in [100, 1_000, 2_000] {
            let began = Instant::now();
            let rebuild = Rebuild::of("fast").from(0).chunk_size(chunk_size);
            let begun = bench.projections.trigger_rebuild(rebuild).await.unwrap();
            let emptied = began.elapsed();
            let progress = ended(&bench, &begun.replay_id).await;
            let took = began.elapsed() - emptied;
            let per_second = count as f64 / took.as_secs_f64();
            println!("{}: {count} events in chunks of {chunk_size}: {per_second:.0} events/s", place.kind());
            assert_eq!((progress.events_processed, progress.percent_complete), (count, 100.0));
            let rows =
                async |tx: Tx| tx.query_one("SELECT count(*) FROM fast_rows", &[]).await?.get::<u64>(0);
            assert_eq!(bench.store.read(rows).await.unwrap(), count);
        }
        engine.stop(PATIENCE).await.unwrap();
    });
}
