//! Events that are appended as work: items 157 to 163.

use super::support::{PATIENCE, components, events, retries, until};
use mainstay_events::{IdempotencyKey, Log, NewEvent, Status};
use mainstay_flows::delivery::Retries;
use mainstay_flows::delivery::appends::{APPEND_POOL, AppendResult, Appends, NewAppend};
use mainstay_store::{Options, Store, Tx, params};
use mainstay_testkit::stores::for_each_store;
use mainstay_work::{Call, Functions, Native, NewWork, OnComplete, Pool, Work, WorkResult};
use serde_json::json;

struct Bench {
    store: Store,
    log: Log,
    work: Work,
    appends: Appends,
}

impl Bench {
    async fn open(options: Options, retries: Retries) -> Self {
        let store = components(options).open().await.unwrap();
        let table = "CREATE TABLE told (result TEXT NOT NULL, context TEXT NOT NULL)";
        store.transact(async move |tx| tx.execute(table, &[]).await).await.unwrap();
        let log = Log::open(&store).await.unwrap();
        let functions =
            Functions::new().mutation("told", async |tx: Tx, _: Call, told: OnComplete<String>| {
                let result = serde_json::to_string(&told.result).unwrap();
                let sql = "INSERT INTO told (result, context) VALUES ($1, $2)";
                tx.execute(sql, params![result, told.context.unwrap_or_default()]).await
            });
        let work = Work::open(&store, functions).await.unwrap();
        let appends = Appends::open(&log, &work, retries).await.unwrap();
        Self { store, log, work, appends }
    }

    /// Who was told what.
    async fn told(&self) -> Vec<(WorkResult, String)> {
        let read = async |tx: Tx| {
            let rows = tx.query("SELECT result, context FROM told ORDER BY context", &[]).await?;
            rows.iter()
                .map(|row| Ok((row.get::<String>(0)?, row.get(1)?)))
                .collect::<mainstay_store::Result<Vec<_>>>()
        };
        let rows = self.store.read(read).await.unwrap();
        rows.into_iter().map(|(result, context)| (serde_json::from_str(&result).unwrap(), context)).collect()
    }
}

fn reserved(saga: &str, order: &str) -> NewEvent {
    let key = IdempotencyKey::saga_step("OrderFulfillment", saga, "reserveStock").unwrap();
    NewEvent::new("StockReserved", &json!({ "saga": saga })).unwrap().stream("Order", order).idempotent(&key)
}

#[test]
fn b_157_b_158_b_160_an_event_is_appended_as_work_and_whoever_wants_to_know_is_told() {
    for_each_store(async |place| {
        let bench = Bench::open(place.options(), retries(5)).await;
        let new = NewAppend::new(reserved("saga-789", "ord-1")).on_complete("told", "first").unwrap();
        let work_id = bench.appends.append(new.clone()).await.unwrap();
        assert!(bench.log.head().await.unwrap() == 0, "nobody works yet");
        assert!(bench.work.status(&work_id).await.unwrap().is_some());
        let engine = bench.work.start().await.unwrap();
        bench.work.wait_for(&work_id, PATIENCE).await.unwrap();
        let found = events(&bench.log).await;
        assert_eq!(
            (found.len(), found[0].idempotency_key()),
            (1, Some("OrderFulfillment:saga-789:reserveStock"))
        );
        let result = |told: &(WorkResult, String)| match &told.0 {
            WorkResult::Success { return_value } => {
                serde_json::from_str::<AppendResult>(return_value.get()).unwrap()
            }
            other => panic!("{other:?}"),
        };
        let told = bench.told().await;
        let appended = result(&told[0]);
        assert_eq!(json!(appended), json!({ "status": "appended", "eventId": found[0].id(), "version": 1 }));
        // Asked for again, it is the same event.
        let again = bench.appends.append(new.on_complete("told", "second").unwrap()).await.unwrap();
        bench.work.wait_for(&again, PATIENCE).await.unwrap();
        let told = bench.told().await;
        assert_eq!(result(&told[1]), AppendResult { status: Status::Duplicate, ..appended });
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_157_it_is_committed_with_its_caller_or_not_at_all() {
    for_each_store(async |place| {
        let bench = Bench::open(place.options(), retries(5)).await;
        let ask = async |tx: Tx, (appends, fails): (Appends, bool)| {
            let work_id = appends.append_in(&tx, NewAppend::new(reserved("s", "ord-1")))?;
            if fails { Err(mainstay_store::Error::application("no")) } else { Ok(work_id) }
        };
        bench.store.transact_with((bench.appends.clone(), true), ask).await.unwrap_err();
        assert_eq!(bench.work.depth(APPEND_POOL).await.unwrap().pending, 0);
        let work_id = bench.store.transact_with((bench.appends.clone(), false), ask).await.unwrap();
        let engine = bench.work.start().await.unwrap();
        bench.work.wait_for(&work_id, PATIENCE).await.unwrap();
        assert_eq!(bench.log.head().await.unwrap(), 1);
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_159_c_019_events_of_a_stream_are_in_order_and_other_streams_do_not_wait() {
    for_each_store(async |place| {
        let bench = Bench::open(place.options(), retries(1_000)).await;
        let step = |order: &str, number: u64| {
            let key = IdempotencyKey::raw(&format!("{order}:{number}")).unwrap();
            NewEvent::new(format!("Step{number}"), &()).unwrap().stream("Order", order).idempotent(&key)
        };
        // The first of ord-1 waits for a version that somebody else makes; what comes behind it waits too.
        let blocked = NewAppend::new(step("ord-1", 0).expecting(1));
        let first = bench.appends.append(blocked).await.unwrap();
        let key = bench.work.status(&first).await.unwrap().unwrap().key;
        assert_eq!(key.as_deref(), Some("append:Order:ord-1"));
        for number in 1..5 {
            bench.appends.append(NewAppend::new(step("ord-1", number))).await.unwrap();
        }
        let other = bench.appends.append(NewAppend::new(step("ord-2", 0))).await.unwrap();
        let engine = bench.work.start().await.unwrap();
        bench.work.wait_for(&other, PATIENCE).await.unwrap();
        let of = |found: &[mainstay_events::Event], order: &str| -> Vec<String> {
            let of_order = found.iter().filter(|event| event.stream().unwrap().id == order);
            of_order.map(|event| event.event_type().to_owned()).collect()
        };
        assert!(of(&events(&bench.log).await, "ord-1").is_empty());
        bench.log.append(NewEvent::new("Placed", &()).unwrap().stream("Order", "ord-1")).await.unwrap();
        let found = until(async || Some(events(&bench.log).await).filter(|found| found.len() == 7)).await;
        assert_eq!(of(&found, "ord-1"), ["Placed", "Step0", "Step1", "Step2", "Step3", "Step4"]);
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_161_what_fails_once_is_tried_again_and_stored_once() {
    for_each_store(async |place| {
        let bench = Bench::open(place.options(), retries(1_000)).await;
        let new = NewAppend::new(reserved("s", "ord-1").expecting(1)).on_complete("told", "x").unwrap();
        let work_id = bench.appends.append(new).await.unwrap();
        let engine = bench.work.start().await.unwrap();
        until(async || {
            let status = bench.work.status(&work_id).await.unwrap()?;
            (status.attempts >= 1).then_some(())
        })
        .await;
        bench.log.append(NewEvent::new("Placed", &()).unwrap().stream("Order", "ord-1")).await.unwrap();
        let status = bench.work.wait_for(&work_id, PATIENCE).await.unwrap();
        assert!(status.attempts >= 2, "{status:?}");
        assert_eq!(events(&bench.log).await.len(), 2);
        assert!(matches!(bench.told().await[..], [(WorkResult::Success { .. }, _)]));
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_162_c_001_after_five_retries_it_is_a_letter_and_failed_is_told() {
    for_each_store(async |place| {
        let bench = Bench::open(place.options(), retries(5)).await;
        let new = NewAppend::new(reserved("s", "ord-1").expecting(9)).on_complete("told", "x").unwrap();
        let work_id = bench.appends.append(new).await.unwrap();
        let engine = bench.work.start().await.unwrap();
        bench.work.wait_for(&work_id, PATIENCE).await.unwrap();
        let letters = bench.appends.letters(None, 10).await.unwrap();
        assert_eq!(letters.len(), 1);
        assert_eq!((letters[0].kind.as_str(), letters[0].attempts), ("append", 6));
        assert!(letters[0].error.contains("VERSION_CONFLICT"), "{}", letters[0].error);
        assert!(letters[0].args.get().contains("StockReserved"));
        let told = bench.told().await;
        assert!(
            matches!(&told[..], [(WorkResult::Failed { error }, _)] if error.contains("VERSION_CONFLICT")),
            "{told:?}"
        );
        assert_eq!(bench.log.head().await.unwrap(), 0);
        // What cannot change is not tried again.
        bench.log.append(reserved("t", "ord-1")).await.unwrap();
        let other = NewEvent::new("Other", &()).unwrap().stream("Order", "ord-1");
        let other = NewEvent { idempotency_key: reserved("t", "x").idempotency_key, ..other };
        let work_id = bench.appends.append(NewAppend::new(other)).await.unwrap();
        let status = bench.work.wait_for(&work_id, PATIENCE).await.unwrap();
        assert_eq!(status.attempts, 1);
        assert!(bench.appends.letters(None, 10).await.unwrap()[0].error.contains("IDEMPOTENCY_CONFLICT"));
        // One that says so itself is tried another number of times.
        let new = NewAppend::new(reserved("u", "ord-1").expecting(9)).retrying(retries(1));
        let work_id = bench.appends.append(new).await.unwrap();
        assert_eq!(bench.work.wait_for(&work_id, PATIENCE).await.unwrap().attempts, 2);
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_163_what_cannot_be_repeated_or_put_in_order_is_refused_and_nothing_is_enqueued() {
    for_each_store(async |place| {
        let bench = Bench::open(place.options(), retries(5)).await;
        let good = reserved("s", "ord-1");
        let bad = [
            (NewEvent { idempotency_key: None, ..good.clone() }, "FLOW_INVALID"),
            (NewEvent { stream: None, ..good.clone() }, "FLOW_INVALID"),
            (NewEvent { event_type: String::new(), ..good.clone() }, "EVENT_INVALID"),
            (NewEvent::new("Big", &"x".repeat(70_000)).unwrap().stream("Order", "1"), "FLOW_INVALID"),
        ];
        for (event, code) in bad {
            let refused = bench.appends.append(NewAppend::new(event)).await.unwrap_err();
            assert_eq!(refused.code(), code, "{refused}");
        }
        let unknown = NewAppend::new(good.clone()).on_complete("nobody", "x").unwrap();
        assert_eq!(bench.appends.append(unknown).await.unwrap_err().code(), "UNKNOWN_FUNCTION");
        assert_eq!(bench.work.depth(APPEND_POOL).await.unwrap().pending, 0);
        // A stream whose name is as long as can be has a key that fits.
        let long = good.stream("Order", "x".repeat(512));
        bench.appends.append(NewAppend::new(long)).await.unwrap();
        // The pool is the platform's (item 271).
        let pool = Pool::platform().into_iter().find(|pool| pool.name() == APPEND_POOL).unwrap();
        assert_eq!(bench.work.pool_status(APPEND_POOL).await.unwrap().settings, pool);
    });
}

/// Takes the mark of the platform from the items that wait, as an earlier version kept them.
async fn unmark(store: &Store) {
    let unmark = async |tx: Tx| {
        let sql = "UPDATE mainstay_work SET item = replace(item, '\"isPlatform\"', '\"isForgotten\"')";
        tx.execute(sql, &[]).await
    };
    assert!(store.transact(unmark).await.unwrap() > 0);
}

#[test]
fn an_event_that_a_caller_planted_before_names_were_reserved_is_not_appended() {
    for_each_store(async |place| {
        let bench = Bench::open(place.options(), retries(5)).await;
        let planted =
            NewWork::platform(APPEND_POOL, "mainstay.append", &reserved("forged", "ord-1")).unwrap();
        let planted = bench.work.enqueue(planted.key("append:Order:ord-1")).await.unwrap().work_id;
        let legitimate = bench.appends.append(NewAppend::new(reserved("saga-1", "ord-1"))).await.unwrap();
        unmark(&bench.store).await;
        let engine = bench.work.start().await.unwrap();
        let failed = bench.work.wait_for(&planted, PATIENCE).await.unwrap();
        assert_eq!((failed.native, failed.attempts), (Native::Failed, 1));
        let done = bench.work.wait_for(&legitimate, PATIENCE).await.unwrap();
        assert_eq!(done.native, Native::Success);
        let found = events(&bench.log).await;
        let keys: Vec<_> = found.iter().map(|event| event.idempotency_key().unwrap()).collect();
        assert_eq!(keys, ["OrderFulfillment:saga-1:reserveStock"]);
        let refused = bench.work.retry_letter(&planted).await.unwrap_err();
        assert_eq!(refused.code(), "NAME_RESERVED");
        engine.stop(PATIENCE).await.unwrap();
    });
}
