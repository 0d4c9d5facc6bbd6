//! How items run: order, priority, parallelism, rate, pull workers and letters.

use crate::bench_of_tools::{Diary, ended, item, open, retry, shop};
use mainstay_testkit::stores::{Kind, for_each_kind, for_each_store};
use mainstay_work::{
    Call, Failure, Functions, LetterFilter, LetterStatus, Native, NewWork, Pool, Pull, State, Work,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn no_more_run_at_once_than_the_pool_allows() {
    for_each_store(async |place| {
        let store = open(&place).await;
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (own_now, own_most) = (now.clone(), most.clone());
        let functions = Functions::new().action("count", move |_: Call, _: String| {
            let (now, most) = (own_now.clone(), own_most.clone());
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(2)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        });
        let work = Work::open(&store, functions).await.unwrap();
        work.pool(Pool::new("shop").max_parallelism(3)).await.unwrap();
        let ids = work.enqueue_all(vec![item("count", "x"); 40]).await.unwrap();
        // Two engines share what is allowed.
        let engines = [work.start().await.unwrap(), work.start().await.unwrap()];
        for id in ids {
            assert_eq!(ended(&work, &id.work_id).await.native, Native::Success);
        }
        assert!((1..=3).contains(&most.load(Ordering::SeqCst)), "{most:?}");
        for engine in engines {
            engine.stop(Duration::from_secs(5)).await.unwrap();
        }
    });
}

#[test]
fn urgent_items_go_first_and_keys_take_turns() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        work.pool(Pool::new("shop").max_parallelism(1).retry(retry(1))).await.unwrap();
        let mut items: Vec<NewWork> =
            (0..4).map(|number| item("note", &format!("a{number}")).key("a")).collect();
        items.push(item("note", "b").key("b"));
        items.push(item("note", "urgent").priority(-1));
        let ids = work.enqueue_all(items).await.unwrap();
        let engine = work.start().await.unwrap();
        for id in ids {
            ended(&work, &id.work_id).await;
        }
        let expected = ["urgent#1", "a0#1", "b#1", "a1#1", "a2#1", "a3#1"];
        assert_eq!(diary.entries(), expected);
        engine.stop(Duration::from_secs(5)).await.unwrap();
    });
}

#[test]
fn a_pool_of_a_rate_starts_no_faster() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        work.pool(Pool::new("shop").rate_per_second(100)).await.unwrap();
        let ids = work.enqueue_all(vec![item("note", "x"); 40]).await.unwrap();
        let (began, engine) = (std::time::Instant::now(), work.start().await.unwrap());
        for id in ids {
            ended(&work, &id.work_id).await;
        }
        // A tenth of a second's worth may start at once.
        assert!(began.elapsed() >= Duration::from_millis(280), "{:?}", began.elapsed());
        engine.stop(Duration::from_secs(5)).await.unwrap();
    });
}

fn pull(functions: &[&str]) -> Pull {
    Pull {
        pool: "shop".to_owned(),
        functions: functions.iter().map(|name| (*name).to_owned()).collect(),
        must_be_known: Vec::new(),
        most: 10,
        lease: Duration::from_secs(30),
        wait: Duration::ZERO,
        worker: "python-1".to_owned(),
    }
}

#[test]
fn pull_workers_claim_extend_complete_and_fail() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        assert!(work.pull(pull(&["remote"])).await.unwrap().items.is_empty());
        // The worker has declared its function by asking.
        let ids = work
            .enqueue_all(vec![
                item("remote", "a").on_complete("ended", "x").unwrap(),
                item("remote", "b"),
                item("note", "not ours"),
            ])
            .await
            .unwrap();
        let pulled = work.pull(pull(&["remote"])).await.unwrap();
        let lease = pulled.lease.as_deref().unwrap();
        assert_eq!(pulled.items.len(), 2);
        assert_eq!((pulled.items[0].args.get(), pulled.items[0].attempt), ("\"a\"", 1));
        work.extend(lease, Duration::from_secs(60)).await.unwrap();
        let value = serde_json::value::to_raw_value("done").unwrap();
        work.complete(lease, &ids[0].work_id, value.clone()).await.unwrap();
        let twice = work.complete(lease, &ids[0].work_id, value.clone()).await.unwrap_err();
        assert_eq!(twice.code(), "WORK_NOT_HELD");
        work.fail(lease, &ids[1].work_id, Failure::permanent("cannot")).await.unwrap();
        let over = work.complete(lease, &ids[1].work_id, value).await.unwrap_err();
        assert_eq!(over.code(), "LEASE_LOST");
        assert_eq!(ended(&work, &ids[0].work_id).await.native, Native::Success);
        assert_eq!(ended(&work, &ids[1].work_id).await.native, Native::Failed);
        assert_eq!(crate::bench_of_tools::effects(&store).await, ["success \"x\""]);
        assert_eq!(work.depth("shop").await.unwrap().pending, 1);
        assert_eq!(work.pull(pull(&["remote"])).await.unwrap().lease, None);
    });
}

#[test]
fn letters_are_listed_retried_ignored_and_purged() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        let engine = work.start().await.unwrap();
        let context = serde_json::json!({"eventId": "e1", "projectionName": "orders"});
        let mut ids = Vec::new();
        for number in 0..3 {
            let new =
                item("refuse", &number.to_string()).key(format!("k{number}")).context(&context).unwrap();
            let id = work.enqueue(new).await.unwrap().work_id;
            ended(&work, &id).await;
            ids.push(id);
        }
        let letters = work.letters(LetterFilter::default(), 2).await.unwrap();
        assert_eq!(letters.iter().map(|letter| &letter.work_id).collect::<Vec<_>>(), [&ids[2], &ids[1]]);
        let older = LetterFilter { before: Some(letters[1].number), ..LetterFilter::default() };
        assert_eq!(work.letters(older, 2).await.unwrap().len(), 1);
        let letter = work.letter(&ids[0]).await.unwrap();
        // Item 215: a letter is pending, with its context.
        assert_eq!((letter.status, letter.attempts), (LetterStatus::Pending, 1));
        assert_eq!(letter.context.unwrap().get(), context.to_string());
        let again = work.retry_letter(&ids[0]).await.unwrap();
        let status = ended(&work, &again).await;
        assert_eq!(status.state, State::Failed);
        let retried = work.letter(&ids[0]).await.unwrap();
        assert_eq!((retried.status, retried.retried_as), (LetterStatus::Retried, Some(again)));
        assert_eq!(
            work.retry_letter(&ids[0]).await.unwrap_err().to_string(),
            format!("Dead letter not found: {}", ids[0])
        );
        work.ignore_letter(&ids[1]).await.unwrap();
        assert_eq!(work.retry_letters(LetterFilter::default()).await.unwrap(), 2);
        assert_eq!(work.letter("nonsense").await.unwrap_err().code(), "DEAD_LETTER_NOT_FOUND");
        assert!(work.purge_letters(i64::MAX).await.unwrap() >= 4);
        engine.stop(Duration::from_secs(5)).await.unwrap();
    });
}

/// On PostgreSQL; on SQLite places are given out in the order of commits.
#[test]
fn whoever_is_committed_late_at_a_place_that_was_passed_by_is_found() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        let engine = work.start().await.unwrap();
        let (mut client, connection) =
            tokio_postgres::connect(place.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        // The lane is there already, so nobody waits for whoever makes it.
        let first = work.enqueue(item("note", "first")).await.unwrap().work_id;
        ended(&work, &first).await;
        let lender = client.transaction().await.unwrap();
        let own = work.clone();
        let lent = store
            .lend(&lender, async move |tx| own.enqueue_in(&tx, [item("note", "late")]).map_err(Into::into));
        let lent = lent.await.unwrap();
        let second = work.enqueue(item("note", "second")).await.unwrap().work_id;
        ended(&work, &second).await;
        // Without a wake-up: its node may die between its commit and that.
        let late = lent.value().work_ids()[0].clone();
        lender.commit().await.unwrap();
        drop(lent);
        ended(&work, &late).await;
        assert_eq!(diary.entries(), ["first#1", "second#1", "late#1"]);
        engine.stop(Duration::from_secs(5)).await.unwrap();
    });
}
