//! `mainstay bench replay`: a read model with one row for each event, filled anew from the log.

use mainstay::events::{Append, Event, Log, MAX_EVENTS, NewEvent};
use mainstay::flows::Result;
use mainstay::flows::projections::replay::{Progress, Rebuild};
use mainstay::flows::projections::{Category, Model, Projection, Projections, Registry};
use mainstay::store::Column::{Int, Text};
use mainstay::store::{Bulk, Store, Tx, Value};
use mainstay::work::{Functions, Work};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// The projection that is measured.
pub const PROJECTION: &str = "bench";
/// Events of one chunk, which is one commit.
pub const CHUNK: u32 = 2_000;

/// The type of every event, which nobody else's projections take unless they take all.
const TYPE: &str = "mainstay.BenchNoted";
/// With its quotes an event carries 100 bytes.
const TEXT_BYTES: usize = 98;
/// Longer than any replay of a bench takes.
const PATIENCE: Duration = Duration::from_secs(3_600);

const DROP: &str = "DROP TABLE IF EXISTS mainstay_bench_rows";
const CREATE: &str = "CREATE TABLE mainstay_bench_rows (position BIGINT NOT NULL PRIMARY KEY, data TEXT)";
const DELETE: &str = "DELETE FROM mainstay_bench_rows";
const COUNT: &str = "SELECT count(*) FROM mainstay_bench_rows";
static INSERT: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::insert("INSERT INTO mainstay_bench_rows (position, data) VALUES {rows}", &[Int, Text])
});

/// What was measured.
#[derive(Debug)]
pub struct Measured {
    /// Events that were appended.
    pub events: u64,
    /// Rows that the read model had in the end.
    pub rows: u64,
    /// How long appending them took.
    pub appending: Duration,
    /// How long replaying them took.
    pub replaying: Duration,
    /// How the replay ended.
    pub progress: Progress,
}

impl Measured {
    /// Events appended per second.
    pub fn appended_per_second(&self) -> f64 {
        self.events as f64 / self.appending.as_secs_f64()
    }

    /// Events replayed per second.
    pub fn replayed_per_second(&self) -> f64 {
        self.events as f64 / self.replaying.as_secs_f64()
    }
}

/// Replays that run or are paused on a store: their chunks could be given to a program that does not know their projections.
pub async fn others(store: &Store) -> Result<Vec<Progress>> {
    open(store).await?.1.active_rebuilds().await
}

/// Appends so many events and replays them.
pub async fn measure(store: &Store, events: usize) -> Result<Measured> {
    prepare(store).await?;
    let measured = replay(store, events).await;
    store.transact(async |tx: Tx| tx.execute(DROP, &[]).await).await?;
    measured
}

async fn prepare(store: &Store) -> Result<()> {
    // One is there if an earlier bench was ended.
    let make = async |tx: Tx| {
        tx.execute(DROP, &[]).await?;
        tx.execute(CREATE, &[]).await
    };
    store.transact(make).await?;
    Ok(())
}

async fn replay(store: &Store, events: usize) -> Result<Measured> {
    let log = Log::open(store).await?;
    let first = log.head().await?;
    let event = NewEvent::new(TYPE, &"x".repeat(TEXT_BYTES))?;
    let began = Instant::now();
    for from in (0..events).step_by(MAX_EVENTS) {
        let batch = vec![event.clone(); MAX_EVENTS.min(events - from)];
        log.append(Append::new(batch)).await?;
    }
    let appending = began.elapsed();

    let (work, projections) = open(store).await?;
    let engine = work.start().await?;
    let began = Instant::now();
    let begun = projections.trigger_rebuild(Rebuild::of(PROJECTION).from(first).chunk_size(CHUNK)).await?;
    let progress = projections.wait_for_rebuild(&begun.replay_id, PATIENCE).await?;
    let replaying = began.elapsed();
    engine.stop(Duration::from_secs(5)).await?;
    let rows = store.read(async |tx: Tx| tx.query_one(COUNT, &[]).await?.get::<u64>(0)).await?;
    Ok(Measured { events: events as u64, rows, appending, replaying, progress })
}

async fn open(store: &Store) -> Result<(Work, Projections)> {
    let log = Log::open(store).await?;
    let registry = Registry::new().with(projection());
    let work = Work::open(store, Functions::new()).await?;
    let projections = Projections::open(store, &log, &work, registry).await?;
    Ok((work, projections))
}

fn projection() -> Projection {
    Projection::new(PROJECTION, Category::View)
        .description("The read model of mainstay bench replay")
        .on([TYPE])
        .reset(async |tx: Tx| tx.execute(DELETE, &[]).await)
        .chunk(async |tx: Tx, _: Model, events: Arc<[Event]>| {
            let row = |event: &Event| [Value::Int(event.position() as i64), Value::from(event.data())];
            let values: Vec<Value> = events.iter().flat_map(row).collect();
            INSERT.execute(&tx, &values).await
        })
}
