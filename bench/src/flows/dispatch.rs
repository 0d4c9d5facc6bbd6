//! Commands: each folds the events of its own boundary, writes a row, appends an event on the condition that the boundary is
//! as it was, and starts an item of work.

use super::mainstay::Task;
use super::{disintegrate, mainstay};
use crate::rounds::{self, Answer, SyncTimes, median, ratios};
use crate::table::Table;
use anyhow::{Context, Result, ensure};
use mainstay_testkit::postgres::Private;
use std::sync::Arc;
use std::time::Instant;

/// Callers at once, each waiting for its answer.
pub const CALLERS: u64 = 64;
/// Events that a command folds.
const FOLDED: u64 = 10;
/// Times that each contender has its turn; the median counts.
const ROUNDS: usize = 5;
/// Commands of a caller before anything is counted: connections are opened and statements prepared.
const WARM_UP: u64 = 10;
/// Halls that are filled for a turn: one for each command of those who fold.
const HALLS_ON_SQLITE: u64 = CALLERS * (WARM_UP + 300);
const HALLS_ON_POSTGRES: u64 = CALLERS * (WARM_UP + 50);

/// Somebody who decides on halls.
pub trait Contender: Send + Sync {
    /// Its version and settings, for people, after a turn.
    fn about(&self) -> Answer<'_, String>;

    /// Sells the first `seats` seats of so many halls; afterwards the database knows what its tables hold, and has tidied up.
    fn fill(&self, halls: u64, seats: u64) -> Answer<'_, ()>;

    /// [`CALLERS`] callers, each of which sells one more seat in `each` halls, one after another; all halls are others, from
    /// this one on. How many were sold, durably. Those who fold nothing need no hall.
    fn decide(&self, each: u64, from: u64) -> Answer<'_, u64>;

    /// What its database holds.
    fn written(&self) -> Answer<'_, Written>;
}

/// What a database holds; rows and items only of those who write them.
pub struct Written {
    pub events: u64,
    pub rows: Option<u64>,
    pub items: Option<u64>,
}

/// A contender under its name.
pub type Entry = rounds::Entry<dyn Contender>;

/// Prints the tables.
pub async fn run() -> Result<()> {
    println!(
        "\nCommands: {CALLERS} callers, each waiting for its answer; a command folds {FOLDED} events of its own boundary, \
         writes a row, appends an event on a condition and starts an item of work; the median of {ROUNDS} rounds in turns"
    );
    contest("SQLite", &on_sqlite(), HALLS_ON_SQLITE).await?;
    rounds::on_postgres(async |server, settings| {
        println!("\nPostgreSQL: {settings}");
        contest("PostgreSQL", &on_postgres(server).await?, HALLS_ON_POSTGRES).await
    })
    .await
}

/// A contender, and how many commands each of its callers has in a turn: so many that the turn takes seconds, because a short
/// one would be over before the log has to tidy up.
type Takes = (Entry, u64);

/// Those on SQLite, each in a file of its own.
fn on_sqlite() -> Vec<Takes> {
    vec![
        (mainstay::on_sqlite("bare append", Task::Append), 2_000),
        (mainstay::on_sqlite("mainstay", Task::Command), 300),
        (mainstay::on_sqlite("mainstay, rows scattered", Task::ScatteredCommand), 300),
    ]
}

/// Those on PostgreSQL, each in a database of its own.
async fn on_postgres(server: &Arc<Private>) -> Result<Vec<Takes>> {
    let mut takes: Vec<Takes> =
        disintegrate::entry(server).await?.into_iter().map(|entry| (entry, 50)).collect();
    takes.push((mainstay::on_postgres("bare append", server, Task::Append), 1_000));
    takes.push((mainstay::on_postgres("mainstay", server, Task::Command), 50));
    Ok(takes)
}

/// What one contender did in each round, in commands per second.
#[derive(Default)]
struct Rounds {
    about: String,
    rates: Vec<f64>,
}

async fn contest(title: &str, takes: &[Takes], halls: u64) -> Result<()> {
    let mut sync_times = SyncTimes::default();
    let mut rounds: Vec<Rounds> = takes.iter().map(|_| Rounds::default()).collect();
    for _ in 0..ROUNDS {
        sync_times.measure()?;
        for ((entry, each), rounds) in takes.iter().zip(&mut rounds) {
            turn(entry, *each, halls, rounds).await.with_context(|| entry.name)?;
        }
    }
    println!("\n{title}. {sync_times}\n");
    for ((entry, each), rounds) in takes.iter().zip(&rounds) {
        println!("- {}: {}; {} a turn", entry.name, rounds.about, CALLERS * each);
    }
    let names: Vec<&str> = takes.iter().map(|(entry, _)| entry.name).collect();
    let rates: Vec<Vec<f64>> = rounds.into_iter().map(|rounds| rounds.rates).collect();
    let mut table = Table::new(["what", "commands /s", "ratio"]);
    for ((name, rates), ratio) in names.iter().zip(&rates).zip(ratios(&names, &rates)) {
        table.add([(*name).to_owned(), format!("{:.0}", median(rates.clone(), |rate| *rate)), ratio]);
    }
    print!("\n{}", table.render());
    Ok(())
}

/// One contender on a database of its own.
async fn turn(entry: &Entry, each: u64, halls: u64, rounds: &mut Rounds) -> Result<()> {
    let opened = entry.open().await?;
    let contender = &*opened.contender;
    let (warming, measured) = (CALLERS * WARM_UP, CALLERS * each);
    let all = warming + measured;
    contender.fill(halls, FOLDED).await.context("filling")?;
    contender.decide(WARM_UP, 0).await.context("warming up")?;
    let began = Instant::now();
    let decided = contender.decide(each, warming).await.context("deciding")?;
    rounds.rates.push(measured as f64 / began.elapsed().as_secs_f64());
    ensure!(decided == measured, "{decided} of {measured} commands were decided");
    let Written { events, rows, items } = contender.written().await?;
    ensure!(events == halls * FOLDED + all, "{events} events after {all} commands and {halls} halls");
    ensure!(rows.is_none_or(|rows| rows == all), "{rows:?} rows after {all} commands");
    ensure!(items.is_none_or(|items| items == all), "{items:?} items after {all} commands");
    rounds.about = contender.about().await?;
    opened.close().await
}
