//! Whether a claim costs the same when a million items wait as when a thousand do, and when keys do.

use super::on_each;
use anyhow::{Result, ensure};
use mainstay_store::Options;
use mainstay_work::{COMPONENT, FunctionKind, Functions, NewWork, Pool, Pull, Work};
use std::time::{Duration, Instant};

/// Items of one claim, and claims of one shape: together what the smallest has.
const OF_A_CLAIM: usize = 10;
const CLAIMS: usize = 100;
const OF_A_BATCH: usize = 1_000;

/// What waits: how many items, and the key of each.
type Shape = (&'static str, usize, fn(usize) -> Option<String>);

const SHAPES: [Shape; 4] = [
    ("1,000 items", 1_000, |_| None),
    ("1,000,000 items", 1_000_000, |_| None),
    ("100,000 items, each with a key of its own", 100_000, |number| Some(format!("key-{number}"))),
    ("100,000 items of one key, and 1,000 others", 101_000, |number| {
        (number < 100_000).then(|| "the one".to_owned())
    }),
];

/// Prints the table.
pub async fn run() -> Result<()> {
    println!("\nClaims of {OF_A_CLAIM} items, {CLAIMS} of each shape, by a pull worker; the median counts\n");
    println!("| store      | what waits                                 | a claim, ms | ratio |");
    println!("|------------|--------------------------------------------|-------------|-------|");
    on_each(measure).await
}

async fn measure(kind: &str, url: &str) -> Result<()> {
    let store = Options::new(url).component(COMPONENT).open().await?;
    let work = Work::open(&store, Functions::new()).await?;
    work.declare("noop", FunctionKind::Action).await?;
    // Lines, plans and files are warm when it begins.
    work.pool(Pool::new("warm").max_parallelism(10_000)).await?;
    fill(&work, "warm", CLAIMS * OF_A_CLAIM, |_| None).await?;
    claims(&work, "warm").await?;
    let mut first = None;
    for (number, (name, items, key)) in SHAPES.into_iter().enumerate() {
        let pool = format!("shape-{number}");
        work.pool(Pool::new(&pool).max_parallelism(10_000)).await?;
        fill(&work, &pool, items, key).await?;
        let median = claims(&work, &pool).await?;
        let ratio = median / *first.get_or_insert(median);
        println!("| {kind:<10} | {name:<42} | {median:>11.3} | {ratio:>4.2}× |");
    }
    store.close().await;
    Ok(())
}

async fn fill(work: &Work, pool: &str, items: usize, key: fn(usize) -> Option<String>) -> Result<()> {
    for from in (0..items).step_by(OF_A_BATCH) {
        let item = |number| {
            let new = NewWork::new(pool, "noop", &number)?;
            Ok(match key(number) {
                Some(key) => new.key(key),
                None => new,
            })
        };
        let batch = (from..from + OF_A_BATCH).map(item).collect::<Result<Vec<_>>>()?;
        work.enqueue_all(batch).await?;
    }
    Ok(())
}

/// The median of what a claim takes, in milliseconds.
async fn claims(work: &Work, pool: &str) -> Result<f64> {
    let mut times = Vec::with_capacity(CLAIMS);
    for _ in 0..CLAIMS {
        let pull = Pull {
            pool: pool.to_owned(),
            functions: vec!["noop".to_owned()],
            most: OF_A_CLAIM,
            lease: Duration::from_secs(600),
            wait: Duration::ZERO,
            worker: "bench".to_owned(),
        };
        let began = Instant::now();
        let pulled = work.pull(pull).await?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
        ensure!(pulled.items.len() == OF_A_CLAIM, "{} items came of a claim", pulled.items.len());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[CLAIMS / 2])
}
