//! How soon a read model shows what was appended: at a steady pace on a server with nothing else to do, and while another
//! read model is replayed (item 197 of the specification).

use super::on_each;
use super::rows::{Bed, OTHERS, ROWS};
use crate::rounds::SyncTimes;
use crate::table::Table;
use anyhow::{Context, Result, ensure};
use mainstay_events::{Append, Log, NewEvent};
use mainstay_flows::projections::Projections;
use mainstay_flows::projections::replay::{Rebuild, ReplayStatus};
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;

const PER_SECOND: u64 = 500;
const SECONDS: u64 = 20;
/// Before anything is counted.
const WARM_UP_SECONDS: u64 = 2;
const PATIENCE: Duration = Duration::from_secs(60);

/// Item 197: so many events are replayed while so many live ones come.
const REPLAYED: u64 = 1_000;
const LIVE: usize = 10;
/// Events of a chunk of that replay: so few that it is still going on when the live ones are there.
const CHUNK: u32 = 10;
const REPLAYS: usize = 5;

/// Prints the tables.
pub async fn run() -> Result<()> {
    println!(
        "\nVisible: {PER_SECOND} events a second for {SECONDS} s, one append each; from when the append of an event is due until \
         `wait_for` answers that the read model, a row for each event, has it: to one reader who asks for all of them, and to \
         everybody who appended"
    );
    let mut sync_times = SyncTimes::default();
    for _ in 0..3 {
        sync_times.measure()?;
    }
    println!("{sync_times}\n");
    let mut table = Table::new(["store", "who waits", "events", "p50 ms", "p99 ms", "longest ms"]);
    let head = ["store", "10 live events, p50 ms", "longest ms", "of the replay done then"];
    let mut replays = Table::new(head);
    on_each(async |kind, url| {
        let bed = Bed::open(url).await?;
        println!("- {}", bed.store.durability().await?);
        let mut live = during_replays(&bed).await?;
        live.sort_by(|one, other| one.0.total_cmp(&other.0));
        let ((longest, done), (middle, _)) = (live[REPLAYS - 1], live[REPLAYS / 2]);
        let done = format!("{done} of {}", bed.log.head().await?);
        replays.add([kind.to_owned(), format!("{middle:.3}"), format!("{longest:.3}"), done]);
        for (who, looking) in [("one reader", Looking::One), ("every caller", Looking::Everybody)] {
            let times = paced(&bed, looking).await?;
            let at = |quantile: f64| format!("{:.3}", times[((times.len() - 1) as f64 * quantile) as usize]);
            let count = times.len().to_string();
            table.add([kind.to_owned(), who.to_owned(), count, at(0.5), at(0.99), at(1.0)]);
        }
        bed.store.close().await;
        Ok(())
    })
    .await?;
    print!("\n{}", table.render());
    println!(
        "\nItem 197: {LIVE} live events appended while more than {REPLAYED} of another read model are replayed in chunks of \
         {CHUNK}, {REPLAYS} times, until `wait_for` answers\n"
    );
    print!("{}", replays.render());
    Ok(())
}

/// Who looks whether the read model has an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looking {
    /// One reader, for all of them.
    One,
    /// Whoever appended it.
    Everybody,
}

/// How long each event took, in milliseconds, sorted: from when its append was due until it was seen.
async fn paced(bed: &Bed, looking: Looking) -> Result<Vec<f64>> {
    let before = bed.log.head().await?;
    let projecting = bed.projections.start();
    bed.projections.wait_for(ROWS, before, PATIENCE).await?;
    let count = (WARM_UP_SECONDS + SECONDS) * PER_SECOND;
    let reader = match looking {
        Looking::One => Some(tokio::spawn(look(bed.projections.clone(), before, before + count))),
        Looking::Everybody => None,
    };
    let mut pace = tokio::time::interval(Duration::from_secs(1) / PER_SECOND as u32);
    // Whoever is late is late for all that follow: the pace is kept, and the delay counts.
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut callers = Vec::new();
    for _ in 0..count {
        let due = pace.tick().await.into_std();
        callers.push((due, tokio::spawn(append(bed.log.clone(), bed.projections.clone(), looking))));
    }
    let mut appended = Vec::new();
    for (due, caller) in callers {
        let (position, seen) = caller.await.context("a caller")??;
        appended.push((due, position, seen));
    }
    let seen_by_one = match reader {
        Some(reader) => reader.await.context("the reader")??,
        None => Vec::new(),
    };
    projecting.stop(PATIENCE).await;
    let (rows, events) = (bed.rows().await?, bed.log.head().await?);
    ensure!(rows == events && events == before + count, "{rows} rows of {events} events");
    let counted = appended.into_iter().skip((WARM_UP_SECONDS * PER_SECOND) as usize);
    let mut times: Vec<f64> = counted
        .map(|(due, position, seen)| {
            let seen = seen_by_one.get((position - before - 1) as usize).copied().unwrap_or(seen);
            (seen - due).as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Appends an event; its position, and when its caller saw that the read model has it or, if others look, that the log has.
async fn append(log: Log, projections: Projections, looking: Looking) -> Result<(u64, Instant)> {
    let event = NewEvent::new("Noted", &"x".repeat(98))?;
    let appended = log.append(Append::from(event)).await?;
    let position = appended.events.last().context("an event")?.position;
    if looking == Looking::Everybody {
        projections.wait_for(ROWS, position, PATIENCE).await?;
    }
    Ok((position, Instant::now()))
}

/// When the read model had each event between these positions.
async fn look(projections: Projections, after: u64, last: u64) -> Result<Vec<Instant>> {
    let mut seen = Vec::new();
    let mut reached = after;
    while reached < last {
        reached = projections.wait_for(ROWS, reached + 1, PATIENCE).await?;
        seen.resize((reached - after) as usize, Instant::now());
    }
    Ok(seen)
}

/// How long live events took to be projected while another projection was replayed, in milliseconds; and how many events of
/// that replay were done by then.
async fn during_replays(bed: &Bed) -> Result<Vec<(f64, u64)>> {
    bed.fill(REPLAYED).await?;
    let projecting = bed.projections.start();
    let engine = bed.work.start().await?;
    bed.projections.wait_for(ROWS, REPLAYED, PATIENCE).await?;
    bed.projections.wait_for(OTHERS, REPLAYED, PATIENCE).await?;
    let mut times = Vec::new();
    for _ in 0..REPLAYS {
        let rebuild = Rebuild::of(OTHERS).from(0).chunk_size(CHUNK);
        let begun = bed.projections.trigger_rebuild(rebuild).await?;
        while bed.projections.rebuild_status(&begun.replay_id).await?.chunks_completed == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let began = Instant::now();
        let event = NewEvent::new("Noted", &"x".repeat(98))?;
        let appended = bed.log.append(Append::new(vec![event; LIVE])).await?;
        let last = appended.events.last().context("an event")?.position;
        bed.projections.wait_for(ROWS, last, PATIENCE).await?;
        let took = began.elapsed().as_secs_f64() * 1e3;
        let progress = bed.projections.rebuild_status(&begun.replay_id).await?;
        ensure!(progress.status == ReplayStatus::Running, "the replay was over too soon: {progress:?}");
        times.push((took, progress.events_processed));
        bed.projections.wait_for_rebuild(&begun.replay_id, PATIENCE).await?;
        bed.projections.wait_for(OTHERS, last, PATIENCE).await?;
    }
    projecting.stop(PATIENCE).await;
    engine.stop(PATIENCE).await?;
    Ok(times)
}
