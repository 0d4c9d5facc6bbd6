//! Transactions that share a commit on SQLite: only the one that breaks things fails.

use mainstay_store::{Error, Listener, Options, Result, Store, Topic, Tx, params};
use mainstay_testkit::stores::{Kind, for_each_kind};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const MEMBERS: i64 = 64;
const CULPRIT: i64 = 31;

/// Far above what anything here takes; whoever reaches it is stuck.
const PATIENCE: Duration = Duration::from_secs(20);

const TABLES: [&str; 4] = [
    "CREATE TABLE parents (id BIGINT PRIMARY KEY)",
    "CREATE TABLE notes (id BIGINT PRIMARY KEY, \
        parent BIGINT REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)",
    "CREATE TABLE guarded (id BIGINT PRIMARY KEY)",
    "CREATE TRIGGER refuse BEFORE INSERT ON guarded BEGIN SELECT RAISE(ROLLBACK, 'refused by a trigger'); END",
];

/// What the culprit does in the middle of the group, after a write of its own.
type Mischief = fn(Tx) -> std::pin::Pin<Box<dyn Future<Output = Result<()>> + Send>>;

macro_rules! mischief {
    (|$tx:ident| $body:expr) => {
        |$tx: Tx| Box::pin(async move { $body })
    };
}

#[test]
fn or_rollback_costs_only_the_culprit() {
    let work: Mischief = mischief!(|tx| {
        tx.execute("INSERT OR ROLLBACK INTO notes (id) VALUES (31)", &[]).await?;
        Ok(())
    });
    assert_eq!(lone_failure(work, true), "STORE_CONSTRAINT");
}

#[test]
fn or_rollback_that_is_swallowed_costs_only_the_culprit() {
    // Without the transaction's own guard, what follows would commit by itself.
    let work: Mischief = mischief!(|tx| {
        drop(tx.execute("INSERT OR ROLLBACK INTO notes (id) VALUES (31)", &[]).await);
        drop(tx.execute("INSERT INTO notes (id) VALUES (1031)", &[]).await);
        Ok(())
    });
    assert_eq!(lone_failure(work, true), "STORE_TRANSACTION_FAILED");
}

#[test]
fn a_trigger_that_rolls_back_costs_only_the_culprit() {
    let work: Mischief = mischief!(|tx| {
        tx.execute("INSERT INTO guarded (id) VALUES (1)", &[]).await?;
        Ok(())
    });
    assert_eq!(lone_failure(work, true), "STORE_CONSTRAINT");
}

#[test]
fn a_deferred_foreign_key_costs_only_the_culprit() {
    let work: Mischief = mischief!(|tx| {
        tx.execute("UPDATE notes SET parent = 999 WHERE id = 31", &[]).await?;
        Ok(())
    });
    assert_eq!(lone_failure(work, true), "STORE_CONSTRAINT");
}

#[test]
fn an_interrupted_write_costs_only_the_culprit() {
    let work: Mischief = mischief!(|tx| {
        let endless = "INSERT INTO notes (id) WITH RECURSIVE n(i) AS \
            (SELECT 1000 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000000) SELECT i FROM n";
        tx.execute(endless, &[]).await?;
        Ok(())
    });
    assert_eq!(lone_failure(work, true), "STORE_TIMEOUT");
}

#[test]
fn a_panic_costs_only_the_culprit() {
    let work: Mischief = mischief!(|_tx| panic!("on purpose"));
    assert_eq!(lone_failure(work, false), "STORE_CLOSURE_PANICKED");
}

#[test]
fn a_foreign_await_costs_only_the_culprit() {
    let work: Mischief = mischief!(|_tx| {
        tokio::time::sleep(Duration::from_secs(60)).await;
        Ok(())
    });
    assert_eq!(lone_failure(work, false), "STORE_FOREIGN_AWAIT");
}

#[test]
fn an_error_of_its_own_costs_only_the_culprit() {
    let work: Mischief = mischief!(|_tx| Err(Error::application("no")));
    assert_eq!(lone_failure(work, false), "STORE_ROLLED_BACK");
}

/// Runs a group of 64 with a culprit in the middle; checks that everyone else committed, and whether that took a
/// second run; returns what the culprit was told.
fn lone_failure(work: Mischief, loses_the_group: bool) -> &'static str {
    let told = Arc::new(Mutex::new(""));
    let answer = told.clone();
    for_each_kind(&[Kind::SqliteFile], async move |place| {
        let options = place.options().transaction_timeout(Duration::from_secs(1));
        let store = with_tables(options).await;
        let outcomes = in_one_group(&store, work).await;
        for (id, outcome) in (0..).zip(&outcomes) {
            match (id, outcome) {
                (CULPRIT, Err(error)) => *answer.lock().unwrap() = error.code(),
                (CULPRIT, Ok(())) => panic!("the culprit was let through"),
                (_, Err(error)) => panic!("member {id}: {error}"),
                (_, Ok(())) => {}
            }
        }
        let expected: Vec<i64> = (0..MEMBERS).filter(|id| *id != CULPRIT).collect();
        assert_eq!(ids(&store).await, expected);
        assert_eq!(store.figures().groups_lost.get(), u64::from(loses_the_group));
        store
            .transact(async |tx| tx.execute("INSERT INTO notes (id) VALUES (5000)", &[]).await)
            .await
            .unwrap();
    });
    let told = told.lock().unwrap();
    *told
}

#[test]
fn savepoints_are_used_only_while_members_fail_after_writing() {
    for_each_kind(&[Kind::SqliteFile], async |place| {
        let store = with_tables(place.options()).await;
        let runs = Arc::new(AtomicI64::new(0));
        let group = async |culprit: Option<i64>, writes_first: bool, base: i64| {
            let (hold, holder) = hold_writer(&store).await;
            let before = runs.load(Ordering::Relaxed);
            let mut members = Vec::new();
            for number in 0..MEMBERS {
                let (caller, runs) = (store.clone(), runs.clone());
                members.push(tokio::spawn(async move {
                    caller
                        .transact_with(runs, move |tx, runs| async move {
                            runs.fetch_add(1, Ordering::Relaxed);
                            let is_culprit = culprit == Some(number);
                            if writes_first || !is_culprit {
                                tx.execute("INSERT INTO notes (id) VALUES ($1)", params![base + number])
                                    .await?;
                            }
                            if is_culprit { Err(Error::application("no")) } else { Ok(()) }
                        })
                        .await
                }));
                wait_for_queue(&store, number + 1).await;
            }
            drop(hold);
            holder.await.unwrap().unwrap();
            for (number, member) in (0..).zip(members) {
                assert_eq!(member.await.unwrap().is_err(), culprit == Some(number));
            }
            runs.load(Ordering::Relaxed) - before
        };
        assert_eq!(group(None, true, 1_000).await, MEMBERS, "nobody fails: each runs once");
        assert_eq!(group(Some(CULPRIT), false, 2_000).await, MEMBERS, "nothing to take back: each runs once");
        let spoilt = group(Some(CULPRIT), true, 3_000).await;
        assert_eq!(spoilt, MEMBERS + CULPRIT + 1, "those up to the culprit run again");
        assert_eq!(group(Some(CULPRIT), true, 4_000).await, MEMBERS, "now there are savepoints");
        assert_eq!(ids(&store).await.len() as i64, 4 * MEMBERS - 3);
        assert_eq!(store.figures().groups_lost.get(), 0);
    });
}

#[test]
fn a_member_that_failed_because_of_a_neighbour_is_asked_again_when_the_neighbour_is_gone() {
    for_each_kind(&[Kind::SqliteFile], async |place| {
        let store = with_tables(place.options()).await;
        let (hold, others) = hold_writer(&store).await;
        // The first takes the id but breaks a rule that is checked at the commit; the second is in its way.
        let first = spawn(
            &store,
            mischief!(|tx| {
                tx.execute("INSERT INTO notes (id, parent) VALUES (1, 999)", &[]).await?;
                Ok(())
            }),
        );
        wait_for_queue(&store, 1).await;
        let second = spawn(
            &store,
            mischief!(|tx| {
                tx.execute("INSERT INTO notes (id) VALUES (1)", &[]).await?;
                Ok(())
            }),
        );
        wait_for_queue(&store, 2).await;
        drop(hold);
        others.await.unwrap().unwrap();
        assert_eq!(first.await.unwrap().unwrap_err().code(), "STORE_CONSTRAINT");
        second.await.unwrap().expect("its neighbour was never committed");
        assert_eq!(ids(&store).await, [1]);
    });
}

#[test]
fn a_caller_that_gave_up_waiting_is_not_run() {
    for_each_kind(&[Kind::SqliteFile], async |place| {
        with_tables(place.options()).await.close().await;
        let store = place.options().busy_timeout(Duration::from_millis(500)).open().await.unwrap();
        let (hold, holder) = hold_writer(&store).await;
        let insert: Mischief = mischief!(|tx| {
            tx.execute("INSERT INTO notes (id) VALUES (1)", &[]).await?;
            Ok(())
        });
        let dropped = spawn(&store, insert);
        wait_for_queue(&store, 1).await;
        dropped.abort();
        assert!(dropped.await.unwrap_err().is_cancelled());
        let busy = spawn(&store, insert).await.unwrap().unwrap_err();
        assert_eq!(busy.code(), "STORE_BUSY");
        drop(hold);
        holder.await.unwrap().unwrap();
        assert_eq!(ids(&store).await, [] as [i64; 0], "whoever was told that nothing was done must be right");
    });
}

#[test]
fn every_member_of_a_group_wakes_its_listeners_and_a_failed_one_does_not() {
    for_each_kind(&[Kind::SqliteFile], async |place| {
        let store = with_tables(place.options()).await;
        let topics: Vec<Topic> = (0..4).map(|id| Topic::new(&format!("member.{id}")).unwrap()).collect();
        let mut listeners: Vec<Listener> = topics.iter().map(|topic| store.listen(topic.clone())).collect();
        let (hold, holder) = hold_writer(&store).await;
        let mut members = Vec::new();
        for (id, topic) in (0_i64..).zip(&topics) {
            let (caller, topic) = (store.clone(), topic.clone());
            let member = async |tx: Tx, (id, topic): (i64, Topic)| {
                tx.execute("INSERT INTO notes (id) VALUES ($1)", params![id]).await?;
                tx.wake(&topic)?;
                if id == 2 { Err(Error::application("no")) } else { Ok(()) }
            };
            members.push(tokio::spawn(async move { caller.transact_with((id, topic), member).await }));
            wait_for_queue(&store, id + 1).await;
        }
        drop(hold);
        holder.await.unwrap().unwrap();
        for (id, member) in members.into_iter().enumerate() {
            assert_eq!(member.await.unwrap().is_ok(), id != 2, "member {id}");
        }
        assert_eq!(ids(&store).await, [0, 1, 3]);
        for (id, listener) in listeners.iter_mut().enumerate() {
            // The commit is over, and with it all that it wakes.
            assert_eq!(listener.woken(Duration::ZERO).await, id != 2, "member {id}");
        }
    });
}

/// A store whose groups are never cut, with tables that are made at leisure.
async fn with_tables(options: Options) -> Store {
    let store = options.collecting(PATIENCE).open().await.unwrap();
    store
        .with_time_limit(PATIENCE)
        .transact(async |tx| {
            for sql in TABLES {
                tx.execute(sql, &[]).await?;
            }
            Ok(())
        })
        .await
        .unwrap();
    store
}

async fn ids(store: &Store) -> Vec<i64> {
    let rows = store.read(async |tx| tx.query("SELECT id FROM notes ORDER BY id", &[]).await).await.unwrap();
    rows.iter().map(|row| row.get(0).unwrap()).collect()
}

type Running<T> = tokio::task::JoinHandle<Result<T>>;

/// Occupies the writer until the sender is dropped, so that everyone after it waits for the same commit.
async fn hold_writer(store: &Store) -> (Sender<()>, Running<()>) {
    let (release, released) = channel();
    let (held, mut is_held) = tokio::sync::mpsc::unbounded_channel();
    let context = Arc::new(Mutex::new(released));
    // It is held for as long as it takes to queue up behind it, not for as long as one of them may run.
    let store = store.with_time_limit(PATIENCE);
    let holder = tokio::spawn(async move {
        store
            .transact_with((context, held), async |_tx, (released, held)| {
                let _ = held.send(());
                let _ = released.lock().unwrap().recv();
                Ok(())
            })
            .await
    });
    is_held.recv().await.unwrap();
    (release, holder)
}

fn spawn(store: &Store, work: Mischief) -> Running<()> {
    let store = store.clone();
    tokio::spawn(async move { store.transact(work).await })
}

async fn wait_for_queue(store: &Store, length: i64) {
    let began = Instant::now();
    while store.figures().queued.get() < length {
        assert!(began.elapsed() < PATIENCE, "{} of {length} wait", store.figures().queued.get());
        tokio::task::yield_now().await;
    }
}

/// Runs the members in one group, in order.
async fn in_one_group(store: &Store, work: Mischief) -> Vec<Result<()>> {
    let (hold, holder) = hold_writer(store).await;
    let mut members = Vec::new();
    for id in 0..MEMBERS {
        let caller = store.clone();
        members.push(tokio::spawn(async move {
            caller
                .transact(move |tx| async move {
                    tx.execute("INSERT INTO notes (id) VALUES ($1)", params![id]).await?;
                    if id == CULPRIT { work(tx).await } else { Ok(()) }
                })
                .await
        }));
        wait_for_queue(store, id + 1).await;
    }
    drop(hold);
    holder.await.unwrap().unwrap();
    let mut outcomes = Vec::new();
    for member in members {
        outcomes.push(member.await.unwrap());
    }
    outcomes
}
