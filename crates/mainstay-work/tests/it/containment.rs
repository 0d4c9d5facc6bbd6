//! Functions that go wrong: each is contained, told of, and nobody else notices.

use crate::ledger::{Actions, Found, PATIENCE, POOL, drained, functions, open_store, put};
use mainstay_store::{Store, Tx, params};
use mainstay_testkit::postgres::Doorman;
use mainstay_testkit::stores::{Kind, for_each_kind, for_each_store};
use mainstay_work::{
    ActionAnswer, Call, Canceled, Failure, Functions, LetterFilter, Native, NewWork, OnComplete, Pool,
    RetryPolicy, Status, Work, WorkResult,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const TWICE: u32 = 2;
/// What never returns is waited for so long.
const SOON: Duration = Duration::from_millis(100);
/// What has something to do first, if only to return, may take so long: a busy machine is no fault of a function.
const SLOW: Duration = Duration::from_secs(1);

/// Panics when it is dropped.
struct Brittle;

impl Drop for Brittle {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("dropped on purpose")
        }
    }
}

async fn effect(tx: &Tx, call: &Call) -> mainstay_store::Result<u64> {
    tx.execute("INSERT INTO effects (id) VALUES ($1)", params![&call.work_id]).await
}

/// Breaks the rule that no two pools have one number.
async fn break_rule(tx: &Tx) -> mainstay_store::Result<u64> {
    let sql = "INSERT INTO mainstay_pools (number, name, settings, is_paused, started_until, changed_at) \
         SELECT number, 'another', settings, 0, 0, 0 FROM mainstay_pools";
    tx.execute(sql, &[]).await
}

/// Adds to the functions of the ledger what goes wrong, each in its way.
fn bad_functions(store: &Store) -> Functions {
    functions(store)
        .action("panics", async |_: Call, (): ()| -> Result<(), Failure> { panic!("on purpose") })
        .raw_action(SLOW, "panics_at_once", |_: Call| -> std::future::Ready<ActionAnswer> {
            panic!("on purpose")
        })
        .action_within(SOON, "never_returns", async |_: Call, (): ()| {
            std::future::pending::<Result<(), Failure>>().await
        })
        .action_within(SOON, "panics_when_dropped", async |_: Call, (): ()| {
            let _brittle = Brittle;
            std::future::pending::<Result<(), Failure>>().await
        })
        .action("returns_too_much", async |_: Call, (): ()| Ok::<_, Failure>("x".repeat(70_000)))
        .mutation("puts_too_much", async |tx: Tx, call: Call, (): ()| {
            effect(&tx, &call).await?;
            Ok("x".repeat(70_000))
        })
        .mutation("panics_inside", async |tx: Tx, call: Call, (): ()| -> mainstay_store::Result<()> {
            effect(&tx, &call).await?;
            panic!("on purpose")
        })
        .mutation("waits_for_others", async |tx: Tx, call: Call, (): ()| {
            effect(&tx, &call).await?;
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(())
        })
        .mutation("breaks_a_rule", async |tx: Tx, call: Call, (): ()| {
            effect(&tx, &call).await?;
            break_rule(&tx).await
        })
        .mutation("hides_its_failure", async |tx: Tx, call: Call, (): ()| {
            effect(&tx, &call).await?;
            Ok(break_rule(&tx).await.is_err())
        })
        .mutation("tell_badly", async |tx: Tx, _: Call, told: OnComplete<String>| {
            match told.context.as_deref() {
                Some("panics") => panic!("on purpose"),
                Some("waits") => tokio::time::sleep(Duration::from_millis(1)).await,
                Some("hides") => drop(break_rule(&tx).await),
                _ => drop(break_rule(&tx).await?),
            }
            Ok(())
        })
}

async fn open_bad_shop(store: &Store, functions: Functions) -> Work {
    let work = Work::open(store, functions).await.unwrap();
    let retry = RetryPolicy::new(TWICE, 1, 1.0, 1).unwrap();
    work.pool(Pool::new(POOL).max_parallelism(100).retry(retry)).await.unwrap();
    work
}

fn item(function: &str) -> NewWork {
    NewWork::new(POOL, function, &()).unwrap().on_complete("told", &()).unwrap()
}

async fn statuses(work: &Work, enqueued: &[mainstay_work::Enqueued]) -> Vec<Status> {
    let mut statuses = Vec::new();
    for one in enqueued {
        statuses.push(work.status(&one.work_id).await.unwrap().expect("it is known"));
    }
    statuses
}

async fn letters(work: &Work) -> BTreeMap<String, mainstay_work::Letter> {
    let letters = work.letters(LetterFilter::default(), 1_000).await.unwrap();
    letters.into_iter().map(|letter| (letter.function.clone(), letter)).collect()
}

#[test]
fn whatever_a_function_does_it_alone_fails_and_that_is_told() {
    // What it ends with, and after how many executions.
    let bad = [
        ("panics", "panicked", TWICE),
        ("panics_at_once", "panicked", TWICE),
        ("never_returns", "did not return within 100 ms", TWICE),
        ("panics_when_dropped", "did not return within 100 ms", TWICE),
        ("returns_too_much", "has 70002 bytes, which are more than 65536", 1),
        ("puts_too_much", "has 70002 bytes, which are more than 65536", 1),
        ("panics_inside", "panicked: on purpose", TWICE),
        ("waits_for_others", "awaited something other than its own Tx", TWICE),
        ("breaks_a_rule", "unique constraint", TWICE),
        ("hides_its_failure", "an earlier statement failed", TWICE),
    ];
    for_each_store(async |place| {
        let store = open_store(place.options()).await;
        let work = open_bad_shop(&store, bad_functions(&store)).await;
        // All of them end together, with neighbours in between.
        let items = bad.iter().enumerate().flat_map(|(number, (function, _, _))| {
            [item(function), put(number as i64), put(1_000 + number as i64).key("k")]
        });
        let enqueued = work.enqueue_all(items.collect()).await.unwrap();
        let engine = work.start().await.unwrap();
        drained(&work).await;
        let letters = letters(&work).await;
        for (statuses, (function, wrong, attempts)) in statuses(&work, &enqueued).await.chunks(3).zip(bad) {
            assert_eq!((statuses[0].native, statuses[0].attempts), (Native::Failed, attempts), "{function}");
            let said = statuses[0].last_error.clone().unwrap_or_default();
            assert!(said.contains(wrong), "{function}: {said}");
            assert_eq!((&letters[function].error, letters[function].attempts), (&said, attempts));
            for neighbour in &statuses[1..] {
                assert_eq!((neighbour.native, neighbour.attempts), (Native::Success, 1), "beside {function}");
            }
        }
        assert_eq!(letters.len(), bad.len());
        let found = Found::load(&store).await;
        found.check(&[], Actions::InOrder).unwrap_or_else(|wrong| panic!("{wrong}"));
        // And it goes on.
        let after = work.enqueue(put(0)).await.unwrap();
        drained(&work).await;
        assert_eq!(work.status(&after.work_id).await.unwrap().unwrap().native, Native::Success);
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn an_item_that_cannot_be_read_fails_alone_and_its_text_is_kept() {
    for_each_store(async |place| {
        let store = open_store(place.options()).await;
        let work = open_bad_shop(&store, functions(&store)).await;
        let enqueued = work.enqueue_all((0..4).map(put).collect()).await.unwrap();
        let spoilt = [(1, "what \"is this"), (2, r#"{"function":7}"#)];
        for (number, text) in spoilt {
            let sql = "UPDATE mainstay_work SET item = $2 \
                 WHERE place = $1 + (SELECT min(place) FROM mainstay_work)";
            let spoil = move |tx: Tx| async move { tx.execute(sql, params![number, text]).await };
            assert_eq!(store.transact(spoil).await.unwrap(), 1);
        }
        let engine = work.start().await.unwrap();
        drained(&work).await;
        let ends: Vec<_> = statuses(&work, &enqueued).await.iter().map(|status| status.native).collect();
        assert_eq!(ends, [Native::Success, Native::Failed, Native::Failed, Native::Success]);
        let letters = work.letters(LetterFilter::default(), 1_000).await.unwrap();
        let mut kept: Vec<String> =
            letters.iter().map(|letter| serde_json::from_str(letter.args.get()).unwrap()).collect();
        kept.sort_unstable();
        assert_eq!(kept, ["what \"is this", r#"{"function":7}"#]);
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn whatever_an_on_complete_does_the_item_has_ended_as_it_did() {
    for_each_store(async |place| {
        let store = open_store(place.options()).await;
        let work = open_bad_shop(&store, bad_functions(&store)).await;
        let tell = |new: NewWork, how: &str| new.on_complete("tell_badly", how).unwrap();
        let ways = ["panics", "waits", "hides", "breaks"];
        let items = ways.iter().flat_map(|how| [tell(put(0), how), tell(item("panics"), how), put(0)]);
        let enqueued = work.enqueue_all(items.collect()).await.unwrap();
        let engine = work.start().await.unwrap();
        drained(&work).await;
        for statuses in statuses(&work, &enqueued).await.chunks(3) {
            let ends: Vec<_> = statuses.iter().map(|status| (status.native, status.attempts)).collect();
            assert_eq!(ends, [(Native::Success, 1), (Native::Failed, TWICE), (Native::Success, 1)]);
        }
        let letters = work.letters(LetterFilter::default(), 1_000).await.unwrap();
        let (of_tellings, of_items): (Vec<_>, Vec<_>) =
            letters.into_iter().partition(|letter| letter.kind == "onComplete");
        assert_eq!((of_tellings.len(), of_items.len()), (2 * ways.len(), ways.len()));
        assert!(of_tellings.iter().all(|letter| letter.attempts == TWICE));
        engine.stop(PATIENCE).await.unwrap();
    });
}

/// Holds threads until the test lets them go.
#[derive(Clone, Default)]
struct Barrier(Arc<(Mutex<bool>, Condvar)>, Arc<AtomicBool>);

impl Barrier {
    fn block(&self) {
        self.1.store(true, Ordering::SeqCst);
        let (is_open, opened) = &*self.0;
        drop(opened.wait_while(is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
    }

    /// Whether it has held anybody.
    fn has_held(&self) -> bool {
        self.1.load(Ordering::SeqCst)
    }

    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

/// Opens a barrier also when the test fails: a runtime waits for its threads.
struct Opening(Barrier);

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Looks without any help of the runtime, whose threads may all be held.
fn wait_until(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "it never happens");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An action that blocks its thread in its first execution, and returns which one it was.
fn blocking(functions: Functions, timeout: Duration, barrier: &Barrier) -> Functions {
    let barrier = barrier.clone();
    functions.action_within(timeout, "blocks", move |call: Call, (): ()| {
        let barrier = barrier.clone();
        async move {
            if call.attempt == 1 {
                barrier.block();
            }
            Ok::<_, Failure>(call.attempt)
        }
    })
}

fn returned(status: &Status) -> &str {
    match &status.result {
        Some(WorkResult::Success { return_value }) => return_value.get(),
        other => panic!("{other:?}"),
    }
}

/// A thread that is held is one less for the others, and that is all: the function is judged when its time is up, and what
/// it returns later is nobody's business.
#[test]
fn a_function_that_blocks_its_thread_is_ended_in_time_and_holds_nobody_else_up() {
    for_each_store(async |place| {
        let store = open_store(place.options()).await;
        let barrier = Barrier::default();
        let opening = Opening(barrier.clone());
        let work = open_bad_shop(&store, blocking(functions(&store), SLOW, &barrier)).await;
        let engine = work.start().await.unwrap();
        let mut enqueued = vec![work.enqueue(item("blocks").key("k")).await.unwrap()];
        // Everybody else comes while the thread is held.
        wait_until(|| barrier.has_held());
        enqueued.push(work.enqueue(put(1).key("k")).await.unwrap());
        for number in 0..10 {
            enqueued.push(work.enqueue(put(number)).await.unwrap());
        }
        drained(&work).await;
        wait_until(|| work.figures().stuck.get() == 1);
        drop(opening);
        wait_until(|| work.figures().stuck.get() == 0);
        drained(&work).await;
        let statuses = statuses(&work, &enqueued).await;
        assert_eq!((statuses[0].attempts, returned(&statuses[0])), (2, "2"), "{:?}", statuses[0]);
        assert!(statuses[0].last_error.as_deref().unwrap().contains("did not return within 1000 ms"));
        assert!(statuses[1..].iter().all(|status| (status.native, status.attempts) == (Native::Success, 1)));
        assert_eq!((work.figures().lost.get(), work.figures().running.get()), (0, 0));
        let found = Found::load(&store).await;
        found.check(&[], Actions::InOrder).unwrap_or_else(|wrong| panic!("{wrong}"));
        engine.stop(PATIENCE).await.unwrap();
    });
}

/// Nothing goes on while every thread of a node is held, and everything does when they are let go: also when the lease is
/// over by then, and somebody else could have done the work.
#[test]
fn a_node_all_of_whose_threads_are_held_goes_on_when_they_are_let_go() {
    // Longer than those functions may take, or it would be over in any case.
    const LEASE: Duration = Duration::from_secs(3);
    for_each_store(async |place| {
        for (round, is_lease_over) in [(1, false), (2, true)] {
            let store = open_store(place.options()).await;
            let barrier = Barrier::default();
            let opening = Opening(barrier.clone());
            let work = Work::open_with_lease(&store, blocking(functions(&store), SLOW, &barrier), LEASE)
                .await
                .unwrap();
            work.pool(Pool::new(POOL).retry(RetryPolicy::new(5, 1, 1.0, 1).unwrap())).await.unwrap();
            let items =
                vec![item("blocks"), item("blocks").key("k"), item("blocks"), put(round).key("k"), put(0)];
            let enqueued = work.enqueue_all(items).await.unwrap();
            let engine = work.start().await.unwrap();
            // There are two, and the third finds none.
            wait_until(|| work.figures().stuck.get() >= 2);
            if is_lease_over {
                std::thread::sleep(LEASE);
            }
            drop(opening);
            drained(&work).await;
            let statuses = statuses(&work, &enqueued).await;
            assert!(statuses.iter().all(|status| status.native == Native::Success), "{statuses:?}");
            wait_until(|| (work.figures().stuck.get(), work.figures().running.get()) == (0, 0));
            let found = Found::load(&store).await;
            found.check(&[], Actions::InOrder).unwrap_or_else(|wrong| panic!("{wrong}"));
            engine.stop(PATIENCE).await.unwrap();
            store.close().await;
        }
    });
}

/// Whoever waits for a lock that nobody gives back, in a way that blocks the thread or in one that does not.
#[test]
fn a_lock_that_was_leaked_ends_those_who_wait_for_it_and_nobody_else() {
    for_each_store(async |place| {
        let store = open_store(place.options()).await;
        let (blocking, waiting) = (Arc::new(Mutex::new(())), Arc::new(tokio::sync::Mutex::new(())));
        std::mem::forget(waiting.clone().lock_owned().await);
        let barrier = Barrier::default();
        let (leaked, leaking) = (Arc::new(AtomicBool::new(false)), (blocking.clone(), barrier.clone()));
        let is_leaked = leaked.clone();
        let holder = std::thread::spawn(move || {
            let _held = leaking.0.lock().unwrap();
            is_leaked.store(true, Ordering::SeqCst);
            leaking.1.block();
        });
        wait_until(|| leaked.load(Ordering::SeqCst));
        let opening = Opening(barrier.clone());
        let functions = functions(&store)
            .action_within(SLOW, "blocks_on_it", move |_: Call, (): ()| {
                let lock = blocking.clone();
                async move {
                    drop(lock.lock().unwrap());
                    Ok::<_, Failure>(())
                }
            })
            .action_within(SLOW, "waits_for_it", move |_: Call, (): ()| {
                let lock = waiting.clone();
                async move {
                    drop(lock.lock().await);
                    Ok::<_, Failure>(())
                }
            });
        let work = open_bad_shop(&store, functions).await;
        let engine = work.start().await.unwrap();
        // A second execution would hold the last thread.
        let once = RetryPolicy::new(1, 1, 1.0, 1).unwrap();
        let items = vec![item("blocks_on_it").retry(once), put(1), item("waits_for_it"), put(2)];
        let enqueued = work.enqueue_all(items).await.unwrap();
        drained(&work).await;
        let statuses = statuses(&work, &enqueued).await;
        let ends: Vec<_> = statuses.iter().map(|status| (status.native, status.attempts)).collect();
        let good = (Native::Success, 1);
        assert_eq!(ends, [(Native::Failed, 1), good, (Native::Failed, TWICE), good]);
        for ended in [&statuses[0], &statuses[2]] {
            assert!(ended.last_error.as_deref().unwrap().contains("did not return within 1000 ms"));
        }
        wait_until(|| work.figures().stuck.get() == 1);
        drop(opening);
        holder.join().unwrap();
        let found = Found::load(&store).await;
        found.check(&[], Actions::InOrder).unwrap_or_else(|wrong| panic!("{wrong}"));
        engine.stop(PATIENCE).await.unwrap();
    });
}

/// Who cancels it is obeyed when its time is up, and not before: nobody can take a thread away.
#[test]
fn a_function_that_blocks_its_thread_and_is_cancelled_ends_cancelled() {
    for_each_store(async |place| {
        let store = open_store(place.options()).await;
        let barrier = Barrier::default();
        let opening = Opening(barrier.clone());
        let work = open_bad_shop(&store, blocking(functions(&store), Duration::from_secs(1), &barrier)).await;
        let engine = work.start().await.unwrap();
        let once = RetryPolicy::new(1, 1, 1.0, 1).unwrap();
        let new = work.enqueue(item("blocks").retry(once)).await.unwrap();
        while work.figures().running.get() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(work.cancel(&new.work_id).await.unwrap(), Canceled::Asked);
        drained(&work).await;
        assert_eq!(work.status(&new.work_id).await.unwrap().unwrap().native, Native::Canceled);
        drop(opening);
        engine.stop(PATIENCE).await.unwrap();
    });
}

/// Work that is refused when the transaction ends: nobody's statement fails, but the commit does.
#[test]
fn whoever_enqueues_what_cannot_be_fails_alone() {
    for_each_store(async |place| {
        let store = open_store(place.options()).await;
        let own: Arc<Mutex<Option<Work>>> = Arc::default();
        let (enqueueing, telling) = (own.clone(), own.clone());
        let nonsense = |own: &Mutex<Option<Work>>, tx: &Tx| {
            let work = own.lock().unwrap().clone().unwrap();
            work.enqueue_in(tx, [NewWork::new(POOL, "nobody_knows_it", &()).unwrap()])
        };
        let functions = bad_functions(&store)
            .mutation("enqueues_nonsense", move |tx: Tx, _: Call, (): ()| {
                let enqueued = nonsense(&enqueueing, &tx).map(drop).map_err(Into::into);
                std::future::ready(enqueued)
            })
            .mutation("told_nonsense", move |tx: Tx, _: Call, _: OnComplete| {
                let enqueued = nonsense(&telling, &tx).map(drop).map_err(Into::into);
                std::future::ready(enqueued)
            });
        let work = open_bad_shop(&store, functions).await;
        *own.lock().unwrap() = Some(work.clone());
        let told = |new: NewWork| new.on_complete("told_nonsense", &()).unwrap();
        let items = vec![item("enqueues_nonsense"), put(1), told(put(2)), told(item("panics")), put(3)];
        let enqueued = work.enqueue_all(items).await.unwrap();
        let engine = work.start().await.unwrap();
        drained(&work).await;
        let statuses = statuses(&work, &enqueued).await;
        let ends: Vec<_> = statuses.iter().map(|status| (status.native, status.attempts)).collect();
        let (good, once, twice) = ((Native::Success, 1), (Native::Failed, 1), (Native::Failed, TWICE));
        assert_eq!(ends, [once, good, good, twice, good]);
        let said = statuses[0].last_error.clone().unwrap();
        assert!(said.contains("UNKNOWN_FUNCTION"), "{said}");
        let letters = work.letters(LetterFilter::default(), 10).await.unwrap();
        let tellings: Vec<_> = letters.iter().filter(|letter| letter.kind == "onComplete").collect();
        assert_eq!(tellings.len(), 2);
        assert!(tellings.iter().all(|letter| letter.error.contains("UNKNOWN_FUNCTION")));
        *own.lock().unwrap() = None;
        engine.stop(PATIENCE).await.unwrap();
    });
}

/// An `onComplete` that leads to another one, and so on, comes to an end, and everything that was enqueued ends.
#[test]
fn an_on_complete_that_never_ends_is_ended() {
    for_each_store(async |place| {
        let store = open_store(place.options()).await;
        let own: Arc<Mutex<Option<Work>>> = Arc::default();
        let again = own.clone();
        let functions = functions(&store).mutation("again", move |tx: Tx, _: Call, _: OnComplete| {
            let work = again.lock().unwrap().clone().unwrap();
            let new = put(0).on_complete("again", &()).unwrap();
            std::future::ready(work.enqueue_in(&tx, [new]).map(drop).map_err(Into::into))
        });
        let work = open_bad_shop(&store, functions).await;
        *own.lock().unwrap() = Some(work.clone());
        let engine = work.start().await.unwrap();
        work.enqueue(put(0).on_complete("again", &()).unwrap()).await.unwrap();
        drained(&work).await;
        let letters = work.letters(LetterFilter::default(), 10).await.unwrap();
        assert_eq!(letters.len(), 1, "{letters:?}");
        assert_eq!((letters[0].kind.as_str(), letters[0].function.as_str()), ("onComplete", "again"));
        assert!(letters[0].error.contains("WORK_RECURSION"), "{}", letters[0].error);
        assert_eq!(Found::load(&store).await.tally()["success"], mainstay_work::MAX_DEPTH as usize + 1);
        *own.lock().unwrap() = None;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_mutation_that_takes_too_long_fails_alone() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let limit = Duration::from_secs(2);
        let store = open_store(place.options().transaction_timeout(limit)).await;
        let functions = functions(&store).mutation("sleeps", async |tx: Tx, _: Call, seconds: f64| {
            tx.query(&format!("SELECT pg_sleep({seconds})"), &[]).await.map(drop)
        });
        let work = open_bad_shop(&store, functions).await;
        let sleep =
            |seconds: f64| NewWork::new(POOL, "sleeps", &seconds).unwrap().on_complete("told", &()).unwrap();
        // The last ones are short enough, but not behind each other.
        let items = vec![put(1), sleep(10.0), put(2), sleep(1.2), sleep(1.2), put(3)];
        let enqueued = work.enqueue_all(items).await.unwrap();
        let engine = work.start().await.unwrap();
        drained(&work).await;
        let statuses = statuses(&work, &enqueued).await;
        let ends: Vec<_> = statuses.iter().map(|status| (status.native, status.attempts)).collect();
        let good = (Native::Success, 1);
        assert_eq!(ends, [good, (Native::Failed, TWICE), good, good, good, good]);
        assert!(statuses[1].last_error.as_deref().unwrap().contains("stopped after 2000 ms"));
        let found = Found::load(&store).await;
        found.check(&[], Actions::InOrder).unwrap_or_else(|wrong| panic!("{wrong}"));
        engine.stop(PATIENCE).await.unwrap();
    });
}

/// What was left by a node that is gone and cannot be read keeps nobody from working.
#[test]
fn a_batch_that_cannot_be_read_keeps_nobody_from_working() {
    for_each_store(async |place| {
        let store = open_store(place.options()).await;
        let work = open_bad_shop(&store, functions(&store)).await;
        let spoil = async |tx: Tx| {
            tx.execute("INSERT INTO mainstay_leases (number, holder, until_ms) VALUES (-1, 'gone', 0)", &[])
                .await?;
            let sql = "INSERT INTO mainstay_batches (number, lease, pool, taken_at, ids, items) \
                 VALUES (-1, -1, 1, 0, $1, 'what is this')";
            tx.execute(sql, params![vec![0_u8; 16]]).await
        };
        store.transact(spoil).await.unwrap();
        let engine = work.start().await.unwrap();
        let new = work.enqueue(put(1)).await.unwrap();
        drained(&work).await;
        assert_eq!(work.status(&new.work_id).await.unwrap().unwrap().native, Native::Success);
        engine.stop(PATIENCE).await.unwrap();
    });
}

/// Timers, retries and other crons are made ready beside it.
#[test]
fn a_cron_that_cannot_be_read_keeps_nothing_from_its_time() {
    for_each_store(async |place| {
        let store = open_store(place.options()).await;
        let work = open_bad_shop(&store, functions(&store)).await;
        let spoil = async |tx: Tx| {
            let sql = "INSERT INTO mainstay_crons (name, cron, next_at, is_paused, fired, last_at) \
                 VALUES ('spoilt', 'what is this', 1, 0, 0, NULL)";
            tx.execute(sql, &[]).await
        };
        store.transact(spoil).await.unwrap();
        let engine = work.start().await.unwrap();
        let later = work.enqueue(put(1).run_after(Duration::from_millis(20))).await.unwrap();
        let ended = work.wait_for(&later.work_id, PATIENCE).await.unwrap();
        assert_eq!(ended.native, Native::Success);
        engine.stop(PATIENCE).await.unwrap();
    });
}

/// The first urgent item of a pool is in a lane that nobody knew of when the backlog began.
#[test]
fn an_urgent_item_is_not_starved_by_a_backlog() {
    for_each_store(async |place| {
        let store = open_store(place.options()).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let noting = order.clone();
        let functions = functions(&store).action("note", move |_: Call, name: String| {
            noting.lock().unwrap().push(name);
            async {
                tokio::time::sleep(Duration::from_millis(2)).await;
                Ok::<_, Failure>(())
            }
        });
        let work = Work::open(&store, functions).await.unwrap();
        work.pool(Pool::new(POOL).max_parallelism(2)).await.unwrap();
        let note = |name: &str| NewWork::new(POOL, "note", name).unwrap();
        work.enqueue_all((0..500).map(|_| note("usual")).collect()).await.unwrap();
        let engine = work.start().await.unwrap();
        let begun = || order.lock().unwrap().len();
        let beginning = async {
            while begun() < 10 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, beginning).await.expect("nothing begins");
        work.enqueue(note("urgent").priority(-1)).await.unwrap();
        let before = begun();
        drained(&work).await;
        let place = order.lock().unwrap().iter().position(|name| name == "urgent").unwrap();
        println!("{}: enqueued after {before}, begun after {place} of 500", work.store().location());
        assert!(place < before + 50, "enqueued after {before}, begun after {place}");
        engine.stop(PATIENCE).await.unwrap();
    });
}

/// An item that somebody makes ready at this moment is neither waiting nor running for whoever cancels it.
#[test]
fn an_item_is_cancelled_while_it_is_made_ready() {
    for_each_kind(&[Kind::Postgres], async |place| {
        const DOOR: i64 = 9;
        let (store, doorman) = (open_store(place.options()).await, Doorman::new(&place).await);
        let work = open_bad_shop(&store, functions(&store)).await;
        work.pause(POOL).await.unwrap();
        let new = work.enqueue(put(1).run_after(Duration::from_millis(50))).await.unwrap();
        doorman.guard_commits("mainstay_work", DOOR).await;
        doorman.shut(DOOR).await;
        let engine = work.start().await.unwrap();
        doorman.until_waiting(1).await;
        let (canceling, id) = (work.clone(), new.work_id.clone());
        let canceling = tokio::spawn(async move { canceling.cancel(&id).await });
        doorman.until_waiting(2).await;
        doorman.open(DOOR).await;
        assert_eq!(canceling.await.unwrap().unwrap(), Canceled::AtOnce);
        assert_eq!(work.status(&new.work_id).await.unwrap().unwrap().native, Native::Canceled);
        engine.stop(PATIENCE).await.unwrap();
    });
}
