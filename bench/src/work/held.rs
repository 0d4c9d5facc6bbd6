//! What becomes of the pace while somebody holds a snapshot open: what is deleted stays where it was for as long as they
//! could still see it, and a queue that passes by all of it at every claim comes to a halt.

use anyhow::Result;
use mainstay_store::Options;
use mainstay_work::{COMPONENT, Call, Failure, Functions, NewWork, Pool, Work};
use std::time::{Duration, Instant};
use tokio_postgres::NoTls;

/// How long the snapshot is held unless `--seconds` says otherwise.
pub const SECONDS: u64 = 600;
const BEFORE: Duration = Duration::from_secs(20);
/// How many rows the table has at most.
const ROWS: u64 = 20;
const POOL: &str = "held";
/// So many items wait at most, and so many at least.
const BACKLOG: u64 = 10_000;
const BATCH: usize = 1_000;

/// Prints the table.
pub async fn run(seconds: u64) -> Result<()> {
    println!("\nPostgreSQL, one node that enqueues and works, and a snapshot that is held for {seconds} s\n");
    println!("| snapshot held for, s | items worked /s | of before |");
    println!("|----------------------|-----------------|-----------|");
    crate::rounds::on_postgres(async |server, _| {
        let server = server.clone();
        let database = tokio::task::spawn_blocking(move || server.database()).await??;
        hold(database.url(), Duration::from_secs(seconds)).await
    })
    .await
}

async fn hold(url: &str, held: Duration) -> Result<()> {
    let store = Options::new(url).component(COMPONENT).open().await?;
    let functions =
        Functions::new().action("noop", |_: Call, _: usize| std::future::ready(Ok::<_, Failure>(())));
    let work = Work::open(&store, functions).await?;
    work.pool(Pool::new(POOL).max_parallelism(2_000)).await?;
    let engine = work.start().await?;
    let feeding = tokio::spawn(feed(work.clone()));
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);

    tokio::time::sleep(BEFORE / 4).await;
    let before = pace(&work, BEFORE).await;
    println!("| {:>20} | {before:>15.0} |           |", "not yet");
    client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM mainstay_work").await?;
    let (began, row) = (Instant::now(), (held / ROWS as u32).max(Duration::from_secs(5)));
    let mut slowest = f64::MAX;
    while began.elapsed() < held {
        let pace = pace(&work, row).await;
        slowest = slowest.min(pace / before);
        println!("| {:>20.0} | {pace:>15.0} | {:>8.2}× |", began.elapsed().as_secs_f64(), pace / before);
    }
    client.batch_execute("COMMIT").await?;
    let after = pace(&work, BEFORE).await;
    println!("| {:>20} | {after:>15.0} | {:>8.2}× |", "no more", after / before);
    println!("\nThe slowest stretch was at {slowest:.2}× of before.");
    feeding.abort();
    engine.stop(Duration::from_secs(5)).await?;
    store.close().await;
    Ok(())
}

/// Lets there always be something to do.
async fn feed(work: Work) -> Result<()> {
    loop {
        if work.depth(POOL).await?.pending > BACKLOG {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        }
        let batch =
            (0..BATCH).map(|number| Ok(NewWork::new(POOL, "noop", &number)?)).collect::<Result<_>>()?;
        work.enqueue_all(batch).await?;
    }
}

/// Items per second over a stretch.
async fn pace(work: &Work, stretch: Duration) -> f64 {
    let (from, began) = (work.figures().succeeded.get(), Instant::now());
    tokio::time::sleep(stretch).await;
    (work.figures().succeeded.get() - from) as f64 / began.elapsed().as_secs_f64()
}
