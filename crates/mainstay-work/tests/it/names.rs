//! Names that callers choose: how many there may be, what they cost, and how they are deleted.

use crate::bench_of_tools::{Diary, ended, item, open, shop};
use mainstay_store::{Store, Tx, params};
use mainstay_testkit::crash::{self, Child};
use mainstay_testkit::stores::{Kind, Place, for_each_store};
use mainstay_work::bounds::{MAX_CRONS, MAX_FUNCTIONS, MAX_LANES, MAX_LANES_OF_POOL};
use mainstay_work::{
    Cron, Error, FunctionKind, Functions, LetterFilter, LetterStatus, NewWork, Pool, Pull, Result, Schedule,
    Work,
};
use std::time::{Duration, Instant};

fn pull(pool: &str, function: &str) -> Pull {
    Pull {
        pool: pool.to_owned(),
        functions: vec![function.to_owned()],
        must_be_known: Vec::new(),
        most: 1,
        lease: Duration::from_secs(30),
        wait: Duration::ZERO,
        worker: "w".to_owned(),
    }
}

fn cron(name: &str, pool: &str) -> Cron {
    Cron::new(name, Schedule::interval(3_600_000, 0).unwrap(), pool, "note", "tick").unwrap()
}

/// Adds rows until a table has so many; `insert` says what a row of the number `i` is.
async fn fill(store: &Store, table: &str, insert: &str, most: usize) {
    let sql = format!(
        "INSERT INTO {table} {insert} FROM (WITH RECURSIVE numbers(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers \
         WHERE i < {most}) SELECT i FROM numbers) AS numbers WHERE i > (SELECT count(*) FROM {table})"
    );
    store.transact_with(sql, async |tx: Tx, sql: String| tx.execute(&sql, &[]).await).await.unwrap();
}

fn refused<T: std::fmt::Debug>(tried: Result<T>, what: &str) {
    let error = tried.unwrap_err();
    assert_eq!(error.code(), "WORK_NAMES_TOO_MANY", "{what}");
    assert!(matches!(&error, Error::TooManyNames { what: named, .. } if *named == what), "{error}");
}

#[test]
fn no_set_of_names_grows_past_its_bound_and_what_exists_goes_on() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        work.put_cron(cron("hourly", "shop")).await.unwrap();
        work.enqueue(item("note", "before").run_after(Duration::from_secs(3_600))).await.unwrap();
        work.declare("remote", FunctionKind::Action).await.unwrap();

        work.max_pools(1);
        work.put_pool(Pool::new("last")).await.unwrap();
        refused(work.put_pool(Pool::new("more")).await, "pools");
        // There is room for one, and several want it at once.
        work.max_pools(2);
        let pools: Vec<Pool> = (0..8).map(|number| Pool::new(format!("racing-{number}"))).collect();
        let raced = futures_util::future::join_all(pools.into_iter().map(|pool| work.put_pool(pool))).await;
        assert_eq!(raced.iter().filter(|made| made.is_ok()).count(), 1, "{raced:?}");
        work.put_pool(Pool::new("last").max_parallelism(3)).await.unwrap();
        work.ensure_pool(Pool::platform().remove(0)).await.unwrap();

        let lane = "(number, pool, function, priority) SELECT i + 1000, 1000000, 'f', i";
        fill(&store, "mainstay_lanes", lane, MAX_LANES).await;
        refused(work.enqueue(item("remote", "x")).await, "lanes");
        work.enqueue(item("note", "after").run_after(Duration::from_secs(3_600))).await.unwrap();
        let emptied = async |tx: Tx| tx.execute("DELETE FROM mainstay_lanes WHERE pool = 1000000", &[]).await;
        store.transact(emptied).await.unwrap();
        for priority in 1..MAX_LANES_OF_POOL as i16 {
            let new = item("note", "x").priority(priority).run_after(Duration::from_secs(3_600));
            work.enqueue(new).await.unwrap();
        }
        refused(work.enqueue(item("remote", "x")).await, "lanes of a pool");
        // As many as there may be can be claimed from.
        assert!(work.pull(pull("shop", "remote")).await.unwrap().items.is_empty());

        let function = "(name, kind, declared_at) SELECT 'function ' || i, 'action', 0";
        // Those of the program are not counted.
        fill(&store, "mainstay_functions", function, MAX_FUNCTIONS + 20).await;
        refused(work.pull(pull("shop", "more")).await.map(drop), "functions");
        work.declare("remote", FunctionKind::Action).await.unwrap();
        // A program's own functions are there all the same, or it could not start.
        let more = Functions::new().action("more", async |_, ()| Ok(()));
        Work::open(&store, more).await.unwrap();

        let row = "(name, cron, next_at, is_paused, fired, last_at) SELECT 'cron ' || i, '', 0, 1, 0, NULL";
        fill(&store, "mainstay_crons", row, MAX_CRONS).await;
        refused(work.put_cron(cron("more", "shop")).await, "crons");
        work.put_cron(cron("hourly", "shop")).await.unwrap();
    });
}

/// Why a pool cannot be deleted.
async fn kept(work: &Work, pool: &str) -> String {
    match work.delete_pool(pool).await.unwrap_err() {
        error @ Error::InUse { reason, .. } => {
            assert_eq!(error.code(), "WORK_NAME_IN_USE");
            reason.to_owned()
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_pool_is_deleted_when_nothing_uses_it() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        assert!(kept(&work, "shop").await.contains("declares it"));
        assert!(kept(&work, "retrier").await.contains("platform's own"));
        assert!(kept(&work, "sagaPool").await.contains("platform's own"));
        assert_eq!(work.delete_pool("nowhere").await.unwrap_err().code(), "UNKNOWN_POOL");

        work.put_pool(Pool::new("side")).await.unwrap();
        let side = |function: &str| NewWork::new("side", function, "x").unwrap();
        let waiting = work.enqueue(side("note").run_after(Duration::from_secs(3_600))).await.unwrap().work_id;
        assert!(kept(&work, "side").await.contains("waits"));
        work.cancel(&waiting).await.unwrap();
        work.cron(cron("hourly", "side")).await.unwrap();
        assert!(kept(&work, "side").await.contains("cron"));
        work.remove_cron("hourly").await.unwrap();
        assert!(work.pull(pull("side", "remote")).await.unwrap().items.is_empty());
        let running = work.enqueue(side("remote")).await.unwrap().work_id;
        let lease = work.pull(pull("side", "remote")).await.unwrap().lease.unwrap();
        assert!(kept(&work, "side").await.contains("runs"));
        let failure = mainstay_work::Failure::permanent("no");
        work.fail(&lease, &running, failure).await.unwrap();
        assert!(kept(&work, "side").await.contains("dead letters"));
        work.ignore_letters(LetterFilter::default()).await.unwrap();

        let engine = work.start().await.unwrap();
        let done = work.enqueue(side("note")).await.unwrap().work_id;
        ended(&work, &done).await;
        work.delete_pool("side").await.unwrap();
        assert_eq!(work.delete_pool("side").await.unwrap_err().code(), "UNKNOWN_POOL");
        for gone in [
            work.enqueue(side("note")).await.map(drop),
            work.pause("side").await,
            work.depth("side").await.map(drop),
            work.pull(pull("side", "remote")).await.map(drop),
            work.cron(cron("hourly", "side")).await,
            work.pending("side", 10).await.map(drop),
        ] {
            assert_eq!(gone.unwrap_err().code(), "UNKNOWN_POOL");
        }
        // Its ended items keep the name of the deleted pool.
        assert_eq!(work.status(&done).await.unwrap().unwrap().pool, "side");
        let ignored = LetterFilter { status: Some(LetterStatus::Ignored), ..LetterFilter::default() };
        assert_eq!(work.letters(ignored, 10).await.unwrap()[0].pool, "side");

        // One of the same name is another one, on an engine that knew the first.
        work.put_pool(Pool::new("side")).await.unwrap();
        let numbers = async |tx: Tx| {
            let sql = "SELECT pool.number, old.number FROM mainstay_pools AS pool, mainstay_deleted_pools AS old \
                 WHERE pool.name = 'side'";
            let row = tx.query_one(sql, &[]).await?;
            Ok((row.get::<i64>(0)?, row.get::<i64>(1)?))
        };
        let (new, old) = store.read(numbers).await.unwrap();
        assert!(new > old, "{new} is given out again");
        let again = work.enqueue(side("note")).await.unwrap().work_id;
        ended(&work, &again).await;
        engine.stop(Duration::from_secs(5)).await.unwrap();
    });
}

#[test]
fn a_function_is_deleted_when_nothing_uses_it() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        work.declare("unused", FunctionKind::Action).await.unwrap();
        work.declare("used", FunctionKind::Action).await.unwrap();
        work.enqueue(item("used", "x")).await.unwrap();
        for used in ["used", "note"] {
            assert_eq!(work.delete_function(used).await.unwrap_err().code(), "WORK_NAME_IN_USE");
        }
        work.delete_function("unused").await.unwrap();
        assert_eq!(work.delete_function("unused").await.unwrap_err().code(), "UNKNOWN_FUNCTION");
        assert_eq!(work.enqueue(item("unused", "x")).await.unwrap_err().code(), "UNKNOWN_FUNCTION");
    });
}

/// One node enqueues into a pool while another deletes it: the item is refused, or the pool stays.
#[test]
fn no_item_is_lost_in_a_pool_that_another_node_deletes() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let one = shop(&store, &diary).await;
        // Only PostgreSQL has several processes; on SQLite two users of one store meet.
        let other_store = if store.capabilities().many_nodes { open(&place).await } else { store.clone() };
        let other = Work::open(&other_store, Functions::new()).await.unwrap();
        let (mut enqueued, mut deleted) = (0, 0);
        for round in 0..150 {
            other.put_pool(Pool::new("race")).await.unwrap();
            let item = || NewWork::new("race", "note", &round.to_string()).unwrap();
            let items: Vec<NewWork> = std::iter::repeat_with(item).take(1 + round % 3).collect();
            // Either goes first.
            let (added, gone) = if round % 2 == 0 {
                tokio::join!(one.enqueue_all(items), other.delete_pool("race"))
            } else {
                let (gone, added) = tokio::join!(other.delete_pool("race"), one.enqueue_all(items));
                (added, gone)
            };
            match (added, gone) {
                (Ok(added), Err(kept)) => {
                    enqueued += 1;
                    assert_eq!(kept.code(), "WORK_NAME_IN_USE");
                    for item in added {
                        assert!(one.status(&item.work_id).await.unwrap().is_some());
                        one.cancel(&item.work_id).await.unwrap();
                    }
                    other.delete_pool("race").await.unwrap();
                }
                (Err(refused), Ok(())) => {
                    deleted += 1;
                    assert_eq!(refused.code(), "UNKNOWN_POOL");
                }
                both => panic!("round {round}: {both:?}"),
            }
        }
        let orphans = async |tx: Tx| {
            let sql =
                "SELECT count(*) FROM mainstay_work WHERE pool NOT IN (SELECT number FROM mainstay_pools)";
            tx.query_one(sql, &[]).await?.get::<i64>(0)
        };
        assert_eq!(store.read(orphans).await.unwrap(), 0);
        println!("{}: {enqueued} enqueued, {deleted} deleted", place.url());
    });
}

/// The transaction that enqueues has looked at the pool and is not committed: the deletion waits for it and is refused.
#[test]
fn a_deletion_waits_for_a_transaction_that_enqueues() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        work.put_pool(Pool::new("race")).await.unwrap();
        let other = Work::open(&store, Functions::new()).await.unwrap();
        // Reads what the deletion reads, while it may be on its way.
        let enqueue = async |tx: Tx, (work, other): (Work, Work)| {
            work.enqueue_in(&tx, [NewWork::new("race", "note", "x").map_err(mainstay_store::Error::from)?])
                .map_err(mainstay_store::Error::from)?;
            // Deletes once this has committed, or at the same time: its task is not waited for here.
            let deleting = tokio::spawn(async move { other.delete_pool("race").await });
            tx.query("SELECT 1 FROM mainstay_pools WHERE name = $1", params!["race"]).await?;
            Ok(std::sync::Arc::new(std::sync::Mutex::new(Some(deleting))))
        };
        match store.transact_with((work.clone(), other), enqueue).await {
            Ok(deleting) => {
                let deleting = deleting.lock().unwrap().take().unwrap();
                let kept = deleting.await.unwrap();
                assert_eq!(kept.unwrap_err().code(), "WORK_NAME_IN_USE");
            }
            Err(refused) => assert_eq!(Error::from(refused).code(), "UNKNOWN_POOL"),
        }
    });
}

const IDLE_POOLS: usize = 1_000;

#[test]
fn child_with_idle_pools() {
    if !crash::is_child() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let (store, diary) = (open(&Place::new(Kind::SqliteMemory)).await, Diary::default());
        let work = shop(&store, &diary).await;
        work.max_pools(2 * IDLE_POOLS);
        let engine = work.start().await.unwrap();
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        ended(&work, &work.enqueue(item("note", "x")).await.unwrap().work_id).await;
        let (before_kb, before) = (resident_kb(), tasks());
        for number in 0..IDLE_POOLS {
            work.put_pool(Pool::new(format!("idle-{number}"))).await.unwrap();
        }
        // One task for each, and the one for its executions is gone.
        let settled = async {
            while tasks() != before + IDLE_POOLS {
                tokio::task::yield_now().await;
            }
        };
        let is_settled = tokio::time::timeout(Duration::from_secs(60), settled).await.is_ok();
        let cost_kb = resident_kb() - before_kb;
        println!("{IDLE_POOLS} idle pools: {cost_kb} KB, {} tasks", tasks() - before);
        assert!(is_settled, "{} tasks", tasks() - before);
        assert!(cost_kb < 20 * IDLE_POOLS as i64, "{cost_kb} KB");
        // And each is served at once.
        let last = NewWork::new(format!("idle-{}", IDLE_POOLS - 1), "note", "x").unwrap();
        ended(&work, &work.enqueue(last).await.unwrap().work_id).await;
        engine.stop(Duration::from_secs(5)).await.unwrap();
        crash::ack(cost_kb.unsigned_abs());
    });
}

fn resident_kb() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// 8,000 pools once took 1.2 GB. In a process of its own, so that no other test counts.
#[test]
fn a_thousand_idle_pools_take_little_memory() {
    let child = Child::of("names::child_with_idle_pools").spawn().unwrap();
    child.wait_for_acks(1, Duration::from_secs(120)).unwrap();
    println!("{:?} KB", child.acknowledged());
}

/// Pages that are put together tell of each pool what it tells of itself.
#[test]
fn pools_are_listed_page_by_page_as_each_is_alone() {
    for_each_store(async |place| {
        let store = open(&place).await;
        let work = shop(&store, &Diary::default()).await;
        for name in ["b", "a", "d", "c"] {
            work.pool(Pool::new(name)).await.unwrap();
        }
        for (pool, function, priority, count) in
            [("a", "note", 0, 3), ("a", "effect", 1, 1), ("c", "note", 0, 2)]
        {
            let item = NewWork::new(pool, function, "x").unwrap().priority(priority);
            work.enqueue_all(vec![item; count]).await.unwrap();
        }
        let claimed = Pull { functions: vec!["note".to_owned()], most: 2, ..pull("a", "note") };
        assert_eq!(work.pull(claimed).await.unwrap().items.len(), 2);
        for limit in [1, 2, 3, 1_000] {
            let (mut listed, mut after) = (Vec::new(), None);
            loop {
                let page = work.pool_page(after, limit).await.unwrap();
                assert!(page.pools.len() <= limit);
                listed.extend(page.pools);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            let names: Vec<&str> = listed.iter().map(|pool| pool.name.as_str()).collect();
            assert!(
                names.is_sorted() && ["a", "b", "c", "d", "shop"].iter().all(|name| names.contains(name))
            );
            for mut pool in listed {
                let mut alone = work.pool_status(&pool.name).await.unwrap();
                // Time goes on between the two.
                let ages = [&mut pool, &mut alone].map(|pool| pool.depth.oldest_age_ms.take().is_some());
                assert_eq!((&pool, ages[0]), (&alone, ages[1]));
                let expected = match pool.name.as_str() {
                    "a" => (2, 2, true),
                    "c" => (2, 0, true),
                    _ => (0, 0, false),
                };
                assert_eq!((pool.depth.pending, pool.depth.running, ages[0]), expected, "{}", pool.name);
            }
        }
    });
}

/// As many statements as there are pools and lanes took minutes where the database is a millisecond away.
#[test]
fn a_page_of_pools_takes_few_statements_however_many_lanes_they_have() {
    const POOLS: usize = 1_000;
    for_each_store(async |place| {
        let store = open(&place).await;
        let work = shop(&store, &Diary::default()).await;
        let pools = "(number, name, settings, is_paused, started_until, changed_at) \
                     SELECT i + 1000, 'pool ' || i, '{}', 0, 0, 0";
        fill(&store, "mainstay_pools", pools, POOLS).await;
        let lanes = "(number, pool, function, priority) SELECT i + 1000, 1001 + i % 900, 'f', i";
        fill(&store, "mainstay_lanes", lanes, MAX_LANES).await;
        let began = Instant::now();
        let page = work.pool_page(None, POOLS).await.unwrap();
        let took = began.elapsed();
        assert_eq!(page.pools.len(), POOLS);
        assert!(took < Duration::from_millis(700), "{}: {took:?}", place.kind());
    });
}
