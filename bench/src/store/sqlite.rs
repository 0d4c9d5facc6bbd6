//! SQLite: Mainstay against rusqlite inline.

use super::{CALLERS, load};
use anyhow::Result;
use mainstay_bench::load::Outcome;
use mainstay_bench::store::{self, INSERT_LINE, INSERT_ORDER, NOTE, key};
use mainstay_bench::{disk, table::Table};
use mainstay_store::Store;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Prints the table.
pub async fn run() -> Result<()> {
    let folder = tempfile::tempdir_in(".")?;
    let url = format!("sqlite:{}", folder.path().join("store.db").display());
    let ours = Store::open(&url).await?;
    store::prepare(&ours).await?;
    println!(
        "\n{}; the disk syncs a page in {:.3} ms\n",
        ours.durability().await?,
        disk::sync_time(folder.path())?.as_secs_f64() * 1e3
    );

    let by_hand = inline(&folder.path().join("by-hand.db")).await?;
    let mut table = Table::new();
    table.add("rusqlite inline", &by_hand, "");
    let mut alone = None;
    for (run, callers) in CALLERS.into_iter().enumerate() {
        let outcome = store::measure(&ours, load(callers), run as u64).await;
        let rate = outcome.per_second();
        let alone = *alone.get_or_insert(rate);
        let ratio = match callers {
            1 => format!("{:.2}× inline", rate / by_hand.per_second()),
            _ => format!("{:.1}× one caller", rate / alone),
        };
        table.add("mainstay", &outcome, &ratio);
    }
    println!("{}", table.render());
    let figures = ours.figures();
    println!(
        "group size p50 ≤ {}, p99 ≤ {}; commit p50 ≤ {} µs; checkpoint hold p50 ≤ {} µs, p99.9 ≤ {} µs",
        figures.group_size.snapshot().quantile(0.5),
        figures.group_size.snapshot().quantile(0.99),
        figures.commit_time.snapshot().quantile(0.5),
        figures.checkpoint_hold.snapshot().quantile(0.5),
        figures.checkpoint_hold.snapshot().quantile(0.999),
    );
    Ok(())
}

/// The same statements and settings, on the caller's own thread.
async fn inline(path: &Path) -> Result<Outcome> {
    let db = rusqlite::Connection::open(path)?;
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
         CREATE TABLE mainstay_bench_orders (id TEXT PRIMARY KEY, at BIGINT NOT NULL);
         CREATE TABLE mainstay_bench_lines (id TEXT PRIMARY KEY, note TEXT NOT NULL);",
    )?;
    let db = Arc::new(Mutex::new(db));
    let (order, line) = (INSERT_ORDER.replace('$', "?"), INSERT_LINE.replace('$', "?"));
    let outcome = load(1)
        .run(move |caller, number| {
            let (db, order, line) = (db.clone(), order.clone(), line.clone());
            async move {
                let mut db = db.lock().expect("nobody panics with it");
                let key = key(0, caller, number);
                let transaction = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
                transaction.prepare_cached(&order)?.execute((&key, number as i64))?;
                transaction.prepare_cached(&line)?.execute((&key, NOTE))?;
                transaction.commit()?;
                Ok(())
            }
        })
        .await;
    Ok(outcome)
}
