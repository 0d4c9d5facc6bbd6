//! SQLite: a read that stays open while others write. How long does the log get, and does anybody say so?

use anyhow::Result;
use mainstay_bench::load::Load;
use mainstay_bench::store;
use mainstay_store::Options;
use std::time::{Duration, Instant};

/// Writes for `minutes` with a read open all the time, or as long as the store lets it.
pub async fn run(minutes: u64) -> Result<()> {
    let folder = tempfile::tempdir_in(".")?;
    let url = format!("sqlite:{}", folder.path().join("store.db").display());
    let limit = Duration::from_secs(minutes * 60 + 60);
    let ours = Options::new(url).read_timeout(limit).open().await?;
    store::prepare(&ours).await?;
    println!("\n{}; a read stays open for {minutes} minutes under load\n", ours.durability().await?);
    let began = Instant::now();
    let reader = tokio::spawn({
        let ours = ours.clone();
        async move {
            let sql = "WITH RECURSIVE n(i) AS (SELECT count(*) FROM mainstay_bench_orders UNION ALL \
                       SELECT i + 1 FROM n WHERE i < 1000000000000) SELECT count(*) FROM n";
            let ended = ours.read_with(sql, async |tx, sql| tx.query(sql, &[]).await).await;
            (ended.err().map(|error| error.to_string()), began.elapsed())
        }
    });
    for minute in 0..minutes {
        let load = Load { callers: 16, warm_up: Duration::ZERO, measured: Duration::from_secs(60) };
        let outcome = store::measure(&ours, load, minute).await;
        println!(
            "minute {:>2}: {:>6.0} per second, p99 {:.2} ms, log {:>4} MiB, reads ended {}",
            minute + 1,
            outcome.per_second(),
            outcome.latency_ms(0.99),
            ours.figures().wal_bytes.get() >> 20,
            ours.figures().reads_evicted.get(),
        );
    }
    if reader.is_finished() {
        let (reason, after) = reader.await?;
        println!("the read ended after {:.0} s: {}", after.as_secs_f64(), reason.unwrap_or_default());
    } else {
        println!("the read is still open");
        // The process ends with it.
        std::process::exit(0);
    }
    Ok(())
}
