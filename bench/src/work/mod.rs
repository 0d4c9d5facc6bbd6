//! Job queues: no-op items enqueued in batches, then worked until none is left.
//!
//! | file | what lives there |
//! |---|---|
//! | `load` | the load and the table |
//! | `postgres` | the contest on PostgreSQL, with a bare loop by hand on tokio-postgres |
//! | `sqlite` | the contest on SQLite, with a bare loop by hand on rusqlite |
//! | `mainstay` | ours, on both |
//! | `growth` | what a claim costs when much waits, and when keys do |
//! | `delay` | how long an item waits that a pool has time for |
//! | `held` | what becomes of the pace while somebody holds a snapshot |
//! | `peers` | queues in processes of their own |
//!
//! A contender implements [`Contender`] and has an [`Entry`], which opens it on a database of its own. It takes part once
//! its entry stands in `postgres::contenders` or `sqlite::contenders`. Each is compared with all that stand before it, so
//! Mainstay's come last.

mod delay;
mod growth;
mod held;
mod load;
mod mainstay;
mod peers;
mod postgres;
mod sqlite;

pub use crate::rounds::Answer;
use anyhow::{Result, bail, ensure};

/// Items of one enqueueing transaction.
pub const BATCH: u64 = 1_000;
/// Items that are claimed and completed at once, by whoever can be told.
pub const CLAIM: usize = 500;
/// What an item carries: JSON, because some of us look into it.
pub const BODY: &str = r#"{"order":4200}"#;

/// Items of a turn unless `--items` says otherwise.
const ITEMS: u64 = 20_000;

/// A queue that does the work.
pub trait Contender: Send + Sync {
    /// Its version and settings, for people.
    fn about(&self) -> String;

    /// Enqueues so many batches of [`BATCH`] items with [`BODY`], a transaction each; durable when it answers.
    fn enqueue(&self, batches: u64) -> Answer<'_, ()>;

    /// Claims, handles and completes items until none is left; completions are durable when it answers. How many handlers
    /// ran, counted by the handlers.
    fn work(&self) -> Answer<'_, u64>;

    /// How many items its database holds that are not completed, claimed or not.
    fn left(&self) -> Answer<'_, u64>;
}

/// A contender under its name.
pub type Entry = crate::rounds::Entry<dyn Contender>;

/// Runs the contests that the arguments name; all of them without any.
pub async fn run(arguments: &[&str]) -> Result<()> {
    if let ["held", "--seconds", seconds] = arguments {
        return held::run(seconds.parse()?).await;
    }
    let (contests, items) = match arguments {
        [contests @ .., "--items", items] => (contests, items.parse()?),
        contests => (contests, ITEMS),
    };
    ensure!(items > 0 && items % BATCH == 0, "--items takes a multiple of {BATCH}");
    let contests = if contests.is_empty() { &["postgres", "sqlite", "growth", "delay"] } else { contests };
    for contest in contests {
        match *contest {
            "postgres" => postgres::run(items).await?,
            "sqlite" => sqlite::run(items).await?,
            "growth" => growth::run().await?,
            "delay" => delay::run().await?,
            "held" => held::run(held::SECONDS).await?,
            _ => bail!(crate::USAGE),
        }
    }
    Ok(())
}

/// Our pools on both kinds of store, in so many new places each.
async fn on_each(count: usize, measure: impl AsyncFn(&str, &[String]) -> Result<()>) -> Result<()> {
    let folder = tempfile::tempdir_in(".")?;
    let url = |number| format!("sqlite:{}", folder.path().join(format!("work-{number}.db")).display());
    measure("SQLite", &(0..count).map(url).collect::<Vec<_>>()).await?;
    crate::rounds::on_postgres(async |server, _| {
        let server = server.clone();
        let databases = move || (0..count).map(|_| server.database()).collect::<Result<Vec<_>, _>>();
        let databases = tokio::task::spawn_blocking(databases).await??;
        let urls: Vec<String> = databases.iter().map(|database| database.url().to_owned()).collect();
        measure("PostgreSQL", &urls).await
    })
    .await
}

/// What a handler does with an item: nothing, but the item must have come this far.
fn handle(body: &str) {
    std::hint::black_box(body);
}
