//! What the platform's own parts ask of pools and of the retrier.

use crate::bench_of_tools::{ended, open, retry};
use mainstay_core::trace::TraceContext;
use mainstay_store::{Tx, params};
use mainstay_testkit::stores::for_each_store;
use mainstay_work::{
    Call, Failure, Functions, LetterFilter, LetterStatus, NewWork, OnComplete, Pool, RunOptions, State, Work,
};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

const PATIENCE: Duration = Duration::from_secs(20);

fn settings(name: &str) -> Value {
    let pool = Pool::platform().into_iter().find(|pool| pool.name() == name).unwrap();
    serde_json::to_value(pool).unwrap()
}

#[test]
fn b_196_replaying_has_a_pool_of_its_own_that_leaves_room_for_what_is_live() {
    let (replay, live) = (settings("eventReplayPool"), settings("projectionPool"));
    assert!(replay["maxParallelism"].as_u64().unwrap() * 2 <= live["maxParallelism"].as_u64().unwrap());
    assert_eq!((&replay["maxParallelism"], &replay["logLevel"]), (&json!(5), &json!("INFO")));
    let expected = json!({"maxAttempts": 5, "initialBackoffMs": 1000, "base": 2.0, "maxBackoffMs": 30000});
    assert_eq!(replay["retry"], expected);
}

#[test]
fn b_271_the_platforms_pools_have_their_numbers() {
    let numbers = |name: &str| {
        let pool = settings(name);
        let retry = &pool["retry"];
        [&pool["maxParallelism"], &retry["maxAttempts"], &retry["initialBackoffMs"]]
            .map(|it| it.as_u64().unwrap())
    };
    let expected = [
        ("projectionPool", [10, 3, 250]),
        ("dcbRetryPool", [10, 1, 100]),
        ("eventReplayPool", [5, 5, 1000]),
        ("eventAppendPool", [10, 6, 100]),
        ("publicationPool", [10, 6, 100]),
        ("sagaPool", [10, 3, 250]),
        ("fanoutPool", [10, 3, 250]),
    ];
    for (name, expected) in expected {
        assert_eq!(numbers(name), expected, "{name}");
    }
    assert_eq!(Pool::platform().len(), expected.len());
}

/// The letter of a projection is written by its `onComplete`; the pool tells what is needed for that, and in order.
#[test]
fn b_215_a_projection_job_whose_retries_are_used_up_is_told_with_its_event_and_projection() {
    for_each_store(async |place| {
        let store = open(&place).await;
        let functions = Functions::new()
            .action("project", async |_: Call, is_bad: bool| match is_bad {
                true => Err(Failure::retryable("no such column")),
                false => Ok(()),
            })
            .mutation("projected", async |tx: Tx, _: Call, told: OnComplete<Value>| {
                let context = told.context.unwrap_or_default();
                let what =
                    format!("{} {} {}", context["projectionName"], context["eventId"], told.result.kind());
                tx.execute("INSERT INTO effects (id, what) VALUES ($1, $2)", params![&told.work_id, what])
                    .await
            });
        let work = Work::open(&store, functions).await.unwrap();
        work.pool(Pool::new("projectionPool").retry(retry(3))).await.unwrap();
        let job = |event: &str, is_bad: bool| {
            let context = json!({"eventId": event, "projectionName": "orderSummary"});
            let job = NewWork::new("projectionPool", "project", &is_bad).unwrap().key("order-1");
            job.on_complete("projected", &context).unwrap()
        };
        let ids = work.enqueue_all(vec![job("e1", true), job("e2", false)]).await.unwrap();
        let engine = work.start().await.unwrap();
        assert_eq!(ended(&work, &ids[0].work_id).await.attempts, 3);
        assert_eq!(ended(&work, &ids[1].work_id).await.attempts, 1);
        let told = crate::bench_of_tools::effects(&store).await;
        assert_eq!(told, ["\"orderSummary\" \"e1\" failed", "\"orderSummary\" \"e2\" success"]);
        let letter = work.letter(&ids[0].work_id).await.unwrap();
        assert_eq!((letter.status, letter.key.as_deref()), (LetterStatus::Pending, Some("order-1")));
        let context: Value = serde_json::from_str(letter.context.unwrap().get()).unwrap();
        assert_eq!(context, json!({"eventId": "e1", "projectionName": "orderSummary"}));
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_220_a_retry_through_the_retrier_carries_the_trace_and_is_found_by_its_run() {
    for_each_store(async |place| {
        let store = open(&place).await;
        let seen: Arc<Mutex<Option<TraceContext>>> = Arc::default();
        let seeing = seen.clone();
        let functions = Functions::new().action("send", move |call: Call, (): ()| {
            *seeing.lock().unwrap() = call.trace;
            std::future::ready(Ok::<_, Failure>(()))
        });
        let work = Work::open(&store, functions).await.unwrap();
        let engine = work.start().await.unwrap();
        let trace = TraceContext {
            trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
            span_id: "00f067aa0ba902b7".to_owned(),
            parent_span_id: None,
        };
        let options = RunOptions {
            max_failures: 5,
            initial_backoff_ms: 1_000,
            base: 2.0,
            trace: Some(trace.clone()),
            ..RunOptions::default()
        };
        let run = work.run("send", &(), options).await.unwrap();
        let status = ended(&work, &run).await;
        assert_eq!((status.work_id.as_str(), status.state), (run.as_str(), State::Completed));
        let step = seen.lock().unwrap().clone().unwrap();
        assert_eq!(step.trace_id, trace.trace_id);
        assert_eq!(
            step.parent_span_id,
            Some(trace.span_id),
            "the execution is a step below what asked for it"
        );
        for unknown in
            [work.retry_letter(&run).await.unwrap_err(), work.letter("nonsense").await.unwrap_err()]
        {
            assert_eq!(unknown.code(), "DEAD_LETTER_NOT_FOUND");
            assert!(unknown.to_string().starts_with("Dead letter not found"), "{unknown}");
        }
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_262_the_retrier_runs_actions_only() {
    for_each_store(async |place| {
        let store = open(&place).await;
        let functions = Functions::new()
            .action("call", async |_: Call, (): ()| Ok::<_, Failure>(()))
            .mutation("write", async |_: Tx, _: Call, (): ()| Ok(()));
        let work = Work::open(&store, functions).await.unwrap();
        let run = async |function: &str| work.run(function, &(), RunOptions::default()).await;
        assert!(run("call").await.is_ok());
        let refused = run("write").await.unwrap_err();
        assert_eq!(refused.code(), "WORK_INVALID");
        assert!(refused.to_string().contains("actions only"), "{refused}");
        assert_eq!(run("nobody").await.unwrap_err().code(), "UNKNOWN_FUNCTION");
        assert_eq!(work.depth("retrier").await.unwrap().pending, 1);
    });
}

#[test]
fn b_269_a_run_tells_where_it_stands_how_often_it_was_tried_and_what_failed() {
    for_each_store(async |place| {
        let store = open(&place).await;
        let (begun, may_end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (beginning, ending) = (begun.clone(), may_end.clone());
        let functions = Functions::new()
            .action("wait", move |_: Call, (): ()| {
                let (begun, may_end) = (beginning.clone(), ending.clone());
                async move {
                    begun.notify_one();
                    may_end.notified().await;
                    Ok::<_, Failure>(())
                }
            })
            .action("fail", async |_: Call, (): ()| Err::<(), _>(Failure::retryable("no answer")));
        let work = Work::open(&store, functions).await.unwrap();
        let run = async |function: &str, max_failures: u32| {
            let context = json!({"eventId": "e1", "projectionName": "orderSummary"});
            let context = Some(serde_json::value::to_raw_value(&context).unwrap());
            let options = RunOptions {
                max_failures,
                initial_backoff_ms: 1,
                base: 1.0,
                context,
                ..RunOptions::default()
            };
            work.run(function, &(), options).await.unwrap()
        };
        let (waits, fails) = (run("wait", 1).await, run("fail", 2).await);
        let state = async |id: &str| work.status(id).await.unwrap().unwrap().state;
        assert_eq!(state(&waits).await, State::Pending);
        let engine = work.start().await.unwrap();
        begun.notified().await;
        assert_eq!(state(&waits).await, State::Running);
        may_end.notify_one();
        assert_eq!(ended(&work, &waits).await.state, State::Completed);
        let failed = ended(&work, &fails).await;
        assert_eq!((failed.state, failed.attempts), (State::Failed, 3));
        assert_eq!(failed.last_error.as_deref(), Some("temporaryServiceUnavailable: no answer"));
        let context: Value = serde_json::from_str(failed.context.unwrap().get()).unwrap();
        assert_eq!(context["projectionName"], "orderSummary");
        assert_eq!(work.letters(LetterFilter::default(), 10).await.unwrap().len(), 1);
        engine.stop(PATIENCE).await.unwrap();
    });
}
