//! Telling an end by an item of its own: where nothing may be added, where nothing is left to tell, and what it inherits.

use crate::bench_of_tools::{Diary, ended, functions, item, open, retry};
use crate::full::{HOUR, PATIENCE, count, execute, fill, pull};
use mainstay_core::trace::TraceContext;
use mainstay_store::{Store, Tx, params};
use mainstay_testkit::stores::for_each_store;
use mainstay_work::egress::Egress;
use mainstay_work::http::{HttpConfig, HttpFunction};
use mainstay_work::{Call, Failure, FunctionKind, LetterFilter, Native, NewWork, Pool, Work};
use serde_json::Value;
use serde_json::value::to_raw_value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

fn trace() -> TraceContext {
    TraceContext {
        trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".into(),
        span_id: "00f067aa0ba902b7".into(),
        parent_span_id: None,
    }
}

/// An item that an event has caused.
fn caused(new: NewWork) -> NewWork {
    new.correlated("corr-1").causation("evt-1").tenant("acme").trace(trace())
}

/// The ways in which an item ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The engine settles it.
    Settled,
    /// A pull worker completes it.
    Pulled,
    /// The lease of its worker is over.
    Reaped,
    /// The engine stops while it runs.
    Stopped,
    /// A caller cancels it.
    Canceled,
}

const WAYS: [Way; 5] = [Way::Settled, Way::Pulled, Way::Reaped, Way::Stopped, Way::Canceled];

impl Way {
    fn function(self) -> &'static str {
        match self {
            Self::Settled | Self::Canceled => "note",
            Self::Pulled | Self::Reaped => "remote",
            Self::Stopped => "stay",
        }
    }

    fn native(self) -> Native {
        match self {
            Self::Settled | Self::Pulled => Native::Success,
            Self::Reaped | Self::Stopped => Native::Failed,
            Self::Canceled => Native::Canceled,
        }
    }
}

/// A process that remembers nothing, and the signal of its function that stays.
async fn begin(store: &Store, diary: &Diary) -> (Work, Arc<Notify>) {
    let began = Arc::new(Notify::new());
    let stays = began.clone();
    let closed = HttpConfig::new("http://127.0.0.1:9/told");
    let endpoint =
        HttpFunction::new(closed, Arc::new(Egress::new(&["127.0.0.1".to_owned()]).unwrap())).unwrap();
    let functions = functions(diary)
        .action("stay", move |_: Call, _: Value| {
            stays.notify_one();
            std::future::pending::<Result<(), Failure>>()
        })
        .http("endpoint", endpoint, store);
    let work = Work::open(store, functions).await.unwrap();
    work.pool(Pool::new("shop").retry(retry(1))).await.unwrap();
    (work, began)
}

/// Enqueues an item whose end is told to `told`, lets what `lost` deletes be gone as after an upgrade or a deletion, and ends
/// the item. The pool is full.
async fn end(store: &Store, way: Way, lost: &[&'static str]) -> (Work, String) {
    let diary = Diary::default();
    // What fills the pool in the test of another way.
    for sql in [
        "DELETE FROM mainstay_work WHERE item LIKE '%filler%'",
        "DELETE FROM mainstay_lanes WHERE function = 'filler'",
    ] {
        execute(store, sql).await;
    }
    let (work, _) = begin(store, &diary).await;
    for function in ["told", "remote"] {
        work.declare(function, FunctionKind::Action).await.unwrap();
    }
    let new = caused(item(way.function(), "x").tell("told").context("ctx").unwrap());
    let new = if way == Way::Canceled { new.run_after(HOUR) } else { new };
    let id = work.enqueue(new).await.unwrap().work_id;
    fill(&work, "shop").await;
    for sql in lost {
        assert!(execute(store, sql).await > 0, "{sql}");
    }
    // Lanes that were lost leave no room for new ones.
    fill(&work, "shop").await;
    let (work, began) = begin(store, &diary).await;
    match way {
        Way::Settled => {
            let engine = work.start().await.unwrap();
            ended(&work, &id).await;
            engine.stop(PATIENCE).await.unwrap();
        }
        Way::Pulled => {
            let pulled = work.pull(pull("remote")).await.unwrap();
            work.complete(&pulled.lease.unwrap(), &id, to_raw_value(&1).unwrap()).await.unwrap();
        }
        Way::Reaped => {
            assert_eq!(work.pull(pull("remote")).await.unwrap().items.len(), 1);
            execute(store, "UPDATE mainstay_leases SET until_ms = 0").await;
            let engine = work.start().await.unwrap();
            ended(&work, &id).await;
            engine.stop(PATIENCE).await.unwrap();
        }
        Way::Stopped => {
            let engine = work.start().await.unwrap();
            began.notified().await;
            engine.stop(Duration::ZERO).await.unwrap();
        }
        Way::Canceled => drop(work.cancel(&id).await.unwrap()),
    }
    assert_eq!(work.status(&id).await.unwrap().unwrap().native, way.native(), "{way:?}");
    (work, id)
}

#[test]
fn the_end_of_an_item_is_told_in_a_pool_that_callers_have_filled() {
    for_each_store(async |place| {
        let store = open(&place).await;
        for way in WAYS {
            // An item of an earlier version made no lane for its telling.
            let (work, id) = end(&store, way, &["DELETE FROM mainstay_lanes WHERE function = 'told'"]).await;
            let told = work.pull(pull("told")).await.unwrap();
            let args: Value = serde_json::from_str(told.items[0].args.get()).unwrap();
            assert_eq!(args["workId"], id, "{way:?}");
            let done = to_raw_value(&()).unwrap();
            work.complete(&told.lease.unwrap(), &told.items[0].work_id, done).await.unwrap();
            let kind = Some("onComplete".into());
            let letters = work.letters(LetterFilter { kind, ..LetterFilter::default() }, 10).await.unwrap();
            assert!(letters.is_empty(), "{way:?}: {letters:?}");
            // The pool goes on.
            let engine = work.start().await.unwrap();
            let next = work.enqueue(item("note", "next")).await.unwrap().work_id;
            assert_eq!(ended(&work, &next).await.native, Native::Success);
            engine.stop(PATIENCE).await.unwrap();
        }
    });
}

#[test]
fn an_end_that_nothing_can_be_told_of_is_a_dead_letter_and_is_told_when_its_function_is_back() {
    for_each_store(async |place| {
        let store = open(&place).await;
        for way in WAYS {
            let gone = [
                "DELETE FROM mainstay_lanes WHERE function = 'told'",
                "DELETE FROM mainstay_functions WHERE name = 'told'",
            ];
            let (work, id) = end(&store, way, &gone).await;
            let kind = Some("onComplete".into());
            let letters = work.letters(LetterFilter { kind, ..LetterFilter::default() }, 10).await.unwrap();
            let [letter] = &letters[..] else { panic!("{way:?}: {letters:?}") };
            assert_eq!((&*letter.function, &*letter.pool, letter.attempts), ("told", "shop", 0));
            assert_eq!(letter.error, "UNKNOWN_FUNCTION: there is no function \"told\"");
            let args: Value = serde_json::from_str(letter.args.get()).unwrap();
            assert_eq!((&args["workId"], &args["context"]), (&id.as_str().into(), &"ctx".into()), "{way:?}");
            assert_eq!(work.status(&letter.work_id).await.unwrap().unwrap().native, Native::Failed);
            let listed = "SELECT count(*) FROM mainstay_dead_letters WHERE status = 0 AND kind = 'onComplete' \
                 AND correlation = 'corr-1'";
            assert_eq!(count(&store, listed).await, 1, "{way:?}");

            let refused = work.retry_letter(&letter.work_id).await.unwrap_err();
            assert_eq!(refused.code(), "UNKNOWN_FUNCTION", "{way:?}");
            work.declare("told", FunctionKind::Action).await.unwrap();
            work.retry_letter(&letter.work_id).await.unwrap();
            let told = work.pull(pull("told")).await.unwrap();
            let again: Value = serde_json::from_str(told.items[0].args.get()).unwrap();
            assert_eq!(again["workId"], id, "{way:?}");
            let done = to_raw_value(&()).unwrap();
            work.complete(&told.lease.unwrap(), &told.items[0].work_id, done).await.unwrap();
        }
    });
}

/// The item that tells an end, as it is kept.
async fn telling(store: &Store, function: &str) -> Value {
    let read = async |tx: Tx, start: String| {
        let sql = "SELECT item FROM mainstay_work WHERE item LIKE $1 || '%'";
        tx.query_one(sql, params![start]).await?.get::<String>(0)
    };
    let start = format!("{{\"function\":\"{function}\"");
    serde_json::from_str(&store.read_with(start, read).await.unwrap()).unwrap()
}

/// Checks that the telling of an end inherits what the item has, and begins what the item begins.
fn inherits(told: &Value, id: &str, is_caused: bool) {
    let (correlation, given) = if is_caused { ("corr-1", true) } else { (id, false) };
    assert_eq!((&told["completes"], &told["correlation"]), (&id.into(), &correlation.into()), "{told}");
    let of_event = |value: &'static str| if given { Value::from(value) } else { Value::Null };
    assert_eq!((&told["causation"], &told["tenant"]), (&of_event("evt-1"), &of_event("acme")), "{told}");
    assert_eq!(told["trace"]["traceId"], of_event("4bf92f3577b34da6a3ce929d0e0e4736"), "{told}");
}

#[test]
fn a_telling_by_an_item_of_its_own_has_the_correlation_causation_and_tenant_of_the_item() {
    for_each_store(async |place| {
        let store = open(&place).await;
        for way in WAYS {
            let (work, id) = end(&store, way, &[]).await;
            inherits(&telling(&store, "told").await, &id, true);
            let told = work.pull(pull("told")).await.unwrap();
            let done = to_raw_value(&()).unwrap();
            work.complete(&told.lease.unwrap(), &told.items[0].work_id, done).await.unwrap();
        }
        // Of a pull worker's item, to every kind of function; a mutation that fails at once is told later.
        let (work, _) = begin(&store, &Diary::default()).await;
        for told in ["told", "endpoint", "ended_badly"] {
            for is_caused in [true, false] {
                let new = item("remote", "x").tell(told);
                let new = if is_caused { caused(new) } else { new };
                let id = work.enqueue(new).await.unwrap().work_id;
                let lease = work.pull(pull("remote")).await.unwrap().lease.unwrap();
                work.complete(&lease, &id, to_raw_value(&1).unwrap()).await.unwrap();
                inherits(&telling(&store, told).await, &id, is_caused);
                execute(&store, "DELETE FROM mainstay_work WHERE state = 0").await;
            }
        }
    });
}
