//! How fast a read model with one row for each event is filled anew, and whether an event costs the same in a long log as in a
//! short one.

use super::on_each;
use super::rows::{Bed, ROWS};
use crate::rounds::{SyncTimes, median};
use crate::table::Table;
use anyhow::{Result, ensure};
use mainstay_flows::projections::replay::{Rebuild, ReplayStatus};
use std::time::{Duration, Instant};

/// Events of the log, and how often it is replayed; the median counts.
const LOGS: [(u64, usize); 3] = [(10_000, 5), (100_000, 3), (1_000_000, 1)];
/// Events of one chunk, which is one commit.
const CHUNK: u32 = 2_000;
const PATIENCE: Duration = Duration::from_secs(600);

/// Prints the table.
pub async fn run() -> Result<()> {
    println!(
        "\nReplay: a projection that writes one row for each event of 100 bytes, {CHUNK} events a commit, from the first event \
         on; the median of {} rounds",
        LOGS.map(|(_, rounds)| rounds.to_string()).join(", ")
    );
    let mut sync_times = SyncTimes::default();
    for _ in 0..3 {
        sync_times.measure()?;
    }
    println!("{sync_times}\n");
    let mut table = Table::new(["store", "events", "events /s", "µs an event", "ratio"]);
    on_each(async |kind, url| {
        let bed = Bed::open(url).await?;
        println!("- {}", bed.store.durability().await?);
        let mut first = None;
        for (events, rounds) in LOGS {
            let rate = measure(&bed, events, rounds).await?;
            let cost = 1e6 / rate;
            let ratio = cost / *first.get_or_insert(cost);
            let figures = [format!("{rate:.0}"), format!("{cost:.2}"), format!("{ratio:.2}×")];
            let [rate, cost, ratio] = figures;
            table.add([kind.to_owned(), events.to_string(), rate, cost, ratio]);
        }
        bed.store.close().await;
        Ok(())
    })
    .await?;
    print!("\n{}", table.render());
    Ok(())
}

/// Events per second of replaying a log of so many.
async fn measure(bed: &Bed, events: u64, rounds: usize) -> Result<f64> {
    bed.fill(events).await?;
    let engine = bed.work.start().await?;
    let mut rates = Vec::new();
    for _ in 0..rounds {
        let rebuild = Rebuild::of(ROWS).from(0).chunk_size(CHUNK);
        // Emptying the table is done when this answers, and is not counted.
        let begun = bed.projections.trigger_rebuild(rebuild).await?;
        let began = Instant::now();
        let progress = bed.projections.wait_for_rebuild(&begun.replay_id, PATIENCE).await?;
        rates.push(events as f64 / began.elapsed().as_secs_f64());
        ensure!(progress.status == ReplayStatus::Completed, "{progress:?}");
        let rows = bed.rows().await?;
        ensure!(rows == events, "{rows} rows of {events} events");
    }
    engine.stop(PATIENCE).await?;
    Ok(median(rates, |rate| *rate))
}
