//! Whether a claim costs the same when a million items wait as when a thousand do, and when keys do.

use super::on_each;
use anyhow::{Result, ensure};
use mainstay_store::{Options, Store};
use mainstay_work::{COMPONENT, FunctionKind, Functions, NewWork, Pool, Pull, Work};
use std::time::{Duration, Instant};

/// Items of one claim, and claims of one shape: together what the smallest has.
const OF_A_CLAIM: usize = 20;
const CLAIMS: usize = 50;
const OF_A_BATCH: usize = 1_000;
const POOL: &str = "shape";

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
    println!(
        "\nClaims of {OF_A_CLAIM} items by a pull worker, {CLAIMS} of each shape in a store of its own, in turns; \
         the median counts\n"
    );
    println!("| store      | what waits                                 | a claim, ms | ratio |");
    println!("|------------|--------------------------------------------|-------------|-------|");
    on_each(SHAPES.len(), measure).await
}

/// A pool, the store it is in, and how long its claims took.
struct Filled {
    store: Store,
    work: Work,
    times: Vec<f64>,
}

async fn measure(kind: &str, urls: &[String]) -> Result<()> {
    let mut shapes = Vec::new();
    for (url, (_, items, key)) in urls.iter().zip(SHAPES) {
        shapes.push(open(url, items, key).await?);
    }
    for _ in 0..CLAIMS {
        for filled in &mut shapes {
            filled.times.push(claim(&filled.work).await?);
        }
    }
    let mut first = None;
    for (mut filled, (name, ..)) in shapes.into_iter().zip(SHAPES) {
        filled.times.sort_by(f64::total_cmp);
        let median = filled.times[CLAIMS / 2];
        let ratio = median / *first.get_or_insert(median);
        println!("| {kind:<10} | {name:<42} | {median:>11.3} | {ratio:>4.2}× |");
        filled.store.close().await;
    }
    Ok(())
}

async fn open(url: &str, items: usize, key: fn(usize) -> Option<String>) -> Result<Filled> {
    let store = Options::new(url).component(COMPONENT).open().await?;
    let work = Work::open(&store, Functions::new()).await?;
    work.declare("noop", FunctionKind::Action).await?;
    work.pool(Pool::new(POOL).max_parallelism(10_000)).await?;
    fill(&work, items, key).await?;
    Ok(Filled { store, work, times: Vec::with_capacity(CLAIMS) })
}

async fn fill(work: &Work, items: usize, key: fn(usize) -> Option<String>) -> Result<()> {
    for from in (0..items).step_by(OF_A_BATCH) {
        let item = |number| {
            let new = NewWork::new(POOL, "noop", &number)?;
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

/// How long a claim takes, in milliseconds.
async fn claim(work: &Work) -> Result<f64> {
    let pull = Pull {
        pool: POOL.to_owned(),
        functions: vec!["noop".to_owned()],
        must_be_known: Vec::new(),
        most: OF_A_CLAIM,
        lease: Duration::from_secs(600),
        wait: Duration::ZERO,
        worker: "bench".to_owned(),
    };
    let began = Instant::now();
    let pulled = work.pull(pull).await?;
    let took = began.elapsed().as_secs_f64() * 1e3;
    ensure!(pulled.items.len() == OF_A_CLAIM, "{} items came of a claim", pulled.items.len());
    Ok(took)
}
