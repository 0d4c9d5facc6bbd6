//! What the tests have in common: a shop with functions that tell what they did.

use mainstay_store::{Options, Store, Tx, params};
use mainstay_testkit::stores::Place;
use mainstay_work::{COMPONENT, Call, Failure, Functions, NewWork, OnComplete, Pool, RetryPolicy, Work};
use serde_json::Value;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What happened, in order.
#[derive(Clone, Default)]
pub(crate) struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    pub(crate) fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    pub(crate) fn clear(&self) {
        self.0.lock().unwrap().clear();
    }

    pub(crate) fn entries(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

pub(crate) async fn open(place: &Place) -> Store {
    open_with(place.options()).await
}

pub(crate) async fn open_with(options: Options) -> Store {
    let store = options.component(COMPONENT).open().await.unwrap();
    let table = "CREATE TABLE IF NOT EXISTS effects (id TEXT NOT NULL, what TEXT NOT NULL)";
    store.transact(async |tx| tx.execute(table, &[]).await).await.unwrap();
    store
}

/// Every retry at once, as far as a clock can see.
pub(crate) fn retry(max_attempts: u32) -> RetryPolicy {
    RetryPolicy::new(max_attempts, 1, 1.0, 1).unwrap()
}

/// Functions: `note` (action: its args go to the diary), `fail` (always, retryable), `refuse` (always, for good),
/// `effect` (mutation: a row), `ended` (mutation: `onComplete`, a row), `flaky` (fails until its third execution),
/// `panic`, `hang`.
pub(crate) fn functions(diary: &Diary) -> Functions {
    let (note, flaky) = (diary.clone(), diary.clone());
    Functions::new()
        .action("note", move |call: Call, what: String| {
            let diary = note.clone();
            async move {
                diary.note(format!("{what}#{}", call.attempt));
                Ok(what)
            }
        })
        .action("flaky", move |call: Call, what: String| {
            let diary = flaky.clone();
            async move {
                diary.note(format!("{what}#{}", call.attempt));
                if call.attempt < 3 { Err(Failure::retryable("not yet")) } else { Ok(call.attempt) }
            }
        })
        .action("fail", async |_: Call, _: Value| Err::<(), _>(Failure::retryable("always")))
        .action("refuse", async |_: Call, _: Value| Err::<(), _>(Failure::permanent("never")))
        .action("panic", async |_: Call, _: Value| -> Result<(), Failure> { panic!("on purpose") })
        .action_within(Duration::from_millis(50), "hang", async |_: Call, _: Value| {
            std::future::pending::<Result<(), Failure>>().await
        })
        .mutation("effect", async |tx: Tx, call: Call, what: String| {
            insert(&tx, &call.work_id, &what).await?;
            Ok(what)
        })
        .mutation("failing effect".replace(' ', "_"), async |tx: Tx, call: Call, what: String| {
            insert(&tx, &call.work_id, &what).await?;
            Err::<(), _>(mainstay_store::Error::application("no"))
        })
        .mutation("ended", async |tx: Tx, _: Call, told: OnComplete| {
            let context = told.context.map(|context| context.get().to_owned()).unwrap_or_default();
            insert(&tx, &told.work_id, &format!("{} {context}", told.result.kind())).await
        })
        .mutation("ended_badly", async |_: Tx, _: Call, _: OnComplete| {
            Err::<(), _>(mainstay_store::Error::application("cannot be told"))
        })
}

async fn insert(tx: &Tx, id: &str, what: &str) -> mainstay_store::Result<u64> {
    tx.execute("INSERT INTO effects (id, what) VALUES ($1, $2)", params![id, what]).await
}

/// The rows that mutations wrote, sorted.
pub(crate) async fn effects(store: &Store) -> Vec<String> {
    let read = async |tx: Tx| {
        let rows = tx.query("SELECT what FROM effects ORDER BY what", &[]).await?;
        rows.iter().map(|row| row.get(0)).collect::<mainstay_store::Result<Vec<String>>>()
    };
    store.read(read).await.unwrap()
}

pub(crate) async fn shop(store: &Store, diary: &Diary) -> Work {
    let work = Work::open(store, functions(diary)).await.unwrap();
    work.pool(Pool::new("shop").retry(retry(3))).await.unwrap();
    work
}

pub(crate) fn item(function: &str, args: &str) -> NewWork {
    NewWork::new("shop", function, args).unwrap()
}

/// What came of an item, once it has ended.
pub(crate) async fn ended(work: &Work, id: &str) -> mainstay_work::Status {
    work.wait_for(id, Duration::from_secs(20)).await.unwrap()
}
