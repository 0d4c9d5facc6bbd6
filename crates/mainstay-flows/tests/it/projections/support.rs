//! What the tests of projections have in common: a log, and read models that note every event they are given.

use mainstay_core::retry::RetryPolicy;
use mainstay_events::{Append, Event, Log, NewEvent};
use mainstay_flows::projections::{Category, Model, Projecting, Projection, Projections, Registry};
use mainstay_store::{Error, Options, Store, Tx, params};
use mainstay_testkit::stores::Place;
use mainstay_work::{Engine, Functions, Work};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longer than anything takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Bench {
    pub(crate) store: Store,
    pub(crate) log: Log,
    pub(crate) work: Work,
    pub(crate) projections: Projections,
}

pub(crate) fn components(options: Options) -> Options {
    options
        .component(mainstay_events::COMPONENT)
        .component(mainstay_work::COMPONENT)
        .component(mainstay_flows::projections::COMPONENT)
}

impl Bench {
    pub(crate) async fn open(place: &Place, definitions: Vec<Projection>) -> Self {
        let store = components(place.options()).open().await.unwrap();
        Self::on(store, definitions).await
    }

    pub(crate) async fn on(store: Store, definitions: Vec<Projection>) -> Self {
        Self::with(store, definitions, Functions::new()).await
    }

    pub(crate) async fn with(store: Store, definitions: Vec<Projection>, functions: Functions) -> Self {
        Self::leased(store, definitions, functions, Duration::from_secs(15)).await
    }

    /// With leases of another length, for nodes that die or are paused.
    pub(crate) async fn leased(
        store: Store,
        definitions: Vec<Projection>,
        functions: Functions,
        lease: Duration,
    ) -> Self {
        let registry = definitions.into_iter().fold(Registry::new(), Registry::with);
        Self::of(store, registry, functions, lease).await
    }

    /// With a registry that says more than what its projections are.
    pub(crate) async fn of(store: Store, registry: Registry, functions: Functions, lease: Duration) -> Self {
        let table =
            "CREATE TABLE IF NOT EXISTS noted (model TEXT NOT NULL, position BIGINT NOT NULL, data TEXT)";
        // Two nodes may do so at once.
        let create = async |tx: Tx| {
            tx.lock("noted").await?;
            tx.execute(table, &[]).await
        };
        store.transact(create).await.unwrap();
        let log = Log::open(&store).await.unwrap();
        let work = Work::open_with_lease(&store, functions, lease).await.unwrap();
        let projections = Projections::open(&store, &log, &work, registry).await.unwrap();
        Self { store, log, work, projections }
    }

    /// Appends events whose data are these texts; their ids.
    pub(crate) async fn append(&self, event_type: &str, texts: &[&str]) -> Vec<String> {
        let mut ids = Vec::new();
        for texts in texts.chunks(100) {
            let events = texts.iter().map(|text| NewEvent::new(event_type, text).unwrap());
            let appended = self.log.append(Append::new(events)).await.unwrap();
            ids.extend(appended.events.iter().map(|event| event.event_id.clone()));
        }
        ids
    }

    /// Appends so many events, each of a stream of its own among seven.
    pub(crate) async fn append_many(&self, count: usize) {
        for from in (0..count).step_by(100) {
            let events = (from..count.min(from + 100)).map(|number| {
                NewEvent::new("Noted", &"x").unwrap().stream("Order", (number % 7).to_string())
            });
            self.log.append(Append::new(events)).await.unwrap();
        }
    }

    /// The positions that a model has noted, in order.
    pub(crate) async fn noted(&self, model: &str) -> Vec<u64> {
        noted(&self.store, model).await
    }

    /// Waits until a projection has all of the log.
    pub(crate) async fn caught_up(&self, projection: &str) {
        let head = self.log.head().await.unwrap();
        self.projections.wait_for(projection, head, PATIENCE).await.unwrap();
    }

    /// Runs both projections and work.
    pub(crate) async fn start(&self) -> (Projecting, Engine) {
        (self.projections.start(), self.work.start().await.unwrap())
    }
}

pub(crate) async fn noted(store: &Store, model: &str) -> Vec<u64> {
    let read = async |tx: Tx, model: String| {
        let sql = "SELECT position FROM noted WHERE model = $1 ORDER BY position";
        let rows = tx.query(sql, params![model]).await?;
        rows.iter().map(|row| row.get::<u64>(0)).collect::<mainstay_store::Result<Vec<_>>>()
    };
    store.read_with(model.to_owned(), read).await.unwrap()
}

/// Texts for which handlers fail, as long as they are in here.
#[derive(Clone, Default)]
pub(crate) struct Bad(Arc<Mutex<HashSet<String>>>);

impl Bad {
    pub(crate) fn texts(texts: &[&str]) -> Self {
        let bad = Self::default();
        bad.0.lock().unwrap().extend(texts.iter().map(|text| (*text).to_owned()));
        bad
    }

    pub(crate) fn spoil(&self, text: &str) {
        self.0.lock().unwrap().insert(text.to_owned());
    }

    pub(crate) fn mend(&self) {
        self.0.lock().unwrap().clear();
    }

    pub(crate) fn check(&self, event: &Event) -> mainstay_store::Result<()> {
        let text: String = event.data_as().unwrap_or_default();
        if self.0.lock().unwrap().contains(&text) {
            assert!(!text.starts_with("panic"), "cannot take {text}");
            return Err(Error::application(format!("cannot take {text}")));
        }
        Ok(())
    }
}

/// Retries follow at once.
pub(crate) fn at_once(attempts: u32) -> RetryPolicy {
    RetryPolicy::new(attempts, 1, 1.0, 1).unwrap()
}

pub(crate) async fn note(tx: &Tx, model: &str, event: &Event) -> mainstay_store::Result<()> {
    let sql = "INSERT INTO noted (model, position, data) VALUES ($1, $2, $3)";
    tx.execute(sql, params![model, event.position() as i64, event.data()]).await.map(drop)
}

/// A projection that notes every event, unless it is bad.
pub(crate) fn noting_unless(name: &str, bad: &Bad) -> Projection {
    let (handled, reset, bad) = (name.to_owned(), name.to_owned(), bad.clone());
    Projection::new(name, Category::View)
        .retry(at_once(3))
        .reset(move |tx: Tx| {
            let model = reset.clone();
            async move { tx.execute("DELETE FROM noted WHERE model = $1", params![model]).await }
        })
        .each(move |tx: Tx, _: Model, event: Event| {
            let (model, bad) = (handled.clone(), bad.clone());
            async move {
                note(&tx, &model, &event).await?;
                bad.check(&event)
            }
        })
}

pub(crate) fn noting(name: &str) -> Projection {
    noting_unless(name, &Bad::default())
}

/// Waits until something holds.
pub(crate) async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "it never happened that {what}");
}
