//! A shop in which everything fails in its own way.

use crate::delivery::support::{self, CAUGHT, Payment, actions, outbox, outbox_named, retries};
use mainstay_events::{IdempotencyKey, Log, NewEvent};
use mainstay_flows::delivery::appends::{APPEND_POOL, Appends, NewAppend};
use mainstay_flows::delivery::intents::{self, Intents, NewIntent, OnTimeout, Operations, TimedOut};
use mainstay_store::{Options, Store, Tx, params};
use mainstay_work::{
    Call, Canceled, Failure, NewWork, OnComplete, Pool, RETRIER_POOL, RetryPolicy, TIMER_POOL, Work,
};
use std::time::Duration;

pub(super) const PATIENCE: Duration = Duration::from_secs(150);
/// On PostgreSQL nobody takes up what a dead node had before this is over.
pub(super) const LEASE: Duration = Duration::from_millis(400);
/// A paused node's locks are taken from it after this long.
pub(super) const LIMIT: Duration = Duration::from_secs(2);
const PAYMENTS: &str = support::POOL;
/// An outbox that gives up soon.
const BRIEFLY: &str = "paymentCaughtBriefly";

pub(super) struct Node {
    pub(super) store: Store,
    pub(super) log: Log,
    pub(super) work: Work,
    pub(super) appends: Appends,
    pub(super) intents: Intents,
}

impl Node {
    pub(super) async fn open(options: Options) -> Self {
        let components = [mainstay_events::COMPONENT, mainstay_work::COMPONENT, intents::COMPONENT];
        let options = components.into_iter().fold(options, Options::component);
        let store = options.open().await.unwrap();
        let table = "CREATE TABLE IF NOT EXISTS told (id TEXT NOT NULL)";
        store.transact(async move |tx| tx.execute(table, &[]).await).await.unwrap();
        let log = Log::open(&store).await.unwrap();
        let functions = actions()
            .action("refuse", async |_: Call, _: String| Err::<(), _>(Failure::permanent("card stolen")))
            .mutation("told", async |tx: Tx, _: Call, told: OnComplete<String>| {
                tell(&tx, told.context.unwrap_or_default()).await
            })
            .mutation("timed", async |tx: Tx, _: Call, out: TimedOut| {
                tell(&tx, format!("{} {}", out.intent_key, out.timeouts)).await
            });
        let functions = outbox(retries(1_000)).functions(functions, &log);
        let functions = outbox_named(BRIEFLY, retries(2)).functions(functions, &log);
        let work = Work::open_with_lease(&store, functions, LEASE).await.unwrap();
        // A node that dies costs an action an execution, and many die here.
        let often = RetryPolicy::new(10_000, 1, 1.0, 1).unwrap();
        work.pool(Pool::new(PAYMENTS).retry(often)).await.unwrap();
        let appends = Appends::open(&log, &work, retries(2)).await.unwrap();
        let intents = Intents::open(&log, &work, Operations::new()).await.unwrap();
        Self { store, log, work, appends, intents }
    }

    /// Asks for one of each, and tells of everything that was promised.
    pub(super) async fn ask(
        &self,
        id: &str,
        wait: Duration,
        promised: impl Fn(String),
    ) -> mainstay_flows::Result<()> {
        let refused = format!("{id}-refused");
        let item = NewWork::new(PAYMENTS, "refuse", id)?.on_complete(CAUGHT, &Payment::of(&refused))?;
        self.work.enqueue(item).await?;
        promised(format!("failed {refused}"));

        let late = format!("{id}-late");
        let payment = Payment { expected: Some(99), ..Payment::of(&late) };
        self.work.enqueue(NewWork::new(PAYMENTS, "charge", id)?.on_complete(BRIEFLY, &payment)?).await?;
        promised(format!("letter {late}"));

        let key = IdempotencyKey::saga_step("Fulfillment", id, "reserve").expect("a key");
        let event = NewEvent::new("StockReserved", &id)?.stream("Order", id).expecting(99).idempotent(&key);
        let unappended = format!("{id}-append");
        self.appends.append(NewAppend::new(event).on_complete("told", &unappended)?).await?;
        promised(format!("letter {unappended}"));

        for policy in [
            OnTimeout::abandon().handler("timed"),
            OnTimeout::alert().handler("timed"),
            OnTimeout::retry("timed", 2),
        ] {
            let new = NewIntent::new("Submission", ("Order", id), "orders", wait, policy);
            promised(format!("intent {}", self.intents.record(new).await?.intent_key));
        }

        let canceled = format!("{id}-canceled");
        let item = NewWork::new(PAYMENTS, "charge", id)?.on_complete(CAUGHT, &Payment::of(&canceled))?;
        let work_id = self.work.enqueue(item.run_after(wait)).await?.work_id;
        promised(format!("ended {canceled}"));
        if self.work.cancel(&work_id).await? == Canceled::AtOnce {
            promised(format!("failed {canceled}"));
        }
        Ok(())
    }

    /// Lets nothing be left to do.
    pub(super) async fn drain(&self) {
        let engine = self.work.start().await.unwrap();
        let is_empty = async || {
            for pool in [PAYMENTS, APPEND_POOL, TIMER_POOL, RETRIER_POOL] {
                let depth = self.work.depth(pool).await;
                if !depth.is_ok_and(|depth| (depth.pending, depth.running) == (0, 0)) {
                    return false;
                }
            }
            true
        };
        let draining = async {
            // What ends in one pool may begin something in another.
            while !(is_empty().await && is_empty().await) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, draining).await.expect("everything ends");
        engine.stop(PATIENCE).await.unwrap();
    }
}

async fn tell(tx: &Tx, what: String) -> mainstay_store::Result<u64> {
    tx.execute("INSERT INTO told (id) VALUES ($1)", params![what]).await
}
