//! A shop that charges cards: actions whose ends are caught, and what was caught.

use mainstay_events::{Event, IdempotencyKey, Log, NewEvent, Selection};
use mainstay_flows::delivery::Retries;
use mainstay_flows::delivery::outbox::Outbox;
use mainstay_store::{Options, Store};
use mainstay_work::{
    Call, Failure, Functions, Letter, LetterFilter, NewWork, Pool, RetryPolicy, Work, WorkResult,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

pub(super) const PATIENCE: Duration = Duration::from_secs(30);
pub(super) const POOL: &str = "payments";
pub(super) const CAUGHT: &str = "paymentCaught";

/// What is kept beside a charge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Payment {
    pub(super) order_id: String,
    /// The version that the order must have before it is paid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expected: Option<u64>,
    /// A note that makes the event another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
}

impl Payment {
    pub(super) fn of(order_id: &str) -> Self {
        Self { order_id: order_id.to_owned(), expected: None, note: None }
    }
}

/// Every retry at once, as far as a clock can see.
pub(super) fn retries(max_retries: u32) -> Retries {
    Retries::new(max_retries, 1, 1.0).unwrap()
}

pub(super) fn outbox(retries: Retries) -> Outbox {
    outbox_named(CAUGHT, retries)
}

pub(super) fn outbox_named(name: &str, retries: Retries) -> Outbox {
    Outbox::new(
        name,
        ["charge", "decline", "pay", "refuse"],
        "orders",
        retries,
        |payment: &Payment| IdempotencyKey::action("payment", &payment.order_id),
        |result: &WorkResult, payment: &Payment| {
            let (name, mut data) = match result {
                WorkResult::Success { return_value } => {
                    let charge: Value = serde_json::from_str(return_value.get())?;
                    ("PaymentCompleted", json!({ "chargeId": charge }))
                }
                WorkResult::Failed { error } => ("PaymentFailed", json!({ "error": error })),
                WorkResult::Canceled => ("PaymentFailed", json!({ "error": "canceled" })),
            };
            if payment.order_id == "ord-nonsense" {
                return Err("no event can be made of it".into());
            }
            data["orderId"] = json!(payment.order_id);
            data["note"] = json!(payment.note);
            let event = NewEvent::new(name, &data)?.stream("Order", &payment.order_id);
            Ok(payment.expected.into_iter().fold(event, NewEvent::expecting))
        },
    )
    .unwrap()
}

/// `charge` answers `ch-456` for any order, `decline` never does, and `echo` answers its args.
pub(super) fn actions() -> Functions {
    Functions::new()
        .action("charge", async |_: Call, _: String| Ok("ch-456"))
        .action("echo", async |_: Call, args: Value| Ok(args))
        .action("decline", async |_: Call, _: String| Err::<(), _>(Failure::retryable("card declined")))
}

pub(super) fn components(options: Options) -> Options {
    let components = [mainstay_events::COMPONENT, mainstay_work::COMPONENT];
    components.into_iter().fold(options, Options::component)
}

pub(super) struct Bench {
    pub(super) store: Store,
    pub(super) log: Log,
    pub(super) work: Work,
}

impl Bench {
    /// A shop whose outbox tries again so often, and whose pool never does.
    pub(super) async fn open(options: Options, max_retries: u32) -> Self {
        let store = components(options).open().await.unwrap();
        let log = Log::open(&store).await.unwrap();
        let functions = outbox(retries(max_retries)).functions(actions(), &log);
        let work = Work::open(&store, functions).await.unwrap();
        let never = RetryPolicy::new(1, 1, 1.0, 1).unwrap();
        work.pool(Pool::new(POOL).retry(never)).await.unwrap();
        Self { store, log, work }
    }

    /// Starts an action; its id.
    pub(super) async fn start(&self, action: &str, payment: &Payment) -> String {
        let new = NewWork::new(POOL, action, &payment.order_id).unwrap();
        let new = new.on_complete(CAUGHT, payment).unwrap();
        self.work.enqueue(new).await.unwrap().work_id
    }

    /// Appends the first event of an order.
    pub(super) async fn place(&self, order: &str) {
        self.log.append(NewEvent::new("OrderPlaced", &()).unwrap().stream("Order", order)).await.unwrap();
    }

    /// Waits until an item has ended.
    pub(super) async fn ended(&self, work_id: &str) {
        self.work.wait_for(work_id, PATIENCE).await.unwrap();
    }

    pub(super) async fn events(&self) -> Vec<Event> {
        events(&self.log).await
    }

    /// The only letter, once there is one.
    pub(super) async fn letter(&self) -> Letter {
        let letters = until(async || {
            let letters = self.work.letters(LetterFilter::default(), 10).await.unwrap();
            (!letters.is_empty()).then_some(letters)
        });
        let mut letters = letters.await;
        assert_eq!(letters.len(), 1, "{letters:?}");
        letters.remove(0)
    }
}

pub(super) async fn events(log: &Log) -> Vec<Event> {
    log.read(&Selection::all(), 1_000).await.unwrap().events
}

/// The data of an event.
pub(super) fn data(event: &Event) -> Value {
    event.data_as().unwrap()
}

/// Looks until there is something to see.
pub(super) async fn until<T>(look: impl AsyncFn() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("it is seen in time")
}
