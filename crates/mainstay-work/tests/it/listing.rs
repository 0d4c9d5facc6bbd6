//! Looking at many items, and letting one start now.

use crate::bench_of_tools::{Diary, ended, functions, item, open, retry, shop};
use mainstay_store::Tx;
use mainstay_testkit::stores::for_each_store;
use mainstay_work::{Call, Details, Failure, Functions, Hastened, ListQuery, Native, NewWork, Pool, Work};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

const PATIENCE: Duration = Duration::from_secs(20);

fn ids(page: &[Details]) -> Vec<String> {
    page.iter().map(|item| item.status.work_id.clone()).collect()
}

/// Every page of a query, put together.
async fn everything(work: &Work, query: &ListQuery, limit: usize) -> Vec<Details> {
    let (mut query, mut all) = (query.clone(), Vec::new());
    loop {
        let page = work.list(query.clone(), limit).await.unwrap();
        assert!(page.work.len() <= limit);
        all.extend(page.work);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return all,
        }
    }
}

fn of(state: &str) -> ListQuery {
    ListQuery { states: Native::named(state).unwrap(), ..ListQuery::default() }
}

/// A shop where `wait` runs until it is told to end.
async fn waiting_shop(store: &mainstay_store::Store) -> (Work, Arc<Notify>, Arc<Notify>) {
    let (begun, may_end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (beginning, ending) = (begun.clone(), may_end.clone());
    let functions = functions(&Diary::default()).action("wait", move |_: Call, _: String| {
        let (begun, may_end) = (beginning.clone(), ending.clone());
        async move {
            begun.notify_one();
            may_end.notified().await;
            Ok::<_, Failure>(())
        }
    });
    let work = Work::open(store, functions).await.unwrap();
    work.pool(Pool::new("shop").retry(retry(1))).await.unwrap();
    work.pool(Pool::new("other").retry(retry(1))).await.unwrap();
    (work, begun, may_end)
}

#[test]
fn b_266_items_of_all_pools_and_states_are_listed_in_both_orders() {
    for_each_store(async |place| {
        let store = open(&place).await;
        let (work, begun, may_end) = waiting_shop(&store).await;
        let engine = work.start().await.unwrap();
        let refused = work.enqueue(item("refuse", "bad").correlated("corr-1")).await.unwrap().work_id;
        let noted = work.enqueue(item("note", "good").key("k")).await.unwrap().work_id;
        ended(&work, &refused).await;
        ended(&work, &noted).await;
        let runs = work.enqueue(item("wait", "long").key("busy")).await.unwrap().work_id;
        begun.notified().await;
        let behind =
            work.enqueue(item("note", "next").key("busy").correlated("corr-1")).await.unwrap().work_id;
        let later = item("note", "later").run_after(Duration::from_secs(3_600));
        let later = work.enqueue(later).await.unwrap().work_id;
        work.pause("other").await.unwrap();
        let ready = NewWork::new("other", "note", "paused").unwrap();
        let ready = work.enqueue(ready).await.unwrap().work_id;

        let all = [&refused, &noted, &runs, &behind, &later, &ready].map(Clone::clone);
        for limit in [1, 2, 5, 100] {
            let oldest = ListQuery { is_oldest_first: true, ..ListQuery::default() };
            assert_eq!(ids(&everything(&work, &oldest, limit).await), all, "{limit}");
            let mut newest = ids(&everything(&work, &ListQuery::default(), limit).await);
            newest.reverse();
            assert_eq!(newest, all, "{limit}");
        }
        let listed = async |query: ListQuery| ids(&everything(&work, &query, 10).await);
        let expected: [(&str, &[&String]); 9] = [
            ("pending", &[&ready, &later, &behind]),
            ("ready", &[&ready]),
            ("delayed", &[&later]),
            ("behind", &[&behind]),
            ("running", &[&runs]),
            ("completed", &[&noted]),
            ("success", &[&noted]),
            ("failed", &[&refused]),
            ("canceled", &[]),
        ];
        for (state, expected) in expected {
            assert_eq!(
                listed(of(state)).await,
                expected.iter().map(|id| (*id).clone()).collect::<Vec<_>>(),
                "{state}"
            );
        }
        assert_eq!(Native::named("nonsense"), None);
        let by = ListQuery::default;
        assert_eq!(listed(ListQuery { pool: Some("other".into()), ..by() }).await, [ready.as_str()]);
        assert_eq!(listed(ListQuery { function: Some("note".into()), ..by() }).await.len(), 4);
        assert_eq!(listed(ListQuery { function: Some("wait".into()), ..by() }).await, [runs.as_str()]);
        assert_eq!(
            listed(ListQuery { key: Some("busy".into()), ..by() }).await,
            [behind.clone(), runs.clone()]
        );
        assert_eq!(listed(ListQuery { key: Some("k".into()), ..by() }).await, [noted.as_str()]);
        let correlated = ListQuery { correlation_id: Some("corr-1".into()), ..by() };
        assert_eq!(listed(correlated).await, [behind.clone(), refused.clone()]);
        assert!(listed(ListQuery { correlation_id: Some("corr_1".into()), ..by() }).await.is_empty());
        assert!(listed(ListQuery { function: Some("%".into()), ..by() }).await.is_empty());
        let args = |text: &str| ListQuery { args: Some(text.into()), ..by() };
        assert_eq!(listed(args("\"lon")).await, [runs.as_str()]);
        assert_eq!(listed(args("pause")).await, [ready.as_str()]);
        for none in ["good", "PAUSE", "p_use", "%", "shop"] {
            assert!(listed(args(none)).await.is_empty(), "{none}");
        }
        let unknown = work.list(ListQuery { pool: Some("nowhere".into()), ..by() }, 1).await;
        assert_eq!(unknown.unwrap_err().code(), "UNKNOWN_POOL");
        let nonsense = work.list(ListQuery { after: Some("x".into()), ..by() }, 1).await;
        assert_eq!(nonsense.unwrap_err().code(), "WORK_INVALID");

        let details = work.details(&behind).await.unwrap().unwrap();
        assert_eq!(details.args.unwrap().get(), "\"next\"");
        assert_eq!((details.status.native, details.previous_attempts), (Native::Behind, 0));
        assert_eq!(details.correlation_id.as_deref(), Some("corr-1"));
        let letter = work.details(&refused).await.unwrap().unwrap();
        assert!(letter.is_dead_letter && letter.args.unwrap().get() == "\"bad\"" && letter.errors.len() == 1);
        assert_eq!((letter.previous_attempts, letter.correlation_id.as_deref()), (1, Some("corr-1")));
        assert_eq!(work.details(&runs).await.unwrap().unwrap().status.native, Native::Running);
        assert!(work.details("work-123").await.unwrap().is_none());
        may_end.notify_one();
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_page_looks_at_so_much_and_says_where_to_go_on() {
    for_each_store(async |place| {
        let store = open(&place).await;
        let (work, ..) = waiting_shop(&store).await;
        work.enqueue(NewWork::new("other", "note", "first").unwrap()).await.unwrap();
        for _ in 0..2 {
            work.enqueue_all(vec![item("note", "x"); 4_000]).await.unwrap();
        }
        let query = ListQuery { pool: Some("other".into()), ..ListQuery::default() };
        let page = work.list(query.clone(), 10).await.unwrap();
        assert!(page.work.is_empty() && page.next.is_some(), "8,000 others are newer");
        assert_eq!(everything(&work, &query, 10).await.len(), 1);
        let all = everything(&work, &ListQuery::default(), 1_000).await;
        assert_eq!(ids(&all).into_iter().collect::<BTreeSet<_>>().len(), 8_001, "each once");
        assert_eq!(work.pending("other", 50).await.unwrap().len(), 1);
        // A page of much is short.
        let large = "x".repeat(60_000);
        work.enqueue_all(vec![item("note", &large); 50]).await.unwrap();
        let page = work.list(ListQuery::default(), 50).await.unwrap();
        assert!((10..50).contains(&page.work.len()) && page.next.is_some(), "{}", page.work.len());
    });
}

#[test]
fn b_268_what_waits_is_listed_as_it_can_start() {
    for_each_store(async |place| {
        let store = open(&place).await;
        let work = shop(&store, &Diary::default()).await;
        let later =
            work.enqueue(item("note", "later").run_after(Duration::from_secs(60))).await.unwrap().work_id;
        let first = work.enqueue(item("note", "a").key("k")).await.unwrap().work_id;
        let behind = work.enqueue(item("note", "b").key("k")).await.unwrap().work_id;
        let second = work.enqueue(item("effect", "c")).await.unwrap().work_id;
        let urgent = work.enqueue(item("note", "d").priority(-1)).await.unwrap().work_id;
        let listed = work.upcoming("shop", 50).await.unwrap();
        assert_eq!(ids(&listed), [urgent.clone(), first, second, later, behind]);
        assert_eq!(ids(&work.upcoming("shop", 1).await.unwrap()), [urgent]);
        assert_eq!(work.upcoming("nowhere", 1).await.unwrap_err().code(), "UNKNOWN_POOL");
    });
}

#[test]
fn the_keys_of_a_pool_tell_how_much_waits_and_whether_one_runs() {
    for_each_store(async |place| {
        let store = open(&place).await;
        let (work, begun, may_end) = waiting_shop(&store).await;
        work.enqueue_all(vec![
            item("wait", "1").key("busy"),
            item("note", "2").key("busy"),
            item("note", "3").key("busy"),
        ])
        .await
        .unwrap();
        work.enqueue(item("note", "4").key("later").run_after(Duration::from_secs(60))).await.unwrap();
        work.enqueue(item("note", "5")).await.unwrap();
        let engine = work.start().await.unwrap();
        begun.notified().await;
        let page = work.keys("shop", None, 50).await.unwrap();
        assert_eq!(page.next, None);
        let told: Vec<_> =
            page.keys.iter().map(|one| (one.key.as_str(), one.depth, one.is_running)).collect();
        assert_eq!(told, [("busy", 3, true), ("later", 1, false)]);
        let fronts: Vec<_> = page.keys.iter().map(|one| one.front.as_ref().unwrap()).collect();
        assert_eq!((fronts[0].function.as_str(), fronts[0].native), ("wait", Native::Running));
        assert_eq!(fronts[1].native, Native::Delayed);
        assert!(
            page.keys.iter().all(|one| one.oldest_at == one.front.as_ref().map(|front| front.enqueued_at))
        );
        let first = work.keys("shop", None, 1).await.unwrap();
        assert_eq!(first.next.as_deref(), Some("busy"));
        assert_eq!(work.keys("shop", Some("busy"), 1).await.unwrap().keys[0].key, "later");
        assert!(work.keys("other", None, 50).await.unwrap().keys.is_empty());
        assert_eq!(work.keys("nowhere", None, 1).await.unwrap_err().code(), "UNKNOWN_POOL");
        may_end.notify_one();
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn an_item_that_waits_for_its_time_can_start_now() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        let hour = Duration::from_secs(3_600);
        let later = work.enqueue(item("note", "later").run_after(hour)).await.unwrap().work_id;
        let front = work.enqueue(item("note", "front").key("k").run_after(hour)).await.unwrap().work_id;
        let behind = work.enqueue(item("note", "behind").key("k").run_after(hour)).await.unwrap().work_id;
        assert_eq!(work.run_now(&later).await.unwrap(), Hastened::Now);
        assert_eq!(work.run_now(&later).await.unwrap(), Hastened::Already);
        assert_eq!(work.run_now(&behind).await.unwrap(), Hastened::Behind, "its key comes first");
        assert_eq!(work.run_now(&behind).await.unwrap(), Hastened::Behind);
        assert_eq!(work.status(&behind).await.unwrap().unwrap().native, Native::Behind);
        let engine = work.start().await.unwrap();
        ended(&work, &later).await;
        assert_eq!(diary.entries(), ["later#1"], "the others wait for the front of their key");
        assert_eq!(work.run_now(&front).await.unwrap(), Hastened::Now);
        ended(&work, &front).await;
        ended(&work, &behind).await;
        assert_eq!(diary.entries(), ["later#1", "front#1", "behind#1"]);
        assert_eq!(work.depth("shop").await.unwrap().pending, 0);
        assert_eq!(work.run_now(&later).await.unwrap_err().code(), "WORK_NOT_WAITING");
        for unknown in ["work-123", "work_01890a5d-ac96-774b-bcce-b302099a8057"] {
            assert_eq!(work.run_now(unknown).await.unwrap_err().code(), "WORK_NOT_FOUND");
        }
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn what_waits_to_be_tried_again_can_start_now_and_what_runs_cannot() {
    for_each_store(async |place| {
        let store = open(&place).await;
        let (failed, begun, may_end) =
            (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (failing, beginning, ending) = (failed.clone(), begun.clone(), may_end.clone());
        let functions = Functions::new().action("second", move |call: Call, _: String| {
            let (failed, begun, may_end) = (failing.clone(), beginning.clone(), ending.clone());
            async move {
                if call.attempt == 1 {
                    failed.notify_one();
                    return Err(Failure::retryable("not yet"));
                }
                begun.notify_one();
                may_end.notified().await;
                Ok(())
            }
        });
        let work = Work::open(&store, functions).await.unwrap();
        let patient = mainstay_work::RetryPolicy::new(3, 3_600_000, 1.0, 3_600_000).unwrap();
        work.pool(Pool::new("shop").retry(patient)).await.unwrap();
        let engine = work.start().await.unwrap();
        let id = work.enqueue(item("second", "x")).await.unwrap().work_id;
        failed.notified().await;
        let delayed = async {
            while work.status(&id).await.unwrap().unwrap().native != Native::Delayed {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, delayed).await.unwrap();
        assert_eq!(work.run_now(&id).await.unwrap(), Hastened::Now);
        tokio::time::timeout(PATIENCE, begun.notified()).await.unwrap();
        assert_eq!(work.run_now(&id).await.unwrap_err().code(), "WORK_NOT_WAITING");
        assert_eq!(work.details(&id).await.unwrap().unwrap().previous_attempts, 1);
        may_end.notify_one();
        assert_eq!(ended(&work, &id).await.attempts, 2);
        engine.stop(PATIENCE).await.unwrap();
    });
}

/// On PostgreSQL, what nobody has committed yet must not be passed over for good by those who look.
#[test]
fn what_moves_while_pages_are_read_is_seen_somewhere() {
    for_each_store(async |place| {
        let store = open(&place).await;
        let work = shop(&store, &Diary::default()).await;
        let engine = work.start().await.unwrap();
        let enqueued = work.enqueue_all(vec![item("note", "x"); 300]).await.unwrap();
        loop {
            let seen: BTreeSet<String> =
                ids(&work.list(ListQuery::default(), 1_000).await.unwrap().work).into_iter().collect();
            assert!(enqueued.iter().all(|one| seen.contains(&one.work_id)), "one page is one moment");
            let depth = work.depth("shop").await.unwrap();
            if (depth.pending, depth.running) == (0, 0) {
                break;
            }
        }
        engine.stop(PATIENCE).await.unwrap();
        store
            .read(async |tx: Tx| {
                tx.query("SELECT id FROM mainstay_ended", &[]).await.map(|rows| assert_eq!(rows.len(), 300))
            })
            .await
            .unwrap();
    });
}
