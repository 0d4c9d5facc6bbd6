//! A shop in which everything can be broken: its charges, its read model, the context that it publishes to, its appends.

use super::live::Live;
use crate::projections::support::{Bad, noting_unless};
use mainstay_events::{IdempotencyKey, Log, NewEvent};
use mainstay_flows::dead_letters::{
    self, DeadLetters, Detail, Filter, Listed, Operation, OperationStatus, Sources, Status, Upkeep,
};
use mainstay_flows::delivery::Retries;
use mainstay_flows::delivery::appends::{Appends, NewAppend};
use mainstay_flows::delivery::publications::{self, Delivery, Publisher, Retry, Target, Targets};
use mainstay_flows::projections::{Projections, Registry};
use mainstay_store::{Options, Store, Tx, params};
use mainstay_testkit::crash;
use mainstay_testkit::stores::Place;
use mainstay_work::{Call, Engine, Failure, Functions, NewWork, OnComplete, Pool, RetryPolicy, Work};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

pub(super) use crate::projections::support::{PATIENCE, until};

pub(super) const SHOP: &str = "shop";

pub(super) struct Bench {
    pub(super) store: Store,
    pub(super) log: Log,
    pub(super) work: Work,
    pub(super) projections: Projections,
    pub(super) publisher: Publisher,
    pub(super) appends: Appends,
    pub(super) letters: DeadLetters,
    is_broken: Arc<AtomicBool>,
    pub(super) bad: Bad,
    pub(super) live: Arc<Live>,
}

pub(super) fn components(options: Options) -> Options {
    options
        .component(mainstay_events::COMPONENT)
        .component(mainstay_work::COMPONENT)
        .component(mainstay_flows::projections::COMPONENT)
        .component(publications::COMPONENT)
        .component(dead_letters::COMPONENT)
}

/// `charge` writes a row once for all, unless the shop is broken; `told` is told of an end, unless it is; `call` asks somebody
/// else, who does not answer if it is.
fn functions(is_broken: &Arc<AtomicBool>) -> Functions {
    let (charging, telling, calling) = (is_broken.clone(), is_broken.clone(), is_broken.clone());
    Functions::new()
        .action("call", move |_: Call, order: String| {
            let is_broken = calling.load(Ordering::Relaxed);
            async move {
                if is_broken {
                    Err(Failure::permanent(format!("no answer about order {order}")))
                } else {
                    Ok(())
                }
            }
        })
        .mutation("charge", move |tx: Tx, _: Call, order: String| {
            let is_broken = charging.load(Ordering::Relaxed);
            async move {
                if is_broken {
                    let failure = Failure::permanent(format!("order {order} has no stock"));
                    return Err(mainstay_store::Error::application(failure));
                }
                effect(&tx, &order).await
            }
        })
        .mutation("told", move |tx: Tx, _: Call, told: OnComplete<String>| {
            let is_broken = telling.load(Ordering::Relaxed);
            async move {
                if is_broken {
                    return Err(mainstay_store::Error::application(Failure::permanent("nobody listens")));
                }
                effect(&tx, &format!("told {}", told.context.unwrap_or_default())).await
            }
        })
        .mutation("nothing", async |_: Tx, _: Call, _: String| Ok(()))
}

/// A context whose translator takes a moment when it is well. Retrying its letters calls it, inside of the transaction.
fn catalogue(is_broken: &Arc<AtomicBool>) -> Target {
    let is_broken = is_broken.clone();
    let target = Target::handler("catalogue", async |tx: Tx, delivery: Delivery| {
        effect(&tx, &format!("delivered to catalogue {}", delivery.event.event_id)).await
    });
    target.translate(move |event| {
        if is_broken.load(Ordering::Relaxed) {
            return Err("nobody can read it".to_owned());
        }
        linger();
        Ok(event.clone())
    })
}

/// How long a child lingers: long enough to be paused in, and much longer than a signal takes.
const MOMENT: Duration = Duration::from_millis(250);

/// In a child, tells that it is inside of something, and takes a moment.
fn linger() {
    static TIMES: AtomicUsize = AtomicUsize::new(0);
    if crash::is_child() {
        crash::say(format!("inside {}.", TIMES.fetch_add(1, Ordering::SeqCst)));
        std::thread::sleep(MOMENT);
    }
}

async fn effect(tx: &Tx, what: &str) -> mainstay_store::Result<()> {
    tx.execute("INSERT INTO effects (what) VALUES ($1)", params![what]).await.map(drop)
}

impl Bench {
    pub(super) async fn open(place: &Place) -> Self {
        Self::on(components(place.options()).open().await.unwrap(), Duration::from_secs(15), Upkeep::none())
            .await
    }

    /// With leases of another length, for nodes that die or are paused.
    pub(super) async fn on(store: Store, lease: Duration, upkeep: Upkeep) -> Self {
        Self::made(store, lease, upkeep, true).await
    }

    /// A node that has the shop's functions, and knows neither its read model nor the context that it publishes to.
    pub(super) async fn bare(place: &Place) -> Self {
        let store = components(place.options()).open().await.unwrap();
        Self::made(store, Duration::from_secs(15), Upkeep::none(), false).await
    }

    async fn made(store: Store, lease: Duration, upkeep: Upkeep, is_whole: bool) -> Self {
        let create = async |tx: Tx| {
            tx.lock("effects").await?;
            tx.execute("CREATE TABLE IF NOT EXISTS effects (what TEXT NOT NULL)", &[]).await?;
            let noted =
                "CREATE TABLE IF NOT EXISTS noted (model TEXT NOT NULL, position BIGINT NOT NULL, data TEXT)";
            tx.execute(noted, &[]).await
        };
        store.transact(create).await.unwrap();
        let log = Log::open(&store).await.unwrap();
        let (is_broken, bad) = (Arc::new(AtomicBool::new(true)), Bad::texts(&["bad"]));
        let registry = match is_whole {
            true => Registry::new().with(noting_unless("orders", &bad)),
            false => Registry::new(),
        };
        let receiving = is_broken.clone();
        let inventory = Target::handler("inventory", move |tx: Tx, delivery: Delivery| {
            let is_broken = receiving.load(Ordering::Relaxed);
            async move {
                if is_broken {
                    return Err(mainstay_store::Error::application(Failure::permanent(
                        "the context is away",
                    )));
                }
                effect(&tx, &format!("delivered {}", delivery.event.event_id)).await
            }
        });
        let targets = Targets::new(Retry { max_retries: 0, initial_backoff_ms: 1, base: 1.0 });
        let targets = if is_whole { targets.with(inventory).with(catalogue(&is_broken)) } else { targets };
        let live = Arc::new(Live::default());
        let work = Work::open_with_lease(&store, live.functions(functions(&is_broken)), lease).await.unwrap();
        let never = RetryPolicy::new(1, 1, 1.0, 1).unwrap();
        work.pool(Pool::new(SHOP).retry(never).max_parallelism(64)).await.unwrap();
        let appends = Appends::open(&log, &work, Retries::new(0, 1, 1.0).unwrap()).await.unwrap();
        let projections = Projections::open(&store, &log, &work, registry).await.unwrap();
        let publisher = Publisher::open(&log, &work, targets).await.unwrap();
        let sources = Sources::default().with(projections.clone()).with(publisher.clone());
        let letters = DeadLetters::open(&work, sources, upkeep).await.unwrap();
        Self { store, log, work, projections, publisher, appends, letters, is_broken, bad, live }
    }

    pub(super) async fn start(&self) -> Engine {
        self.work.start().await.unwrap()
    }

    pub(super) fn mend(&self) {
        self.is_broken.store(false, Ordering::Relaxed);
        self.bad.mend();
    }

    /// Nobody answers any more.
    pub(super) fn spoil(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }

    /// Charges so many orders, and waits until all of that has ended.
    pub(super) async fn charge(&self, orders: impl IntoIterator<Item = String>) {
        let items: Vec<NewWork> =
            orders.into_iter().map(|order| NewWork::new(SHOP, "charge", &order).unwrap()).collect();
        for items in items.chunks(5_000) {
            self.work.enqueue_all(items.to_vec()).await.unwrap();
        }
        self.drained(SHOP).await;
    }

    /// An event that the read model cannot take; its id.
    pub(super) async fn spoiled_event(&self, correlation: &str) -> String {
        let event = NewEvent::new("Ordered", &"bad").unwrap().correlation(correlation);
        self.log.append(event).await.unwrap().events[0].event_id.clone()
    }

    pub(super) async fn publish(&self, event_id: &str) {
        self.publisher.publish(event_id, "orders", ["inventory"]).await.unwrap();
    }

    /// An event that cannot be appended: its stream has another version.
    pub(super) async fn append_late(&self, order: &str) -> String {
        let key = IdempotencyKey::action("payment", order).unwrap();
        let event = NewEvent::new("Paid", &order).unwrap().stream("Order", order).expecting(7);
        let event = event.idempotent(&key).correlation(format!("corr-{order}"));
        self.appends.append(NewAppend::new(event)).await.unwrap()
    }

    /// Waits until nothing waits or runs in a pool.
    pub(super) async fn drained(&self, pool: &str) {
        until("a pool is empty", async || {
            self.work.depth(pool).await.is_ok_and(|depth| (depth.pending, depth.running) == (0, 0))
        })
        .await;
    }

    pub(super) async fn list(&self, filter: Filter) -> Vec<Listed> {
        self.letters.list(filter, None, 1_000).await.unwrap().letters
    }

    /// How many letters there are of a status.
    pub(super) async fn count(&self, status: Status) -> u64 {
        let filter = Filter { status: Some(status), ..Filter::default() };
        self.letters.stats(filter).await.unwrap().total
    }

    /// Waits until an operation has ended.
    pub(super) async fn ended(&self, operation_id: &str) -> Operation {
        until("an operation ends", async || {
            self.letters.operation(operation_id).await.unwrap().status != OperationStatus::Running
        })
        .await;
        self.letters.operation(operation_id).await.unwrap()
    }

    /// How often each effect was had.
    pub(super) async fn effects(&self) -> BTreeMap<String, u64> {
        let read = async |tx: Tx| {
            let rows = tx.query("SELECT what, count(*) FROM effects GROUP BY what", &[]).await?;
            rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect::<mainstay_store::Result<_>>()
        };
        self.store.read(read).await.unwrap()
    }
}

/// A letter as its source shows it; null if it is another source's.
pub(super) fn about(detail: &Detail, member: &str) -> Value {
    detail.about.get(member).map_or(Value::Null, |value| serde_json::from_str(value.get()).unwrap())
}

pub(super) fn text(value: Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

pub(super) fn of_kind(kind: &str) -> Filter {
    Filter { kind: Some(kind.into()), ..Filter::default() }
}

pub(super) fn orders(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("o{number}"))
}
