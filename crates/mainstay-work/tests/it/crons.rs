//! Crons that cannot fire, and crons of the platform.

use crate::bench_of_tools::{Diary, functions};
use mainstay_store::{Store, Tx, params};
use mainstay_testkit::stores::{Place, for_each_store};
use mainstay_testkit::time::{START_MS, VirtualTime};
use mainstay_work::bounds::MAX_LANES_OF_POOL;
use mainstay_work::{COMPONENT, Call, Cron, CronStatus, FunctionKind, Native, NewWork, Pool, Schedule, Work};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const MINUTE_MS: i64 = 60_000;

async fn open(place: &Place) -> (Store, VirtualTime) {
    let options = place.options().component(COMPONENT);
    VirtualTime::open_with(place, options).await.unwrap()
}

/// A process with functions of its own and one of the platform, `mainstay.test.note`.
async fn begin(store: &Store, diary: &Diary) -> Work {
    let noting = diary.clone();
    let functions = functions(diary).platform_action("mainstay.test.note", move |_: Call, what: String| {
        noting.note(format!("platform {what}"));
        async { Ok(()) }
    });
    // The clock is moved by minutes, which no lease is to notice.
    let work = Work::open_with_lease(store, functions, Duration::from_secs(86_400)).await.unwrap();
    work.pool(Pool::new("shop")).await.unwrap();
    work.pool(Pool::new("crowded")).await.unwrap();
    work
}

fn cron(name: &str, pool: &str, function: &str) -> Cron {
    let every = Schedule::interval(MINUTE_MS as u64, 0).unwrap();
    Cron::new(name, every, pool, function, name).unwrap()
}

async fn execute(store: &Store, sql: &'static str) {
    let changed =
        store.transact_with(sql, async |tx: Tx, sql: &'static str| tx.execute(sql, &[]).await).await;
    assert!(changed.unwrap() > 0, "{sql}");
}

async fn seen(work: &Work, name: &str) -> CronStatus {
    work.crons().await.unwrap().into_iter().find(|cron| cron.name == name).unwrap()
}

/// Waits until the next ticks of all crons are later than a moment.
async fn moved_on(work: &Work, now_ms: i64) {
    let waiting = async {
        while work.crons().await.unwrap().iter().any(|cron| cron.next_at <= now_ms) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("a cron keeps its tick");
}

#[test]
fn a_cron_that_cannot_fire_keeps_nothing_else_from_its_time() {
    for_each_store(async |place| {
        let ((store, time), diary) = (open(&place).await, Diary::default());
        let work = begin(&store, &diary).await;
        for function in ["gone", "late"] {
            work.declare(function, FunctionKind::Action).await.unwrap();
        }
        // The first of all by name and by time.
        work.cron(cron("a-gone", "shop", "gone")).await.unwrap();
        work.cron(cron("b-crowded", "crowded", "late")).await.unwrap();
        work.cron(cron("c-fine", "shop", "note")).await.unwrap();
        let delayed = NewWork::new("shop", "note", "delayed").unwrap();
        let delayed = work.enqueue(delayed.run_after(Duration::from_secs(60))).await.unwrap().work_id;
        // As an earlier version could leave it: a function that was deleted, and a pool without room.
        execute(&store, "DELETE FROM mainstay_lanes WHERE function IN ('gone', 'late')").await;
        execute(&store, "DELETE FROM mainstay_functions WHERE name = 'gone'").await;
        let full = async |tx: Tx, most: i64| {
            for number in 0..most {
                let sql = "INSERT INTO mainstay_lanes (number, pool, function, priority) \
                     SELECT 1000 + CAST($1 AS BIGINT), number, 'f', CAST($1 AS BIGINT) FROM mainstay_pools WHERE name = 'crowded'";
                tx.execute(sql, params![number]).await?;
            }
            Ok(())
        };
        store.transact_with(MAX_LANES_OF_POOL as i64, full).await.unwrap();

        let work = begin(&store, &diary).await;
        let engine = work.start().await.unwrap();
        let tick = START_MS + MINUTE_MS;
        time.set(tick).await.unwrap();
        engine.look_around();
        assert_eq!(work.wait_for(&delayed, PATIENCE).await.unwrap().native, Native::Success);
        moved_on(&work, tick).await;
        let fine = seen(&work, "c-fine").await;
        assert_eq!((fine.fired, fine.last_at, fine.failed_at, fine.error), (1, Some(tick), None, None));
        for (name, code) in [("a-gone", "UNKNOWN_FUNCTION: "), ("b-crowded", "WORK_NAMES_TOO_MANY: ")] {
            let failed = seen(&work, name).await;
            assert_eq!((failed.fired, failed.failed_at, failed.next_at), (0, Some(tick), tick + MINUTE_MS));
            assert!(failed.error.as_ref().is_some_and(|error| error.starts_with(code)), "{failed:?}");
        }

        // What was missing is there again.
        work.declare("gone", FunctionKind::Action).await.unwrap();
        time.set(tick + MINUTE_MS).await.unwrap();
        engine.look_around();
        moved_on(&work, tick + MINUTE_MS).await;
        let mended = seen(&work, "a-gone").await;
        assert_eq!((mended.fired, mended.failed_at, mended.error), (1, None, None));
        assert_eq!(seen(&work, "c-fine").await.fired, 2);
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_cron_whose_work_has_no_room_is_refused_at_once() {
    for_each_store(async |place| {
        let ((store, _), diary) = (open(&place).await, Diary::default());
        let work = begin(&store, &diary).await;
        work.declare("remote", FunctionKind::Action).await.unwrap();
        let item = |priority: usize| {
            let new = NewWork::new("shop", "note", "x").unwrap().priority(priority as i16);
            new.run_after(Duration::from_secs(3_600))
        };
        work.enqueue_all((0..MAX_LANES_OF_POOL).map(item).collect()).await.unwrap();
        let refused = work.put_cron(cron("c", "shop", "remote")).await.unwrap_err();
        assert_eq!(refused.code(), "WORK_NAMES_TOO_MANY");
        assert!(work.crons().await.unwrap().is_empty());
        work.put_cron(cron("c", "shop", "note")).await.unwrap();
    });
}

#[test]
fn crons_of_the_platform_are_neither_paused_nor_resumed_nor_removed() {
    for_each_store(async |place| {
        let ((store, time), diary) = (open(&place).await, Diary::default());
        let work = begin(&store, &diary).await;
        let own = || cron("mainstay.test.note", "shop", "mainstay.test.note");
        work.platform_cron(own()).await.unwrap();
        for name in ["mainstay.test.note", "MAINSTAY.test.note", " mainstay.test.note"] {
            for refused in [
                work.pause_cron(name, true).await,
                work.pause_cron(name, false).await,
                work.remove_cron(name).await,
                work.put_cron(Cron { name: name.to_owned(), ..own() }).await,
            ] {
                assert_eq!(refused.unwrap_err().code(), "NAME_RESERVED", "{name:?}");
            }
        }
        let engine = work.start().await.unwrap();
        time.set(START_MS + MINUTE_MS).await.unwrap();
        engine.look_around();
        let ticking = async {
            while diary.entries() != ["platform mainstay.test.note"] {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, ticking).await.expect("it goes on");
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_cron_that_a_caller_declared_for_a_function_of_the_platform_enqueues_nothing() {
    for_each_store(async |place| {
        let ((store, time), diary) = (open(&place).await, Diary::default());
        let work = begin(&store, &diary).await;
        // Two that a caller of an earlier version could declare: one of them under a name of the platform.
        work.platform_cron(cron("planted", "shop", "mainstay.test.note")).await.unwrap();
        work.platform_cron(cron("mainstay.planted", "shop", "mainstay.test.note")).await.unwrap();
        execute(&store, "UPDATE mainstay_crons SET is_platform = 0").await;
        work.platform_cron(cron("mainstay.test.note", "shop", "mainstay.test.note")).await.unwrap();
        let engine = work.start().await.unwrap();
        let tick = START_MS + MINUTE_MS;
        time.set(tick).await.unwrap();
        engine.look_around();
        moved_on(&work, tick).await;
        for name in ["planted", "mainstay.planted"] {
            let refused = seen(&work, name).await;
            assert_eq!((refused.fired, refused.failed_at), (0, Some(tick)), "{name}");
            assert!(refused.error.is_some_and(|error| error.starts_with("NAME_RESERVED: ")), "{name}");
        }
        assert_eq!(seen(&work, "mainstay.test.note").await.fired, 1);
        // Declared by the platform itself, as at the start of a program, it is marked and fires.
        work.platform_cron(cron("mainstay.planted", "shop", "mainstay.test.note")).await.unwrap();
        time.set(tick + MINUTE_MS).await.unwrap();
        engine.look_around();
        moved_on(&work, tick + MINUTE_MS).await;
        let (marked, planted) = (seen(&work, "mainstay.planted").await, seen(&work, "planted").await);
        assert_eq!((marked.fired, planted.fired), (1, 0));
        engine.stop(PATIENCE).await.unwrap();
    });
}
