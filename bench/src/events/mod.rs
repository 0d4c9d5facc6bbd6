//! Conditional appends: events of 100 bytes with one tag each, appended if no event has that tag yet; and reading all.
//!
//! | file | what lives there |
//! |---|---|
//! | `growth` | one log as it grows |
//! | `load` | the load and the tables |
//! | `mainstay` | ours, embedded and behind its server |
//! | `tephra` | embedded in this process |
//! | `umadb` | a gRPC server of its own on the same cores; behind the feature `umadb` |
//! | `postgres` | the same by hand on tokio-postgres, with and without a lock around the log |
//!
//! A contender implements [`Contender`] and has an [`Entry`], which opens it on an empty folder. It takes part once its
//! entry stands in [`embedded`], [`servers`], [`readers`] or `postgres::contenders`. Each is compared with all that
//! stand before it, so Mainstay's come last.

mod growth;
mod load;
pub mod mainstay;
mod postgres;
mod tephra;
#[cfg(feature = "umadb")]
pub mod umadb;

pub use crate::rounds::Answer;
use anyhow::{Result, bail};

/// What an event carries: JSON, because some of us look into it.
pub const DATA: &str =
    r#"{"customer":"7c1f9a52","amount":4200,"currency":"EUR","note":"one hundred bytes in all, no more..."}"#;
const _: () = assert!(DATA.len() == 100);

/// The type of every event.
pub const TYPE: &str = "OrderPlaced";

/// What came of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is durable.
    Appended,
    /// There was an event with that tag.
    Refused,
}

/// How callers reach a contender: whichever suits it better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callers {
    /// Tasks on the runtime.
    Tasks,
    /// A thread each, on which `append` may block.
    Threads,
}

/// An event store that does the work.
pub trait Contender: Send + Sync {
    /// Tasks, unless it says otherwise.
    fn callers(&self) -> Callers {
        Callers::Tasks
    }

    /// Appends one event of [`TYPE`] with [`DATA`] and this tag if no event has the tag; synced when it answers.
    fn append(&self, tag: String) -> Answer<'_, Verdict>;

    /// Reads all events in order, with their data; how many there were.
    fn read_all(&self) -> Answer<'_, u64>;
}

/// A contender under its name.
pub type Entry = crate::rounds::Entry<dyn Contender>;

/// Those in our process.
fn embedded() -> Vec<Entry> {
    vec![tephra::on_threads(), tephra::on_tasks(), mainstay::embedded()]
}

/// Those behind a server on the same cores.
fn servers() -> Vec<Entry> {
    vec![
        #[cfg(feature = "umadb")]
        umadb::entry(),
        mainstay::served(),
    ]
}

/// Those whose logs are read from end to end.
fn readers() -> Vec<Entry> {
    let mut entries = vec![tephra::on_threads(), mainstay::embedded()];
    entries.extend(servers());
    entries
}

/// Runs the contests that the arguments name; all of them without any.
pub async fn run(arguments: &[&str]) -> Result<()> {
    let (contests, seconds) = match arguments {
        [contests @ .., "--seconds", seconds] => (contests, seconds.parse()?),
        contests => (contests, 3.0),
    };
    let contests =
        if contests.is_empty() { &["embedded", "http", "postgres", "read", "growth"] } else { contests };
    for contest in contests {
        match *contest {
            "embedded" => load::appends("Embedded", &embedded(), seconds).await?,
            "http" => load::appends("Behind a server", &servers(), seconds).await?,
            "postgres" => postgres::run(seconds).await?,
            "read" => load::reads(&readers()).await?,
            "growth" => growth::run(seconds).await?,
            _ => bail!(crate::USAGE),
        }
    }
    Ok(())
}
