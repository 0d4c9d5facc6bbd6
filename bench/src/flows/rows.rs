//! A read model with one row for each event, many with one statement, and the log that it follows.

use anyhow::Result;
use futures_util::TryStreamExt;
use mainstay_events::{Append, Event, Log, MAX_EVENTS, NewEvent};
use mainstay_flows::projections::{self, Category, Model, Projection, Projections, Registry};
use mainstay_store::Column::{Int, Text};
use mainstay_store::{Bulk, Options, Store, Tx, Value};
use mainstay_work::{Functions, Work};
use std::sync::Arc;

/// The read model.
pub const ROWS: &str = "rows";
/// Another one beside it.
pub const OTHERS: &str = "others";

/// Appends at once when a log is filled.
const AT_ONCE: usize = 16;

/// A log and its read models.
pub struct Bed {
    pub store: Store,
    pub log: Log,
    pub work: Work,
    pub projections: Projections,
}

impl Bed {
    /// On a store of its own.
    pub async fn open(url: &str) -> Result<Self> {
        let options = Options::new(url).component(mainstay_events::COMPONENT);
        let options = options.component(mainstay_work::COMPONENT).component(projections::COMPONENT);
        let store = options.open().await?;
        for create in [
            "CREATE TABLE bench_rows (position BIGINT NOT NULL PRIMARY KEY, data TEXT)",
            "CREATE TABLE bench_others (position BIGINT NOT NULL PRIMARY KEY, data TEXT)",
        ] {
            store.transact(async move |tx| tx.execute(create, &[]).await).await?;
        }
        let log = Log::open(&store).await?;
        let registry = Registry::new().with(projection(ROWS)).with(projection(OTHERS));
        let work = Work::open(&store, Functions::new()).await?;
        let projections = Projections::open(&store, &log, &work, registry).await?;
        Ok(Self { store, log, work, projections })
    }

    /// Appends events of 100 bytes until there are so many.
    pub async fn fill(&self, events: u64) -> Result<()> {
        let event = NewEvent::new("Noted", &"x".repeat(98))?;
        let missing = (events - self.log.head().await?) as usize;
        let batches = (0..missing).step_by(MAX_EVENTS).map(|from| Ok(MAX_EVENTS.min(missing - from)));
        let append = |count: usize| {
            let events = vec![event.clone(); count];
            async { self.log.append(Append::new(events)).await.map(drop) }
        };
        Ok(futures_util::stream::iter(batches).try_for_each_concurrent(AT_ONCE, append).await?)
    }

    /// How many rows the read model has.
    pub async fn rows(&self) -> Result<u64> {
        let count = "SELECT count(*) FROM bench_rows";
        Ok(self.store.read(async move |tx: Tx| tx.query_one(count, &[]).await?.get::<u64>(0)).await?)
    }
}

/// A projection that writes to the table of its name.
fn projection(name: &str) -> Projection {
    let insert = format!("INSERT INTO bench_{name} (position, data) VALUES {{rows}}");
    let insert = Arc::new(Bulk::insert(&insert, &[Int, Text]));
    let delete: Arc<str> = format!("DELETE FROM bench_{name}").into();
    Projection::new(name, Category::View)
        .reset(move |tx: Tx| {
            let delete = delete.clone();
            async move { tx.execute(&delete, &[]).await }
        })
        .chunk(move |tx: Tx, _: Model, events: Arc<[Event]>| {
            let insert = insert.clone();
            let row = |event: &Event| [Value::Int(event.position() as i64), Value::from(event.data())];
            let values: Vec<Value> = events.iter().flat_map(row).collect();
            async move { insert.execute(&tx, &values).await }
        })
}
