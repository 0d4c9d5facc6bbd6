//! How long an item waits that a pool has time for: from the call that enqueues it to the start of its function.

use super::on_each;
use anyhow::Result;
use mainstay_store::Options;
use mainstay_work::{COMPONENT, Call, Failure, Functions, NewWork, Pool, Work};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const POOL: &str = "idle";
const ITEMS: usize = 500;

/// Prints the table.
pub async fn run() -> Result<()> {
    println!(
        "\nOne item at a time on an idle pool, {ITEMS} of them: from the call to the start of its function\n"
    );
    println!("| store      | p50 ms | p99 ms | longest ms |");
    println!("|------------|--------|--------|------------|");
    on_each(1, measure).await
}

async fn measure(kind: &str, urls: &[String]) -> Result<()> {
    let store = Options::new(&urls[0]).component(COMPONENT).open().await?;
    let (begun, mut beginning) = mpsc::unbounded_channel();
    let functions = Functions::new().action("noop", move |_: Call, _: usize| {
        let _ = begun.send(Instant::now());
        std::future::ready(Ok::<_, Failure>(()))
    });
    let work = Work::open(&store, functions).await?;
    work.pool(Pool::new(POOL)).await?;
    let engine = work.start().await?;
    let mut delays = Vec::with_capacity(ITEMS);
    for number in 0..ITEMS {
        let called = Instant::now();
        let enqueued = work.enqueue(NewWork::new(POOL, "noop", &number)?).await?;
        if let Some(began) = beginning.recv().await {
            delays.push((began - called).as_secs_f64() * 1e3);
        }
        // Idle again.
        work.wait_for(&enqueued.work_id, Duration::from_secs(10)).await?;
    }
    engine.stop(Duration::from_secs(5)).await?;
    store.close().await;
    delays.sort_by(f64::total_cmp);
    let at = |share: f64| delays[((ITEMS - 1) as f64 * share) as usize];
    println!("| {kind:<10} | {:>6.3} | {:>6.3} | {:>10.3} |", at(0.5), at(0.99), at(1.0));
    Ok(())
}
