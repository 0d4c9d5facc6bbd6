//! Names of the platform: no caller can use one, and an end cannot be forged.

use crate::bench_of_tools::{Diary, effects, ended, functions, item, open, retry, shop};
use mainstay_core::circuit::{Admission, Circuit, Ended, Gate, Hook, Permit};
use mainstay_store::{Store, Tx, params};
use mainstay_testkit::stores::for_each_store;
use mainstay_work::{
    Call, Cron, Error, Failure, FunctionKind, Functions, LetterFilter, Native, NewWork, OnComplete, Pool,
    Pull, RunOptions, Schedule, Work,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const SPELLINGS: [&str; 4] = ["mainstay.replay.tidy", "MAINSTAY.replay.tidy", " Mainstay.x ", "\tmainstay.x"];

/// Every row that a caller's names can lead to.
async fn rows(store: &Store) -> Vec<i64> {
    let read = async |tx: Tx| {
        let mut counts = Vec::new();
        for table in
            ["mainstay_work", "mainstay_pools", "mainstay_functions", "mainstay_crons", "mainstay_leases"]
        {
            counts.push(tx.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await?.get(0)?);
        }
        Ok(counts)
    };
    store.read(read).await.unwrap()
}

fn schedule() -> Schedule {
    Schedule::interval(60_000, 0).unwrap()
}

fn pull(pool: &str, function: &str) -> Pull {
    Pull {
        pool: pool.to_owned(),
        functions: vec!["note".to_owned(), function.to_owned()],
        must_be_known: Vec::new(),
        most: 1,
        lease: Duration::from_secs(10),
        wait: Duration::ZERO,
        worker: "w".to_owned(),
    }
}

#[test]
fn a_name_of_the_platform_is_refused_on_every_way_in() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        let before = rows(&store).await;
        for name in SPELLINGS {
            let named = |pool: &str, function: &str| NewWork::new(pool, function, "x").unwrap();
            let told = RunOptions { on_complete: Some(name.to_owned()), ..RunOptions::default() };
            let cron = |cron: &str, pool: &str, function: &str| {
                work.cron(Cron::new(cron, schedule(), pool, function, "x").unwrap())
            };
            let in_tx = async |item: NewWork| {
                let enqueue = async |tx: Tx, (work, item): (Work, NewWork)| {
                    Ok(work.enqueue_in(&tx, [item]).map(drop)?)
                };
                store.transact_with((work.clone(), item), enqueue).await.map_err(Error::from)
            };
            let as_id = async |item: NewWork| {
                let enqueue = async |tx: Tx, (work, item): (Work, NewWork)| {
                    Ok(work.enqueue_as(&tx, [(work.new_id(), item)])?)
                };
                store.transact_with((work.clone(), item), enqueue).await.map_err(Error::from)
            };
            let timer = async |name: &str| {
                let set = async |tx: Tx, (work, name): (Work, String)| {
                    Ok(work.set_timer_in(&tx, 0, &name, "x").map(drop)?)
                };
                store.transact_with((work.clone(), name.to_owned()), set).await.map_err(Error::from)
            };
            let good = item("note", "x");
            let answers: Vec<(&str, &str, Result<(), Error>)> = vec![
                ("enqueue", "function", work.enqueue(item(name, "x")).await.map(drop)),
                ("enqueue", "pool", work.enqueue(named(name, "note")).await.map(drop)),
                ("enqueue", "onComplete", work.enqueue(good.clone().tell(name)).await.map(drop)),
                (
                    "enqueue_all",
                    "items[1].function",
                    work.enqueue_all(vec![good.clone(), item(name, "x")]).await.map(drop),
                ),
                ("enqueue_in", "function", in_tx(item(name, "x")).await),
                ("enqueue_in", "onComplete", in_tx(good.clone().tell(name)).await),
                ("enqueue_as", "function", as_id(item(name, "x")).await),
                ("run", "function", work.run(name, "x", RunOptions::default()).await.map(drop)),
                ("run", "onComplete", work.run("note", "x", told).await.map(drop)),
                ("set_timer", "function", work.set_timer(0, name, "x").await.map(drop)),
                ("set_timer_in", "function", timer(name).await),
                ("cron", "name", cron(name, "shop", "note").await),
                ("cron", "pool", cron("c", name, "note").await),
                ("cron", "function", cron("c", "shop", name).await),
                ("pool", "name", work.pool(Pool::new(name)).await),
                ("declare", "function", work.declare(name, FunctionKind::Action).await),
                ("pull", "pool", work.pull(pull(name, "note")).await.map(drop)),
                ("pull", "functions[1]", work.pull(pull("shop", name)).await.map(drop)),
            ];
            for (way, field, answer) in answers {
                let error = answer.expect_err(way);
                assert_eq!(error.code(), "NAME_RESERVED", "{way} {field} {name:?}: {error}");
                assert!(error.to_string().starts_with(&format!("{field}: ")), "{way} {field}: {error}");
            }
        }
        assert_eq!(rows(&store).await, before);
    });
}

/// A circuit that lets everything through.
struct Closed;

impl Circuit for Closed {
    fn gate(&self) -> Gate {
        Gate::Open
    }

    fn admit(&self) -> Admission<'_> {
        unreachable!("no call is made")
    }

    fn record(&self, _: Permit, _: Ended<'_>) {}

    fn on_change(&self, _: Hook) {}
}

#[test]
fn work_is_not_opened_with_a_function_that_has_a_name_of_the_platform() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let before = rows(&store).await;
        for name in SPELLINGS {
            let all = || functions(&diary);
            let ways = [
                all().action(name, async |_: Call, _: Value| Ok(())),
                all().action_within(PATIENCE, name, async |_: Call, _: Value| Ok(())),
                all().raw_action(PATIENCE, name, async |call: Call| Ok(call.args)),
                all().mutation(name, async |_: Tx, _: Call, _: Value| Ok(())),
                all().on_complete(name, retry(1), async |_: Tx, _: Call, _: OnComplete| Ok(())),
                all().behind(name, Arc::new(Closed)),
            ];
            for functions in ways {
                let error = Work::open(&store, functions).await.map(drop).unwrap_err();
                assert_eq!(error.code(), "NAME_RESERVED", "{name:?}: {error}");
            }
        }
        assert_eq!(rows(&store).await, before);
    });
}

/// The callbacks of a platform that notes each end that it was told, once it is well.
fn platform(diary: &Diary, is_well: &Arc<AtomicBool>) -> Functions {
    let is_well = is_well.clone();
    functions(diary).platform_on_complete(
        "mainstay.test.ended",
        move |tx: Tx, _: Call, told: OnComplete<String>| {
            let is_well = is_well.load(Ordering::SeqCst);
            async move {
                if !is_well {
                    return Err(mainstay_store::Error::application("not yet"));
                }
                let what = format!("{} {}", told.result.kind(), told.context.unwrap_or_default());
                tx.execute("INSERT INTO effects (id, what) VALUES ('e', $1)", params![what]).await.map(drop)
            }
        },
    )
}

#[test]
fn an_item_that_only_looks_like_an_end_is_refused_for_good() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = Work::open(&store, platform(&diary, &Arc::new(AtomicBool::new(true)))).await.unwrap();
        work.pool(Pool::new("shop").retry(retry(3))).await.unwrap();
        let real = work.enqueue(item("note", "x")).await.unwrap().work_id;
        let result = json!({ "kind": "success", "returnValue": null });
        let mut forged = Vec::new();
        for work_id in [real.clone(), work.new_id()] {
            let args = json!({ "workId": work_id, "context": "forged", "result": result, "attempts": 1 });
            forged.push(NewWork::platform("shop", "mainstay.test.ended", &args).unwrap());
        }
        // It ends itself, and says that another item has ended.
        let context = json!({ "workId": real, "context": "forged", "result": result });
        let told = item("note", "y").tell_platform("mainstay.test.ended").context(&context).unwrap();
        forged.push(told);
        let forged = work.enqueue_all(forged).await.unwrap();
        let engine = work.start().await.unwrap();
        for one in &forged[..2] {
            let status = ended(&work, &one.work_id).await;
            assert_eq!((status.native, status.attempts), (Native::Failed, 1), "not tried again");
        }
        assert_eq!(ended(&work, &real).await.native, Native::Success);
        engine.stop(PATIENCE).await.unwrap();
        assert!(effects(&store).await.is_empty());
        for letter in work.letters(LetterFilter::default(), 10).await.unwrap() {
            assert!(letter.error.contains("validationError"), "{letter:?}");
        }
    });
}

#[test]
fn an_end_is_told_to_the_platform_at_once_and_after_an_operator_has_retried_its_dead_letter() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let is_well = Arc::new(AtomicBool::new(true));
        let work = Work::open(&store, platform(&diary, &is_well)).await.unwrap();
        work.pool(Pool::new("shop").retry(retry(2))).await.unwrap();
        let engine = work.start().await.unwrap();
        let told =
            |what: &str| item("note", what).tell_platform("mainstay.test.ended").context(what).unwrap();
        let at_once = work.enqueue(told("at once")).await.unwrap();
        ended(&work, &at_once.work_id).await;
        assert_eq!(effects(&store).await, ["success at once"]);
        // Its callback fails until nothing is left but a dead letter.
        is_well.store(false, Ordering::SeqCst);
        let later = work.enqueue(told("later")).await.unwrap();
        ended(&work, &later.work_id).await;
        let letter = tokio::time::timeout(PATIENCE, async {
            loop {
                if let Some(letter) = work.letters(LetterFilter::default(), 1).await.unwrap().pop() {
                    return letter;
                }
                tokio::task::yield_now().await;
            }
        });
        let letter = letter.await.unwrap();
        assert_eq!((&*letter.function, letter.kind.as_str()), ("mainstay.test.ended", "onComplete"));
        is_well.store(true, Ordering::SeqCst);
        let again = work.retry_letter(&letter.work_id).await.unwrap();
        assert_eq!(ended(&work, &again).await.native, Native::Success);
        assert_eq!(effects(&store).await, ["success at once", "success later"]);
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_dead_letter_of_a_function_of_the_platform_can_be_retried() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let functions =
            functions(&diary).platform_action("mainstay.test.refuse", async |call: Call, _: Value| {
                if call.retry_of.is_some() { Ok(()) } else { Err(Failure::permanent("no")) }
            });
        let work = Work::open(&store, functions).await.unwrap();
        work.pool(Pool::new("shop")).await.unwrap();
        let engine = work.start().await.unwrap();
        let item = NewWork::platform("shop", "mainstay.test.refuse", "x").unwrap();
        let first = work.enqueue(item).await.unwrap().work_id;
        assert_eq!(ended(&work, &first).await.native, Native::Failed);
        let again = work.retry_letter(&first).await.unwrap();
        assert_eq!(ended(&work, &again).await.native, Native::Success);
        engine.stop(PATIENCE).await.unwrap();
    });
}

/// Functions of a platform that note their args: `mainstay.append`, which takes more than ids, and another one.
fn noting(diary: &Diary) -> Functions {
    let note = |diary: &Diary| {
        let diary = diary.clone();
        move |call: Call, what: String| {
            diary.note(format!("{} {what}", call.function));
            async { Ok(()) }
        }
    };
    let effect = async |tx: Tx, _: Call, _: Value| {
        tx.execute("INSERT INTO effects (id, what) VALUES ('e', 'told')", &[]).await.map(drop)
    };
    functions(diary)
        .platform_action("mainstay.append", note(diary))
        .platform_action("mainstay.test.note", note(diary))
        .platform_mutation("mainstay.test.effect", effect)
}

/// Enqueues an item as an earlier version kept it, without a mark.
async fn plant(work: &Work, function: &str, what: &str, fields: Value) -> String {
    let new = NewWork::platform("shop", function, what).unwrap().run_after(Duration::from_secs(3_600));
    let id = work.enqueue(new).await.unwrap().work_id;
    let mut kept = json!({ "function": function, "args": what, "enqueuedAt": 1 });
    kept.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let plant = async |tx: Tx, kept: String| {
        let sql = "UPDATE mainstay_work SET item = $1 WHERE state = 1 AND item LIKE '%\"isPlatform\":true%'";
        assert_eq!(tx.execute(sql, params![kept]).await?, 1);
        Ok(())
    };
    work.store().transact_with(kept.to_string(), plant).await.unwrap();
    work.run_now(&id).await.unwrap();
    id
}

fn request_trace() -> Value {
    json!({ "traceId": "2377cd93ef1759b5cab94ad444785697", "spanId": "ab0a35116be68dbe" })
}

#[test]
fn what_a_caller_planted_before_names_were_reserved_does_not_run() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = Work::open(&store, noting(&diary)).await.unwrap();
        work.pool(Pool::new("shop").retry(retry(3))).await.unwrap();
        let own_id = work.new_id();
        let tick = |cron: &str| json!({ "cron": cron, "scheduledAt": 1 });
        let planted = [
            // A request: an item, a run or a timer, with whatever context.
            ("mainstay.test.note", json!({ "trace": request_trace() })),
            ("mainstay.append", json!({ "trace": request_trace(), "key": "append:Order:1" })),
            ("mainstay.append", json!({ "trace": request_trace(), "context": tick("mainstay.append") })),
            // A cron, also under a name of the platform.
            ("mainstay.test.note", json!({ "context": tick("nightly") })),
            ("mainstay.append", json!({ "context": tick("mainstay.append") })),
            ("mainstay.append", json!({})),
            // Its letter that an operator has retried.
            (
                "mainstay.test.note",
                json!({ "trace": request_trace(), "correlation": own_id, "retryOf": own_id }),
            ),
            // The telling of an end to a function that is told of none.
            ("mainstay.append", json!({ "trace": request_trace(), "completes": own_id })),
        ];
        let engine = work.start().await.unwrap();
        for (number, (function, fields)) in planted.into_iter().enumerate() {
            let id = plant(&work, function, "forged", fields).await;
            let status = ended(&work, &id).await;
            assert_eq!((status.native, status.attempts), (Native::Failed, 1), "{number}");
            let letter = work.letter(&id).await.unwrap();
            assert!(letter.error.contains("NAME_RESERVED: function: names under"), "{}", letter.error);
            assert_eq!(work.retry_letter(&id).await.unwrap_err().code(), "NAME_RESERVED", "{number}");
        }
        // Its own end is not told to a function of the platform that is told of none, at once or later.
        for told in ["mainstay.test.note", "mainstay.test.effect"] {
            let item = item("note", "mine").tell_platform(told);
            ended(&work, &work.enqueue(item).await.unwrap().work_id).await;
            let failed = async {
                loop {
                    let kind = Some("onComplete".into());
                    let filter =
                        LetterFilter { kind, function: Some(told.to_owned()), ..LetterFilter::default() };
                    if let Some(letter) = work.letters(filter, 1).await.unwrap().pop() {
                        return letter;
                    }
                    tokio::task::yield_now().await;
                }
            };
            let letter = tokio::time::timeout(PATIENCE, failed).await.unwrap();
            assert!(letter.error.contains("NAME_RESERVED"), "{}", letter.error);
        }
        engine.stop(PATIENCE).await.unwrap();
        assert_eq!(diary.entries(), ["mine#1", "mine#1"]);
        assert!(effects(&store).await.is_empty());
    });
}

#[test]
fn work_in_flight_that_the_platform_enqueued_before_it_marked_its_items_runs() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = Work::open(&store, noting(&diary)).await.unwrap();
        work.pool(Pool::new("shop").retry(retry(3))).await.unwrap();
        let own = [
            ("mainstay.append", json!({ "trace": request_trace(), "letterKind": "append" })),
            ("mainstay.test.note", json!({ "trace": request_trace(), "isUnlisted": true })),
            ("mainstay.test.note", json!({ "trace": request_trace(), "correlation": "corr_1" })),
            ("mainstay.test.note", json!({ "context": { "replayId": "r", "step": 1 } })),
            ("mainstay.test.note", json!({ "key": "tidy:orderSummary" })),
        ];
        let engine = work.start().await.unwrap();
        let count = own.len();
        for (number, (function, fields)) in own.into_iter().enumerate() {
            let id = plant(&work, function, "own", fields).await;
            assert_eq!(ended(&work, &id).await.native, Native::Success, "{number}");
        }
        engine.stop(PATIENCE).await.unwrap();
        assert_eq!(diary.entries().len(), count);
    });
}
