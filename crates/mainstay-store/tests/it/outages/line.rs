//! Connections that are cut, or dead without saying so.

use super::load::{Load, is_about_silence, pair};
use super::{Line, PATIENCE, create_pairs, ids, on_postgres, until};
use mainstay_core::random::{Random, SeededRandom};
use mainstay_store::{Tx, params};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

#[test]
fn a_transaction_whose_connection_is_cut_is_run_again_on_another() {
    on_postgres(async |place| {
        let line = Arc::new(Line::to(&place));
        let store = line.open().await;
        create_pairs(&store).await;
        let (runs, reached) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
        let work = async |tx: Tx, (runs, reached): (Arc<AtomicU32>, Arc<Notify>)| {
            let run = runs.fetch_add(1, Ordering::Relaxed) + 1;
            tx.execute("INSERT INTO pairs (id, half) VALUES (1, $1)", params![run]).await?;
            if run == 1 {
                reached.notify_one();
                tx.query("SELECT pg_sleep(60)", &[]).await?;
            }
            tx.execute("INSERT INTO pairs (id, half) VALUES (1, 0)", &[]).await?;
            Ok(run)
        };
        let call = tokio::spawn({
            let (store, context) = (store.clone(), (runs.clone(), reached.clone()));
            async move { store.transact_with(context, work).await }
        });
        reached.notified().await;
        until(&place.open().await, SLEEPING, 1).await;
        line.proxy.cut_connections().await;
        assert_eq!(tokio::time::timeout(PATIENCE, call).await.unwrap().unwrap().unwrap(), 2);
        let halves = "SELECT half FROM pairs ORDER BY half";
        let rows = store.read(async |tx| tx.query(halves, &[]).await).await.unwrap();
        let halves: Vec<i64> = rows.iter().map(|row| row.get(0).unwrap()).collect();
        assert_eq!(halves, [0, 2], "the first run left nothing");
        assert_eq!(runs.load(Ordering::Relaxed), 2);
    });
}

/// How many sessions of this database are in the middle of a `pg_sleep`.
pub(super) const SLEEPING: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
    AND state = 'active' AND wait_event = 'PgSleep'";

#[test]
fn cuts_at_any_moment_lose_nothing_that_was_acknowledged() {
    on_postgres(async |place| {
        let line = Line::to(&place);
        let stores = [line.open().await, line.open().await];
        create_pairs(&stores[0]).await;
        let random = SeededRandom::new(2);
        let load = Load::start(&stores, 16);
        for cut in 0..120 {
            load.until_more(random.below(16)).await;
            if cut % 20 == 19 {
                line.proxy.cut().await;
                line.proxy.heal().await;
            } else {
                line.proxy.cut_connections().await;
            }
        }
        let before = load.acks();
        load.until_each_since(&before).await;
        let account = load.stop().await;
        eprintln!("{account}");
        account.check(&place.open().await).await;
    });
}

#[test]
fn a_line_gone_silent_ends_calls_in_time_and_new_ones_succeed_when_it_is_back() {
    on_postgres(async |place| {
        const LIMIT: Duration = Duration::from_millis(500);
        let line = Line::to(&place);
        let options = line.options().transaction_timeout(LIMIT).read_timeout(LIMIT).busy_timeout(2 * LIMIT);
        let store = options.open().await.unwrap();
        create_pairs(&store).await;
        // Fills the pool with connections that are about to be dead.
        let warm = Load::start(std::slice::from_ref(&store), 4);
        warm.until_more(100).await;
        warm.stop().await;

        line.proxy.half_open();
        let began = Instant::now();
        let calls = (0..8_i64).map(|number| {
            let store = store.clone();
            tokio::spawn(async move { store.transact_with(1_000_000 + number, pair).await })
        });
        for call in calls.collect::<Vec<_>>() {
            let error = tokio::time::timeout(PATIENCE, call).await.unwrap().unwrap().unwrap_err();
            let is_fit = is_about_silence(&error) || error.code() == "STORE_BUSY";
            assert!(is_fit && !error.is_outcome_unknown(), "{error}");
        }
        let silent = began.elapsed();
        assert!(silent < 3 * LIMIT + Duration::from_secs(2), "{silent:?}");
        eprintln!("calls on a silent line end after {silent:?}");

        line.proxy.heal().await;
        let began = Instant::now();
        let after = |number: i64| store.transact_with(2_000_000 + number, pair);
        let mut failed = 0;
        for number in 0..50 {
            while let Err(error) = after(number).await {
                assert!(error.is_retryable() || error.code() == "STORE_TIMEOUT", "{error}");
                failed += 1;
                assert!(began.elapsed() < Duration::from_secs(5), "{failed} failed, last with {error}");
            }
        }
        eprintln!("50 calls after the line was back: {:?}, {failed} failed", began.elapsed());
        let late: Vec<i64> =
            ids(&store).await.into_iter().filter(|id| (1_000_000..2_000_000).contains(id)).collect();
        assert_eq!(late, [] as [i64; 0], "said not to be done");
    });
}

#[test]
fn a_commit_that_nobody_answers_is_unknown() {
    on_postgres(async |place| {
        let line = Arc::new(Line::to(&place));
        let options = line.options().transaction_timeout(Duration::from_secs(1));
        let store = options.open().await.unwrap();
        create_pairs(&store).await;
        // The last thing the closure does is to silence the line: what comes next is the COMMIT.
        let work = async |tx: Tx, line: Arc<Line>| {
            pair(tx, 1).await?;
            line.proxy.half_open();
            Ok(())
        };
        let error = store.transact_with(line.clone(), work).await.unwrap_err();
        assert_eq!(error.code(), "STORE_COMMIT_UNKNOWN", "{error}");
        assert!(error.is_outcome_unknown() && error.is_retryable());
        line.proxy.cut_connections().await;
        line.proxy.heal().await;
        store.transact_with(2, pair).await.unwrap();
    });
}

#[test]
fn a_node_that_fell_silent_lets_go_of_its_locks() {
    on_postgres(async |place| {
        let line = Line::to(&place);
        let limit = Duration::from_secs(1);
        let silent = line.options().transaction_timeout(limit).open().await.unwrap();
        let other = place.open().await;
        let locked = Arc::new(Notify::new());
        let work = async |tx: Tx, locked: Arc<Notify>| {
            tx.lock("the log").await?;
            locked.notify_one();
            tx.query("SELECT pg_sleep(0.7)", &[]).await.map(drop)
        };
        let call = tokio::spawn({
            let (silent, locked) = (silent.clone(), locked.clone());
            async move { silent.transact_with(locked, work).await }
        });
        locked.notified().await;
        line.proxy.half_open();
        assert!(call.await.unwrap().is_err());
        let began = Instant::now();
        other.transact(async |tx| tx.lock("the log").await).await.unwrap();
        eprintln!("the lock of a silent node was free after {:?}", began.elapsed());
    });
}

#[test]
fn a_write_is_sent_only_after_its_begin_was_answered() {
    const DELAY: Duration = Duration::from_millis(50);
    on_postgres(async |place| {
        let line = Line::to(&place);
        let store = line.options().connections(1).open().await.unwrap();
        create_pairs(&store).await;
        let insert = async |tx: Tx, id: i64| {
            tx.execute("INSERT INTO pairs (id, half) VALUES ($1, 0)", params![id]).await
        };
        store.transact_with(1, insert).await.unwrap();
        line.proxy.delay(DELAY);
        let began = Instant::now();
        store.transact_with(2, insert).await.unwrap();
        // BEGIN, INSERT and COMMIT, there and back. An INSERT that overtook a BEGIN which then fails, because somebody
        // cancels it or the server was paused, would commit by itself.
        assert!(began.elapsed() >= 6 * DELAY, "{:?}", began.elapsed());
    });
}
