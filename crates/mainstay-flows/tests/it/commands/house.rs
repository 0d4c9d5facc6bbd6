//! A small shop: its commands, its tables, and a diary of what ran.

use mainstay_events::{Log, NewEvent};
use mainstay_flows::commands::{
    self, Command, Commands, Decision, Dispatched, Dispatcher, Ended, Handling, Outcome, Rejection,
};
use mainstay_store::{Store, Tx, params};
use mainstay_testkit::stores::Place;
use mainstay_work::{Call, Failure, Functions, NewWork, Pool, Work};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// What happened, in order.
#[derive(Clone, Default)]
pub(super) struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    pub(super) fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    /// A transaction may be run again by the store, so what follows itself is told once.
    pub(super) fn entries(&self) -> Vec<String> {
        let mut entries = self.0.lock().unwrap().clone();
        entries.dedup();
        entries
    }
}

pub(super) struct House {
    pub(super) store: Store,
    pub(super) log: Log,
    pub(super) work: Work,
    pub(super) dispatcher: Dispatcher,
    pub(super) diary: Diary,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Order {
    pub(super) id: u32,
}

/// `PlaceOrder` writes a row, an event and an item of work; the others are told by their names. All of them write a row
/// first, which must be gone when they come to nothing.
pub(super) fn shop(diary: &Diary) -> Commands {
    let diary = diary.clone();
    let run = move |name: &'static str| {
        let diary = diary.clone();
        move |handling: Handling, order: Order| {
            diary.note(name);
            async move {
                let insert = "INSERT INTO orders (id, command) VALUES ($1, $2)";
                handling.tx().execute(insert, params![order.id, name]).await?;
                let event = |event_type: &str| {
                    Ok::<_, mainstay_store::Error>(
                        NewEvent::new(event_type, &order)?.tag(format!("order:{}", order.id)),
                    )
                };
                Ok(match name {
                    "PlaceOrder" => {
                        handling.start(NewWork::new("shop", "ship", &order.id)?)?;
                        Decision::success(json!({ "orderId": order.id }), [event("OrderPlaced")?])
                    }
                    "RefuseOrder" => return Err(Rejection::new("NO_SUCH_ITEM", "we do not have it").into()),
                    "FailOrder" => Decision::failed("out of stock", [event("OrderFailed")?]),
                    "BreakOrder" => return Err(mainstay_store::Error::application("broken")),
                    "BoastOrder" => Decision::success(json!("x".repeat(70_000)), []),
                    _ => panic!("on purpose"),
                })
            }
        }
    };
    let mut commands = Commands::new();
    for name in ["PlaceOrder", "RefuseOrder", "FailOrder", "BreakOrder", "BoastOrder", "PanicOrder"] {
        commands = commands.on(name, run(name));
    }
    commands
}

impl House {
    pub(super) async fn open(place: &Place) -> Self {
        let diary = Diary::default();
        Self::open_with(place, shop(&diary), diary).await
    }

    pub(super) async fn open_with(place: &Place, commands: Commands, diary: Diary) -> Self {
        let options = place.options().component(mainstay_events::COMPONENT);
        let options = options.component(mainstay_work::COMPONENT).component(commands::COMPONENT);
        let options = options.component(mainstay_guards::limits::store::COMPONENT);
        Self::open_on(options.open().await.unwrap(), commands, diary).await
    }

    pub(super) async fn open_on(store: Store, commands: Commands, diary: Diary) -> Self {
        for table in [
            "CREATE TABLE IF NOT EXISTS orders (id BIGINT NOT NULL, command TEXT NOT NULL)",
            "CREATE TABLE IF NOT EXISTS told (status TEXT NOT NULL, context TEXT NOT NULL)",
        ] {
            store.transact(async move |tx| tx.execute(table, &[]).await).await.unwrap();
        }
        let log = Log::open(&store).await.unwrap();
        let shipped = diary.clone();
        let functions = Functions::new()
            .action("ship", move |call: Call, order: u32| {
                shipped.note(format!("ship {order} {}", call.trace.unwrap().trace_id));
                async { Ok(()) }
            })
            .action("refuse", async |_: Call, _: Value| Err::<(), _>(Failure::permanent("no")))
            .mutation("told", async |tx: Tx, _: Call, ended: Ended<Value>| {
                let status = match ended.result.code {
                    Some(code) => format!("{} {code}", ended.result.status),
                    None => ended.result.status,
                };
                let context = ended.context.unwrap_or_default().to_string();
                tx.execute("INSERT INTO told (status, context) VALUES ($1, $2)", params![status, context])
                    .await
            });
        let work = Work::open(&store, functions).await.unwrap();
        work.pool(Pool::new("shop")).await.unwrap();
        let dispatcher = Dispatcher::open(&log, &work, commands).await.unwrap();
        Self { store, log, work, dispatcher, diary }
    }

    pub(super) async fn send(&self, command_type: &str, id: u32) -> mainstay_flows::Result<Dispatched> {
        self.dispatcher.dispatch(order(command_type, id)).await
    }

    /// The first column of a query, as text.
    pub(super) async fn texts(&self, sql: &'static str) -> Vec<String> {
        let read = async move |tx: Tx| {
            tx.query(sql, &[])
                .await?
                .iter()
                .map(|row| row.get(0))
                .collect::<mainstay_store::Result<Vec<String>>>()
        };
        self.store.read(read).await.unwrap()
    }

    pub(super) async fn orders(&self) -> Vec<String> {
        self.texts("SELECT command FROM orders ORDER BY id, command").await
    }

    /// Who was told what.
    pub(super) async fn told(&self) -> Vec<String> {
        self.texts("SELECT status || ' ' || context FROM told ORDER BY 1").await
    }

    pub(super) async fn depth(&self, pool: &str) -> u64 {
        self.work.depth(pool).await.unwrap().pending
    }
}

pub(super) fn order(command_type: &str, id: u32) -> Command {
    Command::new(command_type, &Order { id }).unwrap()
}

/// The code that a command was rejected with.
pub(super) fn rejected(dispatched: &Dispatched) -> &str {
    match &dispatched.outcome {
        Outcome::Rejected { code, .. } => code,
        other => panic!("not rejected: {other:?}"),
    }
}
