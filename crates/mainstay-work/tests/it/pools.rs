//! Pools: what runs, how often, and what is kept of it.

use crate::bench_of_tools::{Diary, effects, ended, functions, item, open, retry, shop};
use mainstay_store::Tx;
use mainstay_testkit::stores::for_each_store;
use mainstay_work::inbox::Kind;
use mainstay_work::{
    Call, Canceled, Failure, Functions, Letter, LetterFilter, ListQuery, Native, NewWork, OnComplete, Pool,
    State, Work, WorkFilter, WorkResult,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// The first letter, once there is one.
async fn letter(work: &Work, filter: LetterFilter) -> Letter {
    let first = async {
        loop {
            if let Some(letter) = work.letters(filter.clone(), 10).await.unwrap().pop() {
                return letter;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), first).await.unwrap()
}

#[test]
fn b_148_results_are_success_failed_or_canceled() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        let waiting =
            work.enqueue(item("note", "never").run_after(Duration::from_secs(3_600))).await.unwrap();
        let engine = work.start().await.unwrap();
        let good = work.enqueue(item("note", "hello")).await.unwrap();
        let bad = work.enqueue(item("fail", "x")).await.unwrap();
        let good = ended(&work, &good.work_id).await;
        assert_eq!((good.state, good.native, good.attempts), (State::Completed, Native::Success, 1));
        let json = serde_json::to_value(good.result.unwrap()).unwrap();
        assert_eq!(json, serde_json::json!({"kind": "success", "returnValue": "hello"}));
        let bad = ended(&work, &bad.work_id).await;
        assert_eq!((bad.state, bad.attempts), (State::Failed, 3));
        assert!(matches!(bad.result, Some(WorkResult::Failed { error }) if error.contains("always")));
        assert_eq!(work.cancel(&waiting.work_id).await.unwrap(), Canceled::AtOnce);
        let canceled = ended(&work, &waiting.work_id).await;
        assert_eq!(canceled.native, Native::Canceled);
        assert_eq!(diary.entries(), ["hello#1"]);
        engine.stop(Duration::from_secs(5)).await.unwrap();
    });
}

#[test]
fn what_fails_with_a_text_that_no_database_keeps_ends_all_the_same() {
    for_each_store(async |place| {
        let store = open(&place).await;
        let echo = async |_: Call, what: String| Err::<(), _>(Failure::permanent(what.replace('~', "\0")));
        let work = Work::open(&store, Functions::new().action("echo", echo)).await.unwrap();
        work.pool(Pool::new("shop")).await.unwrap();
        let engine = work.start().await.unwrap();
        for what in ["a ~ b", "c"] {
            let id = work.enqueue(item("echo", what)).await.unwrap().work_id;
            assert_eq!(ended(&work, &id).await.state, State::Failed);
        }
        let errors = work.letters(LetterFilter::default(), 10).await.unwrap();
        assert!(errors.iter().any(|one| format!("{one:?}").contains("a \u{fffd} b")), "{errors:?}");
        engine.stop(Duration::from_secs(5)).await.unwrap();
    });
}

#[test]
fn b_150_on_complete_is_told_success_failure_and_cancel_alike() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        let told = |new: NewWork, context: &str| new.on_complete("ended", context).unwrap();
        let waiting = told(item("note", "never").run_after(Duration::from_secs(3_600)), "c");
        let items = vec![
            told(item("note", "a"), "a"),
            told(item("refuse", "b"), "b"),
            waiting,
            told(item("effect", "effect"), "d"),
            told(item("failing_effect", "e"), "e"),
            told(item("panic", "f"), "f"),
            told(item("hang", "g"), "g"),
        ];
        let ids: Vec<String> =
            work.enqueue_all(items).await.unwrap().into_iter().map(|one| one.work_id).collect();
        let engine = work.start().await.unwrap();
        work.cancel(&ids[2]).await.unwrap();
        for id in &ids {
            ended(&work, id).await;
        }
        let expected = [
            "canceled \"c\"",
            "effect",
            "failed \"b\"",
            "failed \"e\"",
            "failed \"f\"",
            "failed \"g\"",
            "success \"a\"",
            "success \"d\"",
        ];
        assert_eq!(effects(&store).await, expected);
        let letters = work.letters(LetterFilter::default(), 100).await.unwrap();
        let mut dead: Vec<&str> = letters.iter().map(|letter| letter.function.as_str()).collect();
        dead.sort_unstable();
        assert_eq!(dead, ["failing_effect", "hang", "panic", "refuse"]);
        engine.stop(Duration::from_secs(5)).await.unwrap();
    });
}

/// Tells ends to the diary; until `is_let`, an execution does not end by itself.
fn teller(diary: &Diary, is_let: &Arc<AtomicBool>, began: &Arc<Notify>) -> Functions {
    let (told, is_let, began) = (diary.clone(), is_let.clone(), began.clone());
    functions(diary).action("tell", move |_: Call, end: OnComplete<String>| {
        let (told, is_let, began) = (told.clone(), is_let.clone(), began.clone());
        async move {
            if !is_let.load(Ordering::SeqCst) {
                began.notify_one();
                std::future::pending::<()>().await;
            }
            told.note(format!("{} {}", end.result.kind(), end.context.unwrap_or_default()));
            Ok(())
        }
    })
}

#[test]
fn b_150_a_telling_that_is_cancelled_is_a_letter_from_which_the_end_is_told() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let (is_let, began) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
        let work = Work::open(&store, teller(&diary, &is_let, &began)).await.unwrap();
        work.pool(Pool::new("shop").retry(retry(1))).await.unwrap();
        let cancel_tellings = async || {
            let filter = WorkFilter { pool: "shop".to_owned(), function: Some("tell".to_owned()), key: None };
            work.cancel_all(filter).await.unwrap()
        };
        for (function, end) in [("effect", "success"), ("refuse", "failed")] {
            // Running: the engine asks the telling to stop.
            let engine = work.start().await.unwrap();
            let new = item(function, "running").on_complete("tell", "running").unwrap();
            ended(&work, &work.enqueue(new).await.unwrap().work_id).await;
            began.notified().await;
            let running = ListQuery { states: Native::named("running").unwrap(), ..ListQuery::default() };
            let telling = work.list(running, 10).await.unwrap().work.remove(0).status.work_id;
            assert_eq!(work.cancel(&telling).await.unwrap(), Canceled::Asked);
            ended(&work, &telling).await;
            // Waiting: the pool is paused when the item ends.
            let new = item("note", "never").run_after(Duration::from_secs(3_600));
            let new = new.on_complete("tell", "waiting").unwrap();
            let canceled = work.enqueue(new).await.unwrap().work_id;
            work.pause("shop").await.unwrap();
            work.cancel(&canceled).await.unwrap();
            assert_eq!(cancel_tellings().await, 1);
            work.resume("shop").await.unwrap();
            is_let.store(true, Ordering::SeqCst);
            let kind = Some(Kind::OnComplete);
            let letters = LetterFilter { kind, ..LetterFilter::default() };
            let found = work.letters(letters.clone(), 10).await.unwrap();
            assert_eq!(found.len(), 2, "{found:?}");
            for letter in found {
                assert!(letter.error.contains("canceled before the end was told"), "{}", letter.error);
                ended(&work, &work.retry_letter(&letter.work_id).await.unwrap()).await;
            }
            let mut told = diary.entries();
            told.sort_unstable();
            assert_eq!(told, ["canceled waiting".to_owned(), format!("{end} running")]);
            assert!(work.letters(letters, 10).await.unwrap().is_empty());
            engine.stop(Duration::from_secs(5)).await.unwrap();
            is_let.store(false, Ordering::SeqCst);
            diary.clear();
        }
    });
}

#[test]
fn b_150_an_end_that_no_item_has_is_refused() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let told = diary.clone();
        let functions = functions(&diary).on_complete(
            "caught",
            retry(3),
            move |_: Tx, _: Call, end: OnComplete<String>| {
                told.note(format!("{} {:?} {:?}", end.result.kind(), end.context, end.retry_of));
                async { Ok(()) }
            },
        );
        let work = Work::open(&store, functions).await.unwrap();
        work.pool(Pool::new("shop").retry(retry(3))).await.unwrap();
        let engine = work.start().await.unwrap();
        let real = work.enqueue(item("note", "a")).await.unwrap().work_id;
        ended(&work, &real).await;
        // The same arguments as the engine would give, for an item that exists and for one that does not.
        for of in [real.as_str(), "019a0000-0000-7000-8000-000000000000"] {
            let args = serde_json::json!({
                "workId": of, "context": "x", "result": { "kind": "success", "returnValue": "paid" },
                "attempts": 1, "errors": [], "retryOf": real,
            });
            let forged = work.enqueue(NewWork::new("shop", "caught", &args).unwrap()).await.unwrap().work_id;
            let status = ended(&work, &forged).await;
            assert_eq!((status.native, status.attempts), (Native::Failed, 1));
        }
        assert_eq!(diary.entries(), ["a#1"]);
        engine.stop(Duration::from_secs(5)).await.unwrap();
    });
}

#[test]
fn an_on_complete_that_fails_is_tried_by_itself_and_becomes_a_letter() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        let engine = work.start().await.unwrap();
        let told = work.enqueue(item("note", "a").on_complete("ended_badly", "x").unwrap()).await.unwrap();
        assert_eq!(ended(&work, &told.work_id).await.native, Native::Success);
        let letter = letter(&work, LetterFilter::default()).await;
        assert_eq!((letter.kind.as_str(), letter.attempts), ("onComplete", 3));
        engine.stop(Duration::from_secs(5)).await.unwrap();
    });
}

#[test]
fn an_on_complete_is_tried_again_as_it_says_and_not_as_its_pool_does() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let told = diary.clone();
        let functions = functions(&diary).on_complete(
            "stubborn",
            retry(7),
            move |_: Tx, call: Call, _: OnComplete<String>| {
                told.note(format!("told#{}", call.attempt));
                async { Err(mainstay_store::Error::application("cannot be told")) }
            },
        );
        let work = Work::open(&store, functions).await.unwrap();
        work.pool(Pool::new("shop").retry(retry(1))).await.unwrap();
        let engine = work.start().await.unwrap();
        let new = item("note", "a").on_complete("stubborn", "x").unwrap();
        ended(&work, &work.enqueue(new).await.unwrap().work_id).await;
        let kind = Some(Kind::OnComplete);
        let filter = LetterFilter { kind, ..LetterFilter::default() };
        let letter = letter(&work, filter).await;
        assert_eq!((letter.function.as_str(), letter.attempts), ("stubborn", 7));
        assert!(letter.args.get().contains(r#""context":"x""#), "{}", letter.args);
        // Tried again it is told as often, and is a letter of the same kind.
        let again = work.retry_letter(&letter.work_id).await.unwrap();
        ended(&work, &again).await;
        let letter = work.letter(&again).await.unwrap();
        assert_eq!((letter.kind.as_str(), letter.attempts), ("onComplete", 7));
        engine.stop(Duration::from_secs(5)).await.unwrap();
    });
}

#[test]
fn a_letter_is_of_the_kind_that_its_item_says() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        let engine = work.start().await.unwrap();
        work.enqueue(item("refuse", "a").letter_kind("append")).await.unwrap();
        work.enqueue(item("refuse", "b")).await.unwrap();
        let of = |kind: &str| LetterFilter { kind: Some(kind.into()), ..LetterFilter::default() };
        let first = letter(&work, of("append")).await;
        assert_eq!((first.kind.as_str(), first.args.get()), ("append", "\"a\""));
        assert_eq!(letter(&work, of("work")).await.args.get(), "\"b\"");
        // Tried again it is of the same kind.
        let again = work.retry_letter(&first.work_id).await.unwrap();
        ended(&work, &again).await;
        assert_eq!(work.letter(&again).await.unwrap().kind, "append");
        engine.stop(Duration::from_secs(5)).await.unwrap();
    });
}

#[test]
fn b_263_a_pool_retries_counts_and_tells_its_depth() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        work.pause("shop").await.unwrap();
        let items = (0..5).map(|number| item("flaky", &number.to_string())).collect();
        let ids = work.enqueue_all(items).await.unwrap();
        let engine = work.start().await.unwrap();
        let depth = work.depth("shop").await.unwrap();
        assert_eq!((depth.pending, depth.running), (5, 0));
        assert!(depth.oldest_age_ms.is_some());
        work.resume("shop").await.unwrap();
        for id in &ids {
            let status = ended(&work, &id.work_id).await;
            assert_eq!((status.native, status.attempts), (Native::Success, 3));
        }
        let depth = work.depth("shop").await.unwrap();
        assert_eq!((depth.pending, depth.running), (0, 0));
        assert_eq!(diary.entries().len(), 15);
        engine.stop(Duration::from_secs(5)).await.unwrap();
    });
}

#[test]
fn b_264_items_of_a_key_run_one_at_a_time_and_in_order_across_retries() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        let engine = work.start().await.unwrap();
        let mut ids = Vec::new();
        for number in 0..6 {
            for key in ["a", "b"] {
                let new = item("flaky", &format!("{key}{number}")).key(key);
                ids.push(work.enqueue(new).await.unwrap().work_id);
            }
        }
        for id in &ids {
            ended(&work, id).await;
        }
        for key in ["a", "b"] {
            let of_key: Vec<String> =
                diary.entries().into_iter().filter(|entry| entry.starts_with(key)).collect();
            let expected: Vec<String> = (0..6)
                .flat_map(|number| (1..=3).map(move |attempt| format!("{key}{number}#{attempt}")))
                .collect();
            assert_eq!(of_key, expected);
        }
        engine.stop(Duration::from_secs(5)).await.unwrap();
    });
}
