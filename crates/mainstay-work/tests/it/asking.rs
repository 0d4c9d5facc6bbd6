//! Enqueueing: what is taken, what is refused, and what is done once.

use crate::bench_of_tools::{Diary, effects, ended, item, open, retry, shop};
use mainstay_store::{Tx, params};
use mainstay_testkit::stores::for_each_store;
use mainstay_work::{
    Call, Canceled, Cron, Error, Failure, Functions, MAX_BATCH, Native, NewWork, OnComplete, Pool,
    RunOptions, Schedule, State, Work, WorkFilter,
};
use serde_json::value::RawValue;
use std::time::Duration;

#[test]
fn bad_input_is_refused_with_a_code_and_enqueues_nothing() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        let refused = [
            (NewWork::new("nowhere", "note", "x").unwrap(), "UNKNOWN_POOL"),
            (item("nobody", "x"), "UNKNOWN_FUNCTION"),
            (item("note", "x").on_complete("nobody", "x").unwrap(), "UNKNOWN_FUNCTION"),
            (NewWork::new("shop", "note", &7).unwrap(), "WORK_ARGS_INVALID"),
            (item("note", "x").key("k".repeat(513)), "WORK_INVALID"),
            (item("note", "x").key("a\0b"), "WORK_INVALID"),
            (item("note", "x").run_at_ms(-1), "WORK_INVALID"),
            (item("note", &"x".repeat(70_000)), "WORK_TOO_LARGE"),
            (NewWork::new("no pool!", "note", "x").unwrap(), "WORK_INVALID"),
        ];
        for (new, code) in refused {
            assert_eq!(work.enqueue(new).await.unwrap_err().code(), code);
        }
        let many = vec![item("note", "x"); MAX_BATCH + 1];
        assert_eq!(work.enqueue_all(many).await.unwrap_err().code(), "WORK_TOO_MANY");
        assert_eq!(work.enqueue_all(Vec::new()).await.unwrap_err().code(), "WORK_INVALID");
        let mixed = vec![item("note", "good"), item("nobody", "bad")];
        assert_eq!(work.enqueue_all(mixed).await.unwrap_err().code(), "UNKNOWN_FUNCTION");
        assert!(Schedule::cron("0 0 30 2 *", "UTC").is_err(), "a cron that never fires");
        assert_eq!(work.pool(Pool::new("x").max_parallelism(0)).await.unwrap_err().code(), "WORK_INVALID");
        assert_eq!(work.depth("shop").await.unwrap().pending, 0);
    });
}

/// Values that no reader could take later, and what is said of them.
fn unreadable() -> [(Box<RawValue>, &'static str); 4] {
    let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
    let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
    [
        (raw(&deep), "nested deeper"),
        (raw(r#"{"\u0000":1}"#), "NUL"),
        (raw("1e999"), "no double"),
        (raw(r#""\ud800""#), "surrogate"),
    ]
}

#[test]
fn values_that_no_reader_could_take_are_refused_wherever_they_come_in() {
    for_each_store(async |place| {
        let store = open(&place).await;
        let functions = Functions::new()
            .action("note", async |_: Call, _: Box<RawValue>| Ok::<_, Failure>(()))
            .action("answer", async |_: Call, which: usize| Ok::<_, Failure>(unreadable()[which].0.clone()))
            .raw_action(Duration::from_secs(5), "raw", async |call: Call| {
                let which: usize = serde_json::from_str(call.args.get()).unwrap();
                Ok(unreadable()[which].0.clone())
            })
            .mutation("decide", async |_: Tx, _: Call, which: usize| Ok(unreadable()[which].0.clone()));
        let work = Work::open(&store, functions).await.unwrap();
        work.pool(Pool::new("shop").retry(retry(1))).await.unwrap();
        for (value, said) in &unreadable() {
            let new = |args: &RawValue| NewWork::new("shop", "note", args);
            let every = Schedule::interval(60_000, 0).unwrap();
            for refused in [
                work.enqueue(new(value).unwrap()).await.map(drop),
                work.enqueue(new(RawValue::NULL).unwrap().context(value).unwrap()).await.map(drop),
                work.cron(Cron::new("nightly", every.clone(), "shop", "note", value).unwrap()).await,
            ] {
                let error = refused.unwrap_err();
                assert!(error.code() == "WORK_INVALID" && error.to_string().contains(said), "{error}");
            }
        }
        assert_eq!((work.depth("shop").await.unwrap().pending, work.crons().await.unwrap().len()), (0, 0));

        let engine = work.start().await.unwrap();
        for (which, (_, said)) in unreadable().iter().enumerate() {
            for function in ["answer", "raw", "decide"] {
                let id = work.enqueue(NewWork::new("shop", function, &which).unwrap()).await.unwrap().work_id;
                let status = ended(&work, &id).await;
                assert_eq!(status.native, Native::Failed, "{function} {said}");
                assert!(status.last_error.unwrap().contains(said), "{function} {said}");
            }
        }
        engine.stop(Duration::from_secs(20)).await.unwrap();
    });
}

#[test]
fn a_chain_of_completions_without_end_is_cut() {
    for_each_store(async |place| {
        let store = open(&place).await;
        let shared: std::sync::Arc<std::sync::OnceLock<Work>> = std::sync::Arc::default();
        let own = shared.clone();
        let functions = Functions::new()
            .action("step", async |_: Call, _: serde_json::Value| Ok(()))
            .mutation("again", move |tx: Tx, _: Call, _: OnComplete| {
                let work = own.get().unwrap().clone();
                async move {
                    let next = NewWork::new("shop", "step", "x")?.on_complete("again", "x")?;
                    work.enqueue_in(&tx, [next])?;
                    Ok(())
                }
            });
        let work = Work::open(&store, functions).await.unwrap();
        assert!(shared.set(work.clone()).is_ok());
        work.pool(Pool::new("shop").retry(retry(1))).await.unwrap();
        let engine = work.start().await.unwrap();
        work.enqueue(NewWork::new("shop", "step", "x").unwrap().on_complete("again", "x").unwrap())
            .await
            .unwrap();
        let cut = async {
            loop {
                if let Some(letter) = work.letters(Default::default(), 1).await.unwrap().pop() {
                    return letter;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let letter = tokio::time::timeout(Duration::from_secs(20), cut).await.unwrap();
        assert_eq!(letter.kind, "onComplete");
        assert!(letter.error.contains("WORK_RECURSION"), "{}", letter.error);
        engine.stop(Duration::from_secs(5)).await.unwrap();
    });
}

#[test]
fn work_is_enqueued_with_its_authors_writes_or_not_at_all() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        let undone = store.transact_with(work.clone(), async |tx, work| {
            tx.execute("INSERT INTO effects (id, what) VALUES ('1', 'undone')", &[]).await?;
            work.enqueue_in(&tx, [item("note", "undone")])?;
            Err::<(), _>(mainstay_store::Error::application("no"))
        });
        undone.await.unwrap_err();
        assert_eq!((work.depth("shop").await.unwrap().pending, effects(&store).await.len()), (0, 0));
        let done = store.transact_with(work.clone(), async |tx, work| {
            tx.execute("INSERT INTO effects (id, what) VALUES ($1, $2)", params!["1", "done"]).await?;
            work.enqueue_in(&tx, [item("note", "done")]).map_err(Into::into)
        });
        let receipt = done.await.unwrap();
        assert_eq!(receipt.get().unwrap()[0].work_id, receipt.work_ids()[0]);
        let status = work.status(&receipt.work_ids()[0]).await.unwrap().unwrap();
        assert_eq!((status.state, status.native), (State::Pending, Native::Ready));
        assert_eq!(work.depth("shop").await.unwrap().pending, 1);
    });
}

#[test]
fn a_lane_of_a_transaction_that_was_undone_is_made_again() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        let undone = store.transact_with(work.clone(), async |tx, work| {
            work.enqueue_in(&tx, [item("note", "a"), item("note", "b")])?;
            // Refused at the very end, when the lane has been made and found again.
            work.enqueue_in(&tx, [item("nobody", "c")])?;
            Ok(())
        });
        assert_eq!(Error::from(undone.await.unwrap_err()).code(), "UNKNOWN_FUNCTION");
        let id = work.enqueue(item("note", "d")).await.unwrap().work_id;
        let engine = work.start().await.unwrap();
        assert_eq!(ended(&work, &id).await.native, Native::Success);
        engine.stop(Duration::from_secs(5)).await.unwrap();
    });
}

/// A tenant must not see or block the keys of another (decision C49).
#[test]
fn c_049_a_dedupe_key_is_unique_within_a_tenant() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        let once = |tenant: Option<&str>| {
            let item = item("note", "x").dedupe("once", Duration::from_secs(60));
            match tenant {
                Some(tenant) => item.tenant(tenant),
                None => item,
            }
        };
        let whose = [None, Some("acme"), Some("globex")];
        let first = work.enqueue_all(whose.iter().map(|tenant| once(*tenant)).collect()).await.unwrap();
        assert!(first.iter().all(|one| !one.is_duplicate), "{first:?}");
        for (tenant, first) in whose.iter().zip(&first) {
            let again = work.enqueue(once(*tenant)).await.unwrap();
            assert_eq!((&again.work_id, again.is_duplicate), (&first.work_id, true), "{tenant:?}");
        }
        let both = work.enqueue_all(vec![once(Some("initech")), once(Some("initech"))]).await.unwrap();
        assert_eq!((both[0].is_duplicate, both[1].is_duplicate), (false, true));
        assert_eq!(work.depth("shop").await.unwrap().pending, 4);
        let over = |tenant: &str| once(Some(tenant)).dedupe("over", Duration::ZERO);
        for _ in 0..2 {
            assert!(!work.enqueue(over("acme")).await.unwrap().is_duplicate, "its window is over");
        }
    });
}

#[test]
fn a_dedupe_key_enqueues_once_in_its_window() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        let once = |what: &str| item("note", what).dedupe("once", Duration::from_secs(60));
        let first = work.enqueue(once("a")).await.unwrap();
        assert!(!first.is_duplicate);
        let again = work.enqueue_all(vec![once("b"), once("c"), item("note", "d")]).await.unwrap();
        assert!(again[0].is_duplicate && again[1].is_duplicate && !again[2].is_duplicate);
        assert_eq!(again[0].work_id, first.work_id);
        assert_eq!(work.depth("shop").await.unwrap().pending, 2);
        let over = item("note", "e").dedupe("over", Duration::ZERO);
        assert!(!work.enqueue(over.clone()).await.unwrap().is_duplicate);
        assert!(!work.enqueue(over).await.unwrap().is_duplicate, "its window is over");
    });
}

#[test]
fn b_266_an_unknown_item_is_not_found_and_a_pending_one_tells_its_attempts() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        for unknown in ["work-123", "", "work_01890a5d-ac96-774b-bcce-b302099a8057"] {
            assert!(work.status(unknown).await.unwrap().is_none(), "{unknown}");
        }
        let id = work.enqueue(item("note", "x")).await.unwrap().work_id;
        let status = work.status(&id).await.unwrap().unwrap();
        assert_eq!((status.state, status.attempts), (State::Pending, 0));
        assert_eq!(work.cancel("work-123").await.unwrap_err().code(), "WORK_NOT_FOUND");
    });
}

#[test]
fn b_268_pending_items_are_listed_and_runs_are_found() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        work.enqueue_all((0..60).map(|number| item("note", &number.to_string())).collect()).await.unwrap();
        let listed = work.pending("shop", 50).await.unwrap();
        assert_eq!(listed.len(), 50);
        assert_eq!(listed[0].function, "note");
        let run = work.run("note", "x", RunOptions::default()).await.unwrap();
        assert_eq!(work.status(&run).await.unwrap().unwrap().pool, "retrier");
        assert_eq!(
            work.cancel_all(WorkFilter { pool: "shop".into(), ..Default::default() }).await.unwrap(),
            60
        );
        assert_eq!(work.depth("shop").await.unwrap().pending, 0);
    });
}

#[test]
fn b_265_the_retrier_tries_actions_max_failures_times_again() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        let engine = work.start().await.unwrap();
        let options = RunOptions {
            max_failures: 2,
            initial_backoff_ms: 1,
            base: 1.0,
            on_complete: Some("ended".to_owned()),
            context: Some(serde_json::value::to_raw_value("ctx").unwrap()),
            ..RunOptions::default()
        };
        let run = work.run("fail", "x", options.clone()).await.unwrap();
        let status = ended(&work, &run).await;
        assert_eq!((status.native, status.attempts), (Native::Failed, 3));
        assert_eq!(effects(&store).await, ["failed \"ctx\""]);
        let good = work.run("flaky", "x", options).await.unwrap();
        assert_eq!(ended(&work, &good).await.native, Native::Success);
        let mutation = work.run("effect", "x", RunOptions::default()).await.unwrap_err();
        assert!(matches!(mutation, Error::Invalid { .. }), "{mutation}");
        assert!(work.forget(&run).await.unwrap());
        assert!(work.status(&run).await.unwrap().is_none());
        engine.stop(Duration::from_secs(5)).await.unwrap();
    });
}

#[test]
fn a_running_item_is_told_to_stop() {
    for_each_store(async |place| {
        let store = open(&place).await;
        let started = std::sync::Arc::new(tokio::sync::Notify::new());
        let telling = started.clone();
        let functions = Functions::new().action("wait", move |_: Call, _: String| {
            telling.notify_one();
            std::future::pending::<Result<(), Failure>>()
        });
        let work = Work::open(&store, functions).await.unwrap();
        work.pool(Pool::new("shop")).await.unwrap();
        let engine = work.start().await.unwrap();
        let id = work.enqueue(item("wait", "x")).await.unwrap().work_id;
        started.notified().await;
        assert_eq!(work.status(&id).await.unwrap().unwrap().state, State::Running);
        assert_eq!(work.cancel(&id).await.unwrap(), Canceled::Asked);
        assert_eq!(ended(&work, &id).await.native, Native::Canceled);
        assert_eq!(work.cancel(&id).await.unwrap(), Canceled::TooLate);
        engine.stop(Duration::from_secs(5)).await.unwrap();
    });
}

#[test]
fn crons_are_declared_listed_paused_and_removed() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        let every = Schedule::interval(1, 0).unwrap();
        let cron = Cron::new("often", every, "shop", "note", "tick").unwrap().key("often");
        work.cron(cron.clone()).await.unwrap();
        work.cron(cron).await.unwrap();
        let crons = work.crons().await.unwrap();
        assert_eq!((crons.len(), crons[0].name.as_str(), crons[0].fired), (1, "often", 0));
        let engine = work.start().await.unwrap();
        let ticking = async {
            while diary.entries().len() < 3 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ticking).await.unwrap();
        work.pause_cron("often", true).await.unwrap();
        assert!(work.crons().await.unwrap()[0].is_paused);
        work.remove_cron("often").await.unwrap();
        assert_eq!(work.remove_cron("often").await.unwrap_err().code(), "UNKNOWN_CRON");
        engine.stop(Duration::from_secs(5)).await.unwrap();
    });
}

#[test]
fn a_timer_is_set_in_a_transaction_and_cancelled() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        let id = store
            .transact_with(work.clone(), async |tx, work| {
                let at = tx.now_ms().await? + 3_600_000;
                work.set_timer_in(&tx, at, "note", "late").map_err(Into::into)
            })
            .await
            .unwrap();
        assert_eq!(work.status(&id).await.unwrap().unwrap().native, Native::Delayed);
        assert_eq!(work.cancel(&id).await.unwrap(), Canceled::AtOnce);
        let now = store.read(async |tx| tx.now_ms().await).await.unwrap();
        let soon = work.set_timer(now, "note", "now").await.unwrap();
        let engine = work.start().await.unwrap();
        ended(&work, &soon).await;
        assert_eq!(diary.entries(), ["now#1"]);
        engine.stop(Duration::from_secs(5)).await.unwrap();
    });
}
