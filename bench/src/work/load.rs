//! The load and the table.

use super::{BATCH, Contender, Entry};
use crate::rounds::{SyncTimes, median, ratios};
use anyhow::{Context, Result, ensure};
use std::time::Instant;

/// Times that each contender has its turn; the median counts.
const ROUNDS: usize = 3;
/// Batches that are enqueued and worked before anything is counted: connections are opened, statements prepared, and
/// JavaScript compiled.
const WARM_UP: u64 = 5;

/// Prints how fast each enqueues and works so many items.
pub async fn contest(title: &str, entries: &[Entry], items: u64) -> Result<()> {
    println!(
        "\n{title}: {items} no-op items, enqueued {BATCH} at a time, then worked until none is left; \
         the median of {ROUNDS} rounds in turns"
    );
    let mut sync_times = SyncTimes::default();
    let mut rounds: Vec<Rounds> = entries.iter().map(|_| Rounds::default()).collect();
    for _ in 0..ROUNDS {
        sync_times.measure()?;
        for (entry, rounds) in entries.iter().zip(&mut rounds) {
            turn(entry, items / BATCH, rounds).await.with_context(|| entry.name)?;
        }
    }
    println!("{sync_times}\n");
    for (entry, rounds) in entries.iter().zip(&rounds) {
        println!("- {}: {}", entry.name, rounds.about);
    }
    print!("\n{}", table(entries, &rounds));
    Ok(())
}

/// What one contender did in each round, in items per second.
#[derive(Default)]
struct Rounds {
    about: String,
    enqueued: Vec<f64>,
    worked: Vec<f64>,
}

/// One contender on a database of its own.
async fn turn(entry: &Entry, batches: u64, rounds: &mut Rounds) -> Result<()> {
    let opened = entry.open().await?;
    rounds.about = opened.contender.about();
    measure(&*opened.contender, WARM_UP).await.context("warming up")?;
    let (enqueued, worked) = measure(&*opened.contender, batches).await?;
    rounds.enqueued.push(enqueued);
    rounds.worked.push(worked);
    opened.close().await
}

/// Items per second of enqueueing and of working.
async fn measure(contender: &dyn Contender, batches: u64) -> Result<(f64, f64)> {
    let items = batches * BATCH;
    let began = Instant::now();
    contender.enqueue(batches).await.context("enqueueing")?;
    let enqueued = began.elapsed();
    let waiting = contender.left().await?;
    ensure!(waiting == items, "{waiting} items of {items} are there to be worked");

    let began = Instant::now();
    let ran = contender.work().await.context("working")?;
    let worked = began.elapsed();
    ensure!(ran == items, "{ran} handlers ran for {items} items");
    let left = contender.left().await?;
    ensure!(left == 0, "{left} items of {items} are not completed");
    Ok((items as f64 / enqueued.as_secs_f64(), items as f64 / worked.as_secs_f64()))
}

/// The table as Markdown.
fn table(entries: &[Entry], rounds: &[Rounds]) -> String {
    let names: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
    let worked: Vec<Vec<f64>> = rounds.iter().map(|rounds| rounds.worked.clone()).collect();
    let ratios = ratios(&names, &worked);
    let width = |of: &[&str]| of.iter().map(|text| text.chars().count()).max().unwrap_or(0);
    let name_width = width(&names).max("what".len());
    let ratio_texts: Vec<&str> = ratios.iter().map(String::as_str).collect();
    let ratio_width = width(&ratio_texts).max("working, ratio".len());
    let row = |what: &str, worked: &str, enqueued: &str, ratio: &str| {
        format!("| {what:<name_width$} | {worked:>15} | {enqueued:>17} | {ratio:<ratio_width$} |\n")
    };
    let mut table = row("what", "items worked /s", "items enqueued /s", "working, ratio");
    table.push_str(&format!(
        "|{}|{}|{}|{}|\n",
        "-".repeat(name_width + 2),
        "-".repeat(17),
        "-".repeat(19),
        "-".repeat(ratio_width + 2)
    ));
    for ((name, rounds), ratio) in names.iter().zip(rounds).zip(&ratios) {
        let rate = |rates: &Vec<f64>| format!("{:.0}", median(rates.clone(), |rate| *rate));
        table.push_str(&row(name, &rate(&rounds.worked), &rate(&rounds.enqueued), ratio));
    }
    table
}
