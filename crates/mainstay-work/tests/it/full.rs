//! Sets of names that callers have filled: the platform, the program and what was promised before go on.

use crate::bench_of_tools::{Diary, effects, ended, functions, item, open, shop};
use mainstay_store::{Store, Tx, params};
use mainstay_testkit::stores::for_each_store;
use mainstay_work::bounds::{MAX_CRONS, MAX_FUNCTIONS, MAX_LANES, MAX_LANES_OF_POOL};
use mainstay_work::{
    Call, Cron, Failure, FunctionKind, Functions, LetterFilter, LetterStatus, Native, NewWork, Pool, Pull,
    RunOptions, Schedule, Work,
};
use serde_json::Value;
use serde_json::value::to_raw_value;
use std::sync::atomic::{AtomicI16, Ordering};
use std::time::Duration;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

pub(crate) async fn execute(store: &Store, sql: &'static str) -> u64 {
    store.transact_with(sql, async |tx: Tx, sql: &'static str| tx.execute(sql, &[]).await).await.unwrap()
}

pub(crate) async fn count(store: &Store, sql: &'static str) -> usize {
    let read = async |tx: Tx, sql: &'static str| tx.query_one(sql, &[]).await?.get::<u64>(0);
    store.read_with(sql, read).await.unwrap() as usize
}

/// Uses up the lanes of a pool, as a caller can: with items of one function and many priorities.
pub(crate) async fn fill(work: &Work, pool: &str) {
    work.declare("filler", FunctionKind::Action).await.unwrap();
    let lanes = async |tx: Tx, pool: String| {
        let sql = "SELECT count(*) FROM mainstay_lanes WHERE function NOT LIKE 'mainstay.%' \
             AND pool = (SELECT number FROM mainstay_pools WHERE name = $1)";
        tx.query_one(sql, params![pool]).await?.get::<i64>(0)
    };
    let lanes = work.store().read_with(pool.to_owned(), lanes).await.unwrap();
    let filler = || {
        let priority = PRIORITY.fetch_add(1, Ordering::Relaxed);
        NewWork::new(pool, "filler", "x").unwrap().priority(priority).run_after(HOUR)
    };
    let fillers: Vec<NewWork> = (lanes..MAX_LANES_OF_POOL as i64).map(|_| filler()).collect();
    if !fillers.is_empty() {
        work.enqueue_all(fillers).await.unwrap();
    }
    let refused = work.enqueue(filler()).await.unwrap_err();
    assert_eq!(refused.to_string(), "there are 400 lanes of a pool already");
}

/// A priority that no item has had.
static PRIORITY: AtomicI16 = AtomicI16::new(1_000);

pub(crate) fn pull(function: &str) -> Pull {
    Pull {
        pool: "shop".to_owned(),
        functions: vec![function.to_owned()],
        most: 1,
        lease: Duration::from_secs(60),
        wait: Duration::ZERO,
        worker: "w".to_owned(),
        must_be_known: Vec::new(),
    }
}

/// The room of the telling is the caller's: it is refused before there is anything to be told of.
#[test]
fn an_item_whose_telling_has_no_room_is_refused_at_once() {
    for_each_store(async |place| {
        let store = open(&place).await;
        let diary = Diary::default();
        let work = shop(&store, &diary).await;
        work.declare("told", FunctionKind::Action).await.unwrap();
        fill(&work, "shop").await;
        let refused = work.enqueue(item("note", "x").tell("told")).await.unwrap_err();
        assert_eq!(refused.to_string(), "there are 400 lanes of a pool already");
        // A mutation is told at once, and needs no lane for that.
        let id = work.enqueue(item("note", "x").tell("ended")).await.unwrap().work_id;
        let engine = work.start().await.unwrap();
        ended(&work, &id).await;
        assert_eq!(effects(&store).await, ["success "]);
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn pools_of_the_platform_that_callers_have_filled_take_the_platform_s_own_work() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let noting = diary.clone();
        let functions =
            functions(&diary).platform_action("mainstay.test.note", move |_: Call, what: String| {
                noting.note(what);
                async { Ok(()) }
            });
        let work = Work::open(&store, functions).await.unwrap();
        work.ensure_pool(Pool::platform_pool("publicationPool")).await.unwrap();
        let engine = work.start().await.unwrap();
        for pool in ["retrier", "timers", "publicationPool"] {
            let of_platform = || NewWork::platform(pool, "mainstay.test.note", pool).unwrap();
            // One before, which is not counted, and one after.
            work.enqueue(of_platform()).await.unwrap();
            fill(&work, pool).await;
            let id = work.enqueue(of_platform().priority(1)).await.unwrap().work_id;
            assert_eq!(ended(&work, &id).await.native, Native::Success, "{pool}");
            // And what the program itself runs.
            let id = work.enqueue(NewWork::new(pool, "note", "own").unwrap()).await.unwrap().work_id;
            assert_eq!(ended(&work, &id).await.native, Native::Success, "{pool}");
        }
        let run =
            work.run("flaky", "run", RunOptions { initial_backoff_ms: 1, ..RunOptions::default() }).await;
        assert_eq!(ended(&work, &run.unwrap()).await.native, Native::Success);
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_dead_letter_is_retried_in_a_pool_that_callers_have_filled() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        assert!(work.pull(pull("remote")).await.unwrap().items.is_empty());
        work.declare("told", FunctionKind::Action).await.unwrap();
        let id = work.enqueue(item("remote", "x").tell("told")).await.unwrap().work_id;
        let lease = work.pull(pull("remote")).await.unwrap().lease.unwrap();
        work.fail(&lease, &id, Failure::permanent("no")).await.unwrap();
        fill(&work, "shop").await;
        // An item of an earlier version made no lane for its telling.
        execute(&store, "DELETE FROM mainstay_work WHERE item LIKE '%completes%'").await;
        execute(&store, "DELETE FROM mainstay_lanes WHERE function = 'told'").await;
        fill(&work, "shop").await;
        let work = shop(&store, &diary).await;
        // Behind what is enqueued meanwhile, in a lane of its own.
        assert_eq!(work.retry_letters(LetterFilter::default()).await.unwrap(), 1);
        assert_eq!(work.pull(pull("remote")).await.unwrap().items.len(), 1);
    });
}

#[test]
fn a_claim_takes_from_more_lanes_than_one_query_joins() {
    const FUNCTIONS: usize = 1_001;
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let mut functions = functions(&diary);
        for number in 0..FUNCTIONS {
            let diary = diary.clone();
            functions = functions.action(format!("own-{number}"), move |_: Call, what: String| {
                diary.note(what);
                async { Ok(()) }
            });
        }
        let work = Work::open(&store, functions).await.unwrap();
        work.pool(Pool::new("shop").max_parallelism(10)).await.unwrap();
        let items = (0..FUNCTIONS).map(|number| item(&format!("own-{number}"), &number.to_string()));
        let items = work.enqueue_all(items.collect()).await.unwrap();
        let engine = work.start().await.unwrap();
        for one in &items {
            ended(&work, &one.work_id).await;
        }
        engine.stop(PATIENCE).await.unwrap();
        let mut done: Vec<usize> = diary.entries().iter().map(|what| what.parse().unwrap()).collect();
        // In the order of their places, as far as ten at once have one.
        assert!(done.iter().enumerate().all(|(at, number)| at.abs_diff(*number) < 40), "{done:?}");
        done.sort_unstable();
        assert_eq!(done, (0..FUNCTIONS).collect::<Vec<_>>());
    });
}

fn hourly(name: &str, function: &str) -> Cron {
    let every = Schedule::interval(3_600_000, 0).unwrap();
    Cron::new(name, every, "shop", function, "tick").unwrap()
}

/// Adds rows until a table has so many; `insert` says what a row of the number `i` is.
async fn add(store: &Store, table: &str, insert: &str, most: usize) {
    let sql = format!(
        "INSERT INTO {table} {insert} FROM (WITH RECURSIVE numbers(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers \
         WHERE i < {most}) SELECT i FROM numbers) AS numbers"
    );
    store.transact_with(sql, async |tx: Tx, sql: String| tx.execute(&sql, &[]).await).await.unwrap();
}

#[test]
fn a_program_starts_on_a_store_whose_names_callers_have_used_up() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        work.max_pools(20);
        let mut pools = 0;
        while work.put_pool(Pool::new(format!("caller-{pools}"))).await.is_ok() {
            pools += 1;
        }
        assert_eq!(pools, 20, "the pools of the platform and the program are not counted");
        let row = "(name, cron, next_at, is_paused, fired) SELECT 'cron ' || i, '', 0, 1, 0";
        add(&store, "mainstay_crons", row, MAX_CRONS).await;
        let lane = "(number, pool, function, priority) SELECT i + 1000, 1000000, 'f', i";
        add(&store, "mainstay_lanes", lane, MAX_LANES).await;
        let function = "(name, kind, declared_at) SELECT 'function ' || i, 'action', 0";
        add(&store, "mainstay_functions", function, MAX_FUNCTIONS).await;
        for refused in [
            work.put_pool(Pool::new("more")).await,
            work.put_cron(hourly("more", "note")).await,
            work.pull(pull("more")).await.map(drop),
            work.enqueue(item("note", "x").priority(7)).await.map(drop),
        ] {
            assert_eq!(refused.unwrap_err().code(), "WORK_NAMES_TOO_MANY");
        }

        let own = functions(&diary)
            .platform_action("mainstay.test.tend", async |_: Call, _: Value| Ok(()))
            .action("own", async |_: Call, _: Value| Ok(()));
        let program = Work::open(&store, own).await.unwrap();
        program.max_pools(20);
        program.pool(Pool::new("configured")).await.unwrap();
        program.ensure_pool(Pool::new("publicationPool.orders")).await.unwrap();
        program.declare("endpoint", FunctionKind::Action).await.unwrap();
        program.cron(hourly("configured", "own")).await.unwrap();
        program.platform_cron(hourly("mainstay.test.tend", "mainstay.test.tend")).await.unwrap();
        program.enqueue(item("own", "x")).await.unwrap();
        let named = "SELECT count(*) FROM mainstay_crons WHERE name IN ('configured', 'mainstay.test.tend')";
        assert_eq!(count(&store, named).await, 2);
        // Callers have no room more for that.
        let refused = program.put_cron(hourly("more", "own")).await.unwrap_err();
        assert_eq!(refused.code(), "WORK_NAMES_TOO_MANY");
    });
}

#[test]
fn a_function_is_kept_while_anything_names_it() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        let declare = async |function: &str| work.declare(function, FunctionKind::Action).await.unwrap();
        for function in ["waits", "runs", "dies", "ticks", "times", "handles", "free", "remote"] {
            declare(function).await;
        }
        work.enqueue(item("note", "x").tell("waits").run_after(HOUR)).await.unwrap();
        let running = work.enqueue(item("remote", "x").tell("runs")).await.unwrap().work_id;
        let lease = work.pull(pull("remote")).await.unwrap().lease.unwrap();
        let dead = work.enqueue(item("remote", "x").tell("dies")).await.unwrap().work_id;
        let dying = work.pull(pull("remote")).await.unwrap().lease.unwrap();
        work.fail(&dying, &dead, Failure::permanent("no")).await.unwrap();
        work.cron(hourly("ticks", "ticks")).await.unwrap();
        work.remove_cron("ticks").await.unwrap();
        work.cron(hourly("ticking", "ticks")).await.unwrap();
        work.set_timer(4_000_000_000_000, "times", "x").await.unwrap();
        let promise = async |tx: Tx, work: Work| {
            work.promise_in(&tx, "retrier", "handles");
            Ok(())
        };
        store.transact_with(work.clone(), promise).await.unwrap();
        for function in ["waits", "runs", "dies", "ticks", "times", "handles"] {
            let kept = work.delete_function(function).await.unwrap_err();
            assert_eq!(kept.code(), "WORK_NAME_IN_USE", "{function}");
        }
        for function in ["mainstay.append", "MAINSTAY.append", " mainstay.x"] {
            assert_eq!(work.delete_function(function).await.unwrap_err().code(), "NAME_RESERVED");
        }
        // A mutation that no program here registers any more: items may tell it their ends all the same.
        work.declare("formerly", FunctionKind::Mutation).await.unwrap();
        assert_eq!(work.delete_function("formerly").await.unwrap_err().code(), "WORK_NAME_IN_USE");
        work.delete_function("free").await.unwrap();
        work.complete(&lease, &running, to_raw_value(&1).unwrap()).await.unwrap();
    });
}

#[test]
fn a_node_that_remembers_a_function_that_another_one_has_deleted_gives_it_no_work() {
    for_each_store(async |place| {
        let (store, diary) = (open(&place).await, Diary::default());
        let work = shop(&store, &diary).await;
        work.declare("brief", FunctionKind::Action).await.unwrap();
        let other_store = if store.capabilities().many_nodes { open(&place).await } else { store.clone() };
        let other = Work::open(&other_store, Functions::new()).await.unwrap();
        // It has heard of the function, and of nothing else.
        let knows = async |tx: Tx, other: Work| other.knows_in(&tx, "brief").await;
        assert!(other_store.transact_with(other.clone(), knows).await.unwrap());
        work.delete_function("brief").await.unwrap();
        for refused in [
            other.enqueue(item("brief", "x")).await.map(drop),
            other.enqueue(item("note", "x").tell("brief")).await.map(drop),
            other.cron(hourly("brief", "brief")).await,
        ] {
            assert_eq!(refused.unwrap_err().code(), "UNKNOWN_FUNCTION");
        }
        assert_eq!(count(&store, "SELECT count(*) FROM mainstay_crons").await, 0);
        let pending = LetterFilter { status: Some(LetterStatus::Pending), ..LetterFilter::default() };
        assert!(work.letters(pending, 10).await.unwrap().is_empty());
    });
}
