//! What pull workers meet besides getting work and saying what came of it.

use crate::bench_of_tools::{Diary, item, open, shop};
use mainstay_testkit::stores::for_each_store;
use mainstay_testkit::time::VirtualTime;
use mainstay_work::{COMPONENT, Canceled, Failure, Functions, Native, NewWork, Pool, Pull, Pulled, Work};
use serde_json::value::to_raw_value;
use std::time::Duration;
use tokio::sync::oneshot;

fn pull(wait: Duration) -> Pull {
    Pull {
        pool: "shop".to_owned(),
        functions: vec!["remote".to_owned()],
        must_be_known: Vec::new(),
        most: 10,
        lease: Duration::from_secs(30),
        wait,
        worker: "tester".to_owned(),
    }
}

async fn claimed(work: &Work) -> Pulled {
    work.pull(pull(Duration::ZERO)).await.unwrap()
}

/// A shop with `count` items for a pull worker, who has all of them.
async fn with_items(work: &Work, count: usize) -> Pulled {
    assert_eq!(claimed(work).await.lease, None, "by asking, it declares what it can do");
    work.enqueue_all(vec![item("remote", "x"); count]).await.unwrap();
    let pulled = claimed(work).await;
    assert_eq!(pulled.items.len(), count);
    pulled
}

#[test]
fn a_result_that_no_reader_could_take_is_refused_and_its_item_stays_held() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        let pulled = with_items(&work, 1).await;
        let (lease, item) = (pulled.lease.unwrap(), &pulled.items[0].work_id);
        let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
        let large = format!("\"{}\"", "x".repeat(70_000));
        let end = async |value: &str| {
            let value = serde_json::value::RawValue::from_string(value.to_owned()).unwrap();
            work.complete(&lease, item, value).await
        };
        for (bad, code) in [
            (&*deep, "WORK_INVALID"),
            (r#""\u0000""#, "WORK_INVALID"),
            ("1e999", "WORK_INVALID"),
            (&large, "WORK_TOO_LARGE"),
        ] {
            let error = end(bad).await.unwrap_err();
            assert!(error.code() == code && error.to_string().starts_with("returnValue"), "{error}");
        }
        assert_eq!(work.status(item).await.unwrap().unwrap().native, Native::Running);
        end("1").await.unwrap();
        assert_eq!(work.status(item).await.unwrap().unwrap().native, Native::Success);
    });
}

#[test]
fn work_is_ended_under_a_lease_of_a_pull_worker_only() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        let engine = work.start().await.unwrap();
        let id = with_items(&work, 1).await.items[0].work_id.clone();
        let secret = "0".repeat(32);
        let nodes_own = &format!("{}.{secret}", engine.lease());
        let value = to_raw_value(&1).unwrap();
        for refused in [
            work.complete(nodes_own, &id, value).await.unwrap_err(),
            work.fail(nodes_own, &id, Failure::retryable("x")).await.unwrap_err(),
            work.extend(nodes_own, Duration::from_secs(60)).await.unwrap_err(),
            work.give_back(nodes_own).await.unwrap_err(),
            work.extend(&format!("{}.{secret}", i64::MAX), Duration::from_secs(60)).await.unwrap_err(),
        ] {
            assert_eq!(refused.code(), "LEASE_LOST");
        }
        let mut of_a_node = pull(Duration::ZERO);
        of_a_node.functions.push("effect".to_owned());
        let refused = work.pull(of_a_node).await.unwrap_err();
        assert_eq!(refused.to_string(), "functions[1]: is a mutation, which nodes run by themselves");
        engine.stop(Duration::from_secs(5)).await.unwrap();
    });
}

#[test]
fn what_is_given_back_was_never_claimed() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        let pulled = with_items(&work, 3).await;
        let lease = &*pulled.lease.clone().unwrap();
        work.complete(lease, &pulled.items[1].work_id, to_raw_value(&1).unwrap()).await.unwrap();
        work.give_back(lease).await.unwrap();
        assert_eq!(work.give_back(lease).await.unwrap_err().code(), "LEASE_LOST");
        let again = claimed(&work).await;
        let ids: Vec<&String> = again.items.iter().map(|item| &item.work_id).collect();
        assert_eq!(ids, [&pulled.items[0].work_id, &pulled.items[2].work_id]);
        assert!(again.items.iter().all(|item| item.attempt == 1));
    });
}

#[test]
fn a_worker_hears_of_what_was_cancelled_and_it_does_not_start_again() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        let pulled = with_items(&work, 3).await;
        let lease = &*pulled.lease.clone().unwrap();
        let (lease, id) = (lease, |number: usize| pulled.items[number].work_id.clone());
        let extended = work.extend(lease, Duration::from_secs(60)).await.unwrap();
        assert!(extended.canceled.is_empty() && extended.until_ms > pulled.until_ms.unwrap());
        for number in [0, 2] {
            assert_eq!(work.cancel(&id(number)).await.unwrap(), Canceled::Asked);
        }
        let canceled = work.extend(lease, Duration::from_secs(60)).await.unwrap().canceled;
        assert_eq!(canceled, [id(0), id(2)]);
        work.fail(lease, &id(0), Failure::retryable("stopped")).await.unwrap();
        work.fail(lease, &id(1), Failure::retryable("busy")).await.unwrap();
        work.give_back(lease).await.unwrap();
        for (number, native) in [(0, Native::Canceled), (1, Native::Delayed), (2, Native::Canceled)] {
            assert_eq!(work.status(&id(number)).await.unwrap().unwrap().native, native, "{number}");
        }
    });
}

#[test]
fn a_place_that_becomes_free_goes_to_who_waits_for_it() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        work.pool(Pool::new("shop").max_parallelism(1)).await.unwrap();
        assert_eq!(claimed(&work).await.lease, None);
        work.enqueue_all(vec![item("remote", "x"); 2]).await.unwrap();
        let first = claimed(&work).await;
        assert_eq!(claimed(&work).await.items.len(), 0, "one at once");
        let waiting = tokio::spawn({
            let work = work.clone();
            async move { work.pull(pull(Duration::from_secs(60))).await.unwrap() }
        });
        // Nobody tells when it waits; that it is told soon rather than after its own patience is what matters.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let value = to_raw_value(&1).unwrap();
        work.complete(first.lease.as_deref().unwrap(), &first.items[0].work_id, value).await.unwrap();
        let second = tokio::time::timeout(Duration::from_secs(3), waiting).await.unwrap().unwrap();
        assert_eq!(second.items.len(), 1);
    });
}

#[test]
fn whoever_waits_stops_when_told_to() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        let (stop, stopped) = oneshot::channel::<()>();
        let waiting = tokio::spawn({
            let work = work.clone();
            async move { work.pull_until(pull(Duration::from_secs(60)), async { drop(stopped.await) }).await }
        });
        drop(stop);
        let pulled = tokio::time::timeout(Duration::from_secs(5), waiting).await.unwrap().unwrap().unwrap();
        assert_eq!((pulled.lease, pulled.items.len()), (None, 0));
    });
}

#[test]
fn what_is_past_its_deadline_is_not_given_out() {
    for_each_store(async |place| {
        let (store, time) =
            VirtualTime::open_with(&place, place.options().component(COMPONENT)).await.unwrap();
        let work = Work::open(&store, Functions::new()).await.unwrap();
        work.pool(Pool::new("shop")).await.unwrap();
        assert_eq!(claimed(&work).await.lease, None);
        let late = item("remote", "late").deadline(Duration::from_secs(10));
        let late = work.enqueue(late).await.unwrap().work_id;
        time.advance(10_000).await.unwrap();
        let good = NewWork::new("shop", "remote", "good").unwrap().deadline(Duration::from_secs(10));
        let good = work.enqueue(good).await.unwrap().work_id;
        let pulled = claimed(&work).await;
        assert_eq!(pulled.items.iter().map(|item| &item.work_id).collect::<Vec<_>>(), [&good]);
        let status = work.status(&late).await.unwrap().unwrap();
        assert_eq!(status.native, Native::Failed);
        assert!(status.last_error.unwrap().contains("deadline"));
        let depth = work.depth("shop").await.unwrap();
        assert_eq!((depth.pending, depth.running), (0, 1));
        work.complete(pulled.lease.as_deref().unwrap(), &good, to_raw_value(&1).unwrap()).await.unwrap();
        assert_eq!(work.depth("shop").await.unwrap().running, 0);
    });
}

#[test]
fn whoever_asks_in_vain_commits_nothing() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        assert_eq!(claimed(&work).await.lease, None);
        // It finds its function declared, and remembers.
        claimed(&work).await;
        let committed = || store.figures().committed.get();
        let before = committed();
        for _ in 0..5 {
            claimed(&work).await;
        }
        assert_eq!(committed(), before, "there is nothing");
        work.pool(Pool::new("shop").max_parallelism(1)).await.unwrap();
        work.enqueue_all(vec![item("remote", "x"); 2]).await.unwrap();
        let held = claimed(&work).await;
        assert_eq!(held.items.len(), 1);
        let before = committed();
        assert_eq!(claimed(&work).await.lease, None);
        assert_eq!(committed(), before, "there is no room");
        work.give_back(held.lease.as_deref().unwrap()).await.unwrap();
        work.pause("shop").await.unwrap();
        let before = committed();
        assert_eq!(claimed(&work).await.lease, None);
        assert_eq!(committed(), before, "nothing may start");
    });
}

/// A number alone, the number of another caller's lease, or a wrong secret: nothing of that ends or keeps work.
#[test]
fn a_lease_cannot_be_guessed() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        let pulled = with_items(&work, 1).await;
        let (lease, id) = (pulled.lease.as_deref().unwrap(), &pulled.items[0].work_id);
        let (number, secret) = lease.split_once('.').unwrap();
        assert_eq!(secret.len(), 32);
        let last = if secret.ends_with('0') { '1' } else { '0' };
        let wrong = format!("{number}.{}{last}", &secret[..31]);
        let other = format!("{}.{secret}", number.parse::<i64>().unwrap() + 1);
        for (lease, code) in [
            (number, "WORK_INVALID"),
            ("", "WORK_INVALID"),
            (&format!("{lease}0"), "WORK_INVALID"),
            (&format!("{number}.{}", "x".repeat(32)), "WORK_INVALID"),
            (&wrong, "LEASE_LOST"),
            (&other, "LEASE_LOST"),
            (&format!("{number}.{}", "0".repeat(32)), "LEASE_LOST"),
        ] {
            for refused in [
                work.complete(lease, id, to_raw_value(&1).unwrap()).await.unwrap_err(),
                work.fail(lease, id, Failure::retryable("x")).await.unwrap_err(),
                work.extend(lease, Duration::from_secs(60)).await.unwrap_err(),
                work.give_back(lease).await.unwrap_err(),
            ] {
                assert_eq!(refused.code(), code, "{lease:?}");
            }
        }
        work.complete(lease, id, to_raw_value(&1).unwrap()).await.unwrap();
        assert_eq!(work.status(id).await.unwrap().unwrap().native, Native::Success);
    });
}
