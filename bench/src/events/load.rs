//! The load, and the tables.

use super::{Callers, Contender, Entry, Verdict};
use crate::rounds::{SyncTimes, median, ratios};
use anyhow::{Context, Result, ensure};
use mainstay_bench::load::{Load, Outcome};
use mainstay_bench::table::Table;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Callers at once, as the tables show them.
const CALLERS: [usize; 3] = [1, 8, 64];
/// Times that each contender has its turn; the median counts.
const ROUNDS: usize = 3;
/// Before anything is counted.
const WARM_UP: Duration = Duration::from_millis(500);
/// Events in a store that is read.
const EVENTS_READ: u64 = 200_000;

/// Prints how fast each appends.
pub async fn appends(title: &str, entries: &[Entry], seconds: f64) -> Result<()> {
    if entries.is_empty() {
        println!("\n{title}: nobody to measure; `--features umadb` adds UmaDB (see README.md)");
        return Ok(());
    }
    println!("\n{title}: conditional appends, {seconds} s each, the median of {ROUNDS} rounds in turns");
    let mut table = Table::new();
    let mut sync_times = SyncTimes::default();
    let names: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
    for callers in CALLERS {
        let load = Load { callers, warm_up: WARM_UP, measured: Duration::from_secs_f64(seconds) };
        let mut outcomes: Vec<Vec<Outcome>> = entries.iter().map(|_| Vec::new()).collect();
        for _ in 0..ROUNDS {
            sync_times.measure()?;
            for (entry, outcomes) in entries.iter().zip(&mut outcomes) {
                outcomes.push(cell(entry, load).await.with_context(|| entry.name)?);
            }
        }
        let rates: Vec<Vec<f64>> =
            outcomes.iter().map(|rounds| rounds.iter().map(Outcome::per_second).collect()).collect();
        let ratios = ratios(&names, &rates);
        for ((entry, outcomes), ratio) in entries.iter().zip(outcomes).zip(ratios) {
            table.add(entry.name, &median(outcomes, Outcome::per_second), &ratio);
        }
    }
    println!("{sync_times}\n\n{}", table.render());
    Ok(())
}

/// Prints how fast each reads a log from end to end.
pub async fn reads(entries: &[Entry]) -> Result<()> {
    println!("\nAll of {EVENTS_READ} events read in order, the median of {ROUNDS} rounds in turns\n");
    let mut opened = Vec::new();
    for entry in entries {
        let store = entry.open().await.with_context(|| entry.name)?;
        fill(&store.contender, EVENTS_READ).await.with_context(|| entry.name)?;
        opened.push((entry.name, store, Vec::new()));
    }
    for _ in 0..ROUNDS {
        for (name, store, rates) in &mut opened {
            let began = Instant::now();
            let read = store.contender.read_all().await.context(*name)?;
            ensure!(read == EVENTS_READ, "{name} read {read} events of {EVENTS_READ}");
            rates.push(read as f64 / began.elapsed().as_secs_f64());
        }
    }
    println!("| what                 | events per second |");
    println!("|----------------------|-------------------|");
    for (name, store, rates) in opened {
        println!("| {name:<20} | {:>17.0} |", median(rates, |rate| *rate));
        store.close().await?;
    }
    Ok(())
}

/// One contender on an empty folder, for as long as the load lasts.
async fn cell(entry: &Entry, load: Load) -> Result<Outcome> {
    let store = entry.open().await?;
    refuses_twice(&*store.contender).await?;
    let contender = store.contender.clone();
    let append = move |caller, number| {
        let contender = contender.clone();
        async move { appended(&*contender, tag(caller, number)).await }
    };
    let outcome = match store.contender.callers() {
        Callers::Tasks => load.run(append).await,
        Callers::Threads => load.run_on_threads(append).await,
    };
    store.close().await?;
    Ok(outcome)
}

/// Whoever does not check the condition does less work than the others.
async fn refuses_twice(contender: &dyn Contender) -> Result<()> {
    let answers = [contender.append("twice".into()).await?, contender.append("twice".into()).await?];
    ensure!(answers == [Verdict::Appended, Verdict::Refused], "the condition does not hold: {answers:?}");
    Ok(())
}

async fn appended(contender: &dyn Contender, tag: String) -> Result<()> {
    let verdict = contender.append(tag).await?;
    ensure!(verdict == Verdict::Appended, "refused, although no event has that tag");
    Ok(())
}

/// Appends so many events, from many callers at once; on threads, where both kinds of callers may wait.
async fn fill(contender: &Arc<dyn Contender>, events: u64) -> Result<()> {
    let callers = 100;
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let contender = contender.clone();
            let fill = async move {
                for number in 0..events / callers as u64 {
                    appended(&*contender, tag(caller, number)).await?;
                }
                anyhow::Ok(())
            };
            let runtime = tokio::runtime::Handle::current();
            tokio::task::spawn_blocking(move || runtime.block_on(fill))
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// A tag that no other event has, and that does not sort by time: the number of a caller's call, stirred one to one.
/// (The steps are those of SplitMix64.)
pub fn tag(caller: usize, number: u64) -> String {
    let mut key = ((caller as u64) << 40 | number).wrapping_add(0x9e37_79b9_7f4a_7c15);
    key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    format!("order:{:016x}", key ^ key >> 31)
}
