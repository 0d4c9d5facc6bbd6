//! A house with intents, and a diary of the handlers that were called.

use crate::delivery::support::events;
use mainstay_events::{Event, Log};
use mainstay_flows::delivery::intents::{self, Intents, NewIntent, OnTimeout, Operations, TimedOut};
use mainstay_store::{Options, Store, Tx, params};
use mainstay_work::{Call, Functions, TIMER_POOL, Work};
use std::time::Duration;

pub(super) const MINUTE: Duration = Duration::from_secs(60);

pub(super) struct House {
    pub(super) store: Store,
    pub(super) log: Log,
    pub(super) work: Work,
    pub(super) intents: Intents,
}

pub(super) fn components(options: Options) -> Options {
    let components = [mainstay_events::COMPONENT, mainstay_work::COMPONENT, intents::COMPONENT];
    components.into_iter().fold(options, Options::component)
}

impl House {
    pub(super) async fn open(options: Options) -> Self {
        Self::on(components(options).open().await.unwrap()).await
    }

    /// `handle` notes what it is called with.
    pub(super) async fn on(store: Store) -> Self {
        let table = "CREATE TABLE IF NOT EXISTS handled (intent TEXT NOT NULL, what TEXT NOT NULL)";
        store.transact(async move |tx| tx.execute(table, &[]).await).await.unwrap();
        let log = Log::open(&store).await.unwrap();
        let functions = Functions::new().mutation("handle", async |tx: Tx, _: Call, out: TimedOut| {
            let sql = "INSERT INTO handled (intent, what) VALUES ($1, $2)";
            tx.execute(sql, params![out.intent_key.clone(), serde_json::to_string(&out).unwrap()]).await
        });
        let work = Work::open(&store, functions).await.unwrap();
        let intents = Intents::open(&log, &work, Operations::new()).await.unwrap();
        Self { store, log, work, intents }
    }

    pub(super) async fn events(&self) -> Vec<Event> {
        events(&self.log).await
    }

    /// The types of all events.
    pub(super) async fn types(&self) -> Vec<String> {
        self.events().await.iter().map(|event| event.event_type().to_owned()).collect()
    }

    /// What the handler was called with.
    pub(super) async fn handled(&self) -> Vec<TimedOut> {
        let read = async |tx: Tx| {
            let rows = tx.query("SELECT what FROM handled", &[]).await?;
            rows.iter().map(|row| row.get(0)).collect::<mainstay_store::Result<Vec<String>>>()
        };
        let rows = self.store.read(read).await.unwrap();
        rows.iter().map(|row| serde_json::from_str(row).unwrap()).collect()
    }

    /// How many timers are set.
    pub(super) async fn timers(&self) -> u64 {
        self.work.depth(TIMER_POOL).await.unwrap().pending
    }
}

/// The submission of an order that may take five minutes.
pub(super) fn submission(order: &str, on_timeout: OnTimeout) -> NewIntent {
    NewIntent::new("OrderSubmission", ("Order", order), "orders", 5 * MINUTE, on_timeout)
}
