//! One correlation and one tenant, from a command to all that came of it, and the causation between them: items 258 to 261.

use mainstay_core::trace::TraceContext;
use mainstay_events::{Event, IdempotencyKey, Log, NewEvent, Selection};
use mainstay_flows::commands::{self, Command, Commands, Decision, Dispatcher, Handling};
use mainstay_flows::delivery::Retries;
use mainstay_flows::delivery::appends::{Appends, NewAppend};
use mainstay_flows::delivery::intents::{self, Intents, NewIntent, OnTimeout, Operations};
use mainstay_flows::delivery::outbox::Outbox;
use mainstay_flows::delivery::publications::{
    self, Delivery, PublicEvent, Publisher, Retry, Target, Targets,
};
use mainstay_flows::event_flow;
use mainstay_flows::projections::{self, Category, Model, Projection, Projections, Registry};
use mainstay_store::{Options, Store, Tx};
use mainstay_testkit::stores::for_each_store;
use mainstay_work::{
    Call, Failure, Functions, LetterFilter, NewWork, OnComplete, Pool, RetryPolicy, Work, WorkResult,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const POOL: &str = "shop";
/// All that comes of one order.
const EVENTS: [&str; 11] = [
    "OrderPlaced",
    "Asked",
    "Elsewhere",
    "Charged",
    "PaymentCompleted",
    "Thanked",
    "Reminded",
    "SurveyStarted",
    "Shipped",
    "Delivered",
    "Rewarded",
];

/// The parts that are opened after the functions which use them.
struct Rooms {
    log: Log,
    work: Work,
    dispatcher: Dispatcher,
    appends: Appends,
    intents: Intents,
    publisher: Publisher,
    projections: Projections,
    is_well: AtomicBool,
}

type Slot = Arc<OnceLock<Rooms>>;

fn rooms(slot: &Slot) -> &Rooms {
    slot.get().expect("everything is open")
}

fn event(event_type: &str) -> NewEvent {
    NewEvent::new(event_type, &()).unwrap()
}

fn keyed(event_type: &str) -> NewEvent {
    let key = IdempotencyKey::action(event_type, "ord-1").unwrap();
    event(event_type).stream("Order", "ord-1").idempotent(&key)
}

fn item(function: &str) -> NewWork {
    NewWork::new(POOL, function, &()).unwrap()
}

/// The events say which tenant and causation the command had.
async fn decide(
    event_type: &'static str,
    handling: Handling,
) -> mainstay_store::Result<Decision<NewEvent, ()>> {
    let issued = handling.issued();
    let given = json!({ "tenant": issued.tenant_id, "causation": issued.causation_id });
    if event_type == "OrderPlaced" {
        handling.start(item("ask"))?;
    }
    Ok(Decision::success((), [NewEvent::new(event_type, &given)?]))
}

fn commands() -> Commands {
    Commands::new()
        .on("PlaceOrder", |handling: Handling, _: ()| decide("OrderPlaced", handling))
        .on("ShipOrder", |handling: Handling, _: ()| decide("Shipped", handling))
}

/// A process manager that names no cause.
fn manager(slot: &Slot) -> Projection {
    let slot = slot.clone();
    let types = ["OrderPlaced", "PaymentCompleted", "Shipped"];
    Projection::new("manager", Category::Logic).on(types).each(move |tx: Tx, _: Model, seen: Event| {
        let slot = slot.clone();
        async move {
            let Rooms { work, publisher, .. } = rooms(&slot);
            match seen.event_type() {
                "OrderPlaced" => {
                    work.enqueue_in(&tx, [item("charge").tell("paymentCaught")])?;
                }
                "PaymentCompleted" => {
                    work.enqueue_in(&tx, [item("thank").tell("thanked")])?;
                }
                _ => {
                    let public = PublicEvent::new(seen.id(), "OrderShipped", &())?;
                    publisher.publish_in(&tx, &public, "orders", ["customers"]).await?;
                }
            }
            Ok(())
        }
    })
}

fn outbox() -> Outbox {
    let key = |_: &Value| IdempotencyKey::action("payment", "ord-1");
    let made = |_: &WorkResult, _: &Value| Ok(event("PaymentCompleted").stream("Order", "ord-1"));
    let retries = Retries::new(3, 1, 1.0).unwrap();
    Outbox::new("paymentCaught", ["charge"], "orders", retries, key, made).unwrap()
}

fn functions(slot: &Slot) -> Functions {
    let with = |slot: &Slot| slot.clone();
    let (ask, charge, thank, thanked) = (with(slot), with(slot), with(slot), with(slot));
    let (remind, ship, reward) = (with(slot), with(slot), with(slot));
    let append = |slot: Slot, event_type: &'static str| {
        move |tx: Tx, _: Call, _: ()| {
            let slot = slot.clone();
            async move { rooms(&slot).log.append_in(&tx, event(event_type)).map(drop).map_err(Into::into) }
        }
    };
    Functions::new()
        .mutation("ask", append(ask, "Asked"))
        .action("charge", move |_: Call, _: ()| {
            let slot = charge.clone();
            async move {
                let Rooms { log, work, .. } = rooms(&slot);
                let failed = |error: &dyn std::fmt::Display| Failure::retryable(error.to_string());
                // Outside of any transaction, in one of its own, and with fields of its own.
                let elsewhere = event("Elsewhere").tenant("other").correlation("own").causation("itself");
                log.append(elsewhere).await.map_err(|error| failed(&error))?;
                log.append(event("Charged")).await.map_err(|error| failed(&error))?;
                let reward =
                    async |tx: Tx, work: Work| Ok(work.enqueue_in(&tx, [item("reward")]).map(drop)?);
                work.store().transact_with(work.clone(), reward).await.map_err(|error| failed(&error))
            }
        })
        .mutation("reward", append(reward, "Rewarded"))
        .action("thank", move |_: Call, _: ()| {
            let is_well = rooms(&thank).is_well.load(Ordering::SeqCst);
            async move { if is_well { Ok(()) } else { Err(Failure::permanent("no letters today")) } }
        })
        .mutation("thanked", move |tx: Tx, _: Call, told: OnComplete| {
            let slot = thanked.clone();
            async move {
                if !matches!(told.result, WorkResult::Success { .. }) {
                    return Ok(());
                }
                let Rooms { work, appends, intents, .. } = rooms(&slot);
                appends.append_in(&tx, NewAppend::new(keyed("Thanked")))?;
                work.set_timer_in(&tx, 0, "remind", &())?;
                let (stream, hour) = (("Order", "ord-1"), Duration::from_secs(3_600));
                intents
                    .record_in(&tx, NewIntent::new("Survey", stream, "orders", hour, OnTimeout::abandon()))
                    .await?;
                work.enqueue_in(&tx, [item("ship")])?;
                Ok(())
            }
        })
        .mutation("remind", append(remind, "Reminded"))
        .action("ship", move |_: Call, _: ()| {
            let slot = ship.clone();
            async move {
                let ship = Command::new("ShipOrder", &()).unwrap().id("ship-1");
                let shipped = rooms(&slot).dispatcher.dispatch(ship).await;
                shipped.map(drop).map_err(|error| Failure::retryable(error.to_string()))
            }
        })
}

fn targets(slot: &Slot) -> Targets {
    let slot = slot.clone();
    let customers = Target::handler("customers", move |tx: Tx, delivery: Delivery| {
        let slot = slot.clone();
        async move {
            let PublicEvent { correlation_id, tenant_id, causation_id, .. } = &delivery.event;
            let told =
                json!({ "correlation": correlation_id, "tenant": tenant_id, "causation": causation_id });
            rooms(&slot).log.append_in(&tx, NewEvent::new("Delivered", &told)?)?;
            Ok(())
        }
    });
    Targets::new(Retry { max_retries: 3, initial_backoff_ms: 1, base: 1.0 }).with(customers)
}

async fn open(options: Options) -> (Store, Slot) {
    let components = [
        mainstay_events::COMPONENT,
        mainstay_work::COMPONENT,
        commands::COMPONENT,
        projections::COMPONENT,
        intents::COMPONENT,
        publications::COMPONENT,
    ];
    let store = components.into_iter().fold(options, Options::component).open().await.unwrap();
    let log = Log::open(&store).await.unwrap();
    let (slot, commands) = (Slot::default(), commands());
    let (registry, targets) = (Registry::new().with(manager(&slot)), targets(&slot));
    let work = Work::open(&store, outbox().functions(functions(&slot), &log)).await.unwrap();
    work.pool(Pool::new(POOL).retry(RetryPolicy::new(1, 1, 1.0, 1).unwrap())).await.unwrap();
    let rooms = Rooms {
        appends: Appends::open(&log, &work, Retries::new(3, 1, 1.0).unwrap()).await.unwrap(),
        intents: Intents::open(&log, &work, Operations::new()).await.unwrap(),
        dispatcher: Dispatcher::open(&log, &work, commands).await.unwrap(),
        projections: Projections::open(&store, &log, &work, registry).await.unwrap(),
        publisher: Publisher::open(&log, &work, targets).await.unwrap(),
        log,
        work,
        is_well: AtomicBool::new(false),
    };
    assert!(slot.set(rooms).is_ok());
    (store, slot)
}

async fn seen(log: &Log) -> BTreeMap<String, Event> {
    let events = log.read(&Selection::all(), 100).await.unwrap().events;
    let count = events.len();
    let seen: BTreeMap<_, _> =
        events.into_iter().map(|event| (event.event_type().to_owned(), event)).collect();
    assert_eq!(seen.len(), count, "each happens once");
    seen
}

async fn until<T>(look: impl AsyncFn() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("it is seen in time")
}

#[test]
fn b_261_one_correlation_and_tenant_from_a_command_to_all_that_came_of_it() {
    for_each_store(async |place| {
        let (_store, slot) = open(place.options()).await;
        let Rooms { log, work, dispatcher, projections, is_well, .. } = rooms(&slot);
        let (engine, projecting) = (work.start().await.unwrap(), projections.start());
        let place =
            Command::new("PlaceOrder", &()).unwrap().id("place-1").correlation("corr-1").tenant("acme");
        let root = TraceContext::root(&**log.store().random());
        dispatcher.dispatch(place.trace(root.clone())).await.unwrap();
        // A retry by an operator goes on where the failure was.
        let letter = until(async || work.letters(LetterFilter::default(), 10).await.unwrap().pop()).await;
        assert_eq!(letter.function, "thank");
        is_well.store(true, Ordering::SeqCst);
        work.retry_letter(&letter.work_id).await.unwrap();
        let events = until(async || Some(seen(log).await).filter(|seen| seen.len() == EVENTS.len())).await;
        assert_eq!(events.keys().map(String::as_str).collect::<BTreeSet<_>>(), BTreeSet::from(EVENTS));

        let id = |event_type: &str| events[event_type].id().to_owned();
        let (placed, paid, shipped) = (id("OrderPlaced"), id("PaymentCompleted"), id("Shipped"));
        let causes = [
            ("OrderPlaced", "place-1"),
            ("Asked", "place-1"),
            ("Charged", &placed),
            ("Rewarded", &placed),
            ("PaymentCompleted", &placed),
            ("Thanked", &paid),
            ("Reminded", &paid),
            ("SurveyStarted", &paid),
            ("Shipped", "ship-1"),
            ("Delivered", &shipped),
        ];
        for (event_type, cause) in causes {
            let event = &events[event_type];
            let (correlation, tenant) = (event.correlation_id(), event.tenant());
            assert_eq!((correlation, tenant), ("corr-1", Some("acme")), "{event_type}");
            assert_eq!(event.causation_id(), Some(cause), "{event_type}");
            let trace = event.trace().map(|trace| trace.trace_id);
            assert_eq!(trace.as_deref(), Some(&*root.trace_id), "{event_type}");
        }
        let data = |event_type: &str| events[event_type].data_as::<Value>().unwrap();
        assert_eq!(data("Shipped"), json!({ "tenant": "acme", "causation": paid }));
        assert_eq!(
            data("Delivered"),
            json!({ "correlation": "corr-1", "tenant": "acme", "causation": shipped })
        );
        // Fields that are given win.
        let own = &events["Elsewhere"];
        assert_eq!(
            (own.correlation_id(), own.tenant(), own.causation_id()),
            ("own", Some("other"), Some("itself"))
        );

        // The view of a flow shows the chain whole.
        let flow = event_flow(log, dispatcher, projections, "corr-1").await.unwrap();
        let commands: Vec<_> = flow.commands.iter().map(|command| command.command_id.as_str()).collect();
        assert_eq!(commands, ["place-1", "ship-1"]);
        assert_eq!(flow.events.len(), EVENTS.len() - 1);
        assert!(
            dispatcher
                .correlated("corr-1")
                .await
                .unwrap()
                .iter()
                .all(|one| one.tenant_id.as_deref() == Some("acme"))
        );
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn work_without_a_correlation_begins_one_that_all_its_events_share() {
    for_each_store(async |place| {
        let (_store, slot) = open(place.options()).await;
        let Rooms { log, work, .. } = rooms(&slot);
        let engine = work.start().await.unwrap();
        let enqueued = work.enqueue(item("charge").tell("paymentCaught")).await.unwrap();
        let events = until(async || Some(seen(log).await).filter(|seen| seen.len() == 4)).await;
        for event_type in ["Charged", "Rewarded", "PaymentCompleted"] {
            let event = &events[event_type];
            assert_eq!(event.correlation_id(), enqueued.work_id, "{event_type}");
            assert_eq!((event.tenant(), event.causation_id()), (None, None), "{event_type}");
        }
        engine.stop(PATIENCE).await.unwrap();
    });
}
