//! What the program can be asked to do: one file per verb, or a folder where a verb has verbs of its own.

mod audit;
mod backup;
mod bench;
mod circuits;
mod completions;
pub(crate) mod config;
mod dead_letters;
mod demo;
mod events;
mod intents;
mod limits;
mod metrics;
mod migrate;
mod progress;
mod projections;
mod publications;
mod reference;
mod replay;
mod restore;
mod serve;
mod state;
mod token;
mod trace;
mod verify;
mod work;

use crate::arguments::Global;
use crate::config::Config;
use crate::log::Level;
use crate::{Error, Result};
use clap::Subcommand;
use mainstay::core::json::{self, Bounds};
use mainstay::events::Log;
use mainstay::store::{self, Location};
use serde::de::DeserializeOwned;
use std::future::Future;
use std::time::Duration;

/// Most bytes of JSON in an argument or a file of events: what routes that take batches take.
const MAX_JSON: Bounds = Bounds::bytes(8 << 20);

/// The JSON that a flag was given.
pub(crate) fn json<T: DeserializeOwned>(flag: &str, text: &str) -> Result<T> {
    json::parse(text.as_bytes(), MAX_JSON).map_err(|error| match error {
        json::Error::Syntax(reason) => Error::Argument(format!("{flag}: {reason}")),
        error => Error::Argument(format!("{flag}: {error}")),
    })
}

/// A verb of the command line.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Serve(serve::Serve),
    Demo(demo::Demo),
    Migrate(migrate::Migrate),
    Events(events::Events),
    Work(work::Work),
    Limits(limits::Limits),
    Circuits(circuits::Circuits),
    DeadLetters(dead_letters::DeadLetters),
    Intents(intents::Intents),
    Projections(projections::Projections),
    Publications(publications::Publications),
    Replay(replay::Replay),
    Trace(trace::Trace),
    State(state::State),
    Metrics(metrics::Metrics),
    Token(token::Token),
    Audit(audit::Audit),
    Verify(verify::Verify),
    Backup(backup::Backup),
    Restore(restore::Restore),
    Config(config::Config),
    Bench(bench::Bench),
    Completions(completions::Completions),
    #[command(hide = true)]
    Reference(reference::Reference),
}

impl Verb {
    /// From when on something is told while it runs, unless somebody says so. The demo lets things go wrong on purpose, and
    /// tells of them itself.
    pub(crate) fn loudness(&self) -> Level {
        match self {
            Self::Serve(_) => Level::Report,
            Self::Demo(_) => Level::Off,
            _ => Level::Warn,
        }
    }

    /// Whether what it tells is a log, where nobody sits before it.
    pub(crate) fn is_service(&self) -> bool {
        matches!(self, Self::Serve(_))
    }

    pub(crate) fn run(&self, global: &Global) -> Result<()> {
        match self {
            Self::Serve(verb) => block_on(verb.run(global)),
            Self::Demo(verb) => block_on(verb.run(global)),
            Self::Migrate(verb) => block_on(verb.run(global)),
            Self::Events(verb) => block_on(verb.run(global)),
            Self::Work(verb) => block_on(verb.run(global)),
            Self::Limits(verb) => block_on(verb.run(global)),
            Self::Circuits(verb) => block_on(verb.run(global)),
            Self::DeadLetters(verb) => block_on(verb.run(global)),
            Self::Intents(verb) => block_on(verb.run(global)),
            Self::Projections(verb) => block_on(verb.run(global)),
            Self::Publications(verb) => block_on(verb.run(global)),
            Self::Replay(verb) => block_on(verb.run(global)),
            Self::Trace(verb) => block_on(verb.run(global)),
            Self::State(verb) => block_on(verb.run(global)),
            Self::Metrics(verb) => block_on(verb.run(global)),
            Self::Token(verb) => block_on(verb.run(global)),
            Self::Audit(verb) => block_on(verb.run(global)),
            Self::Verify(verb) => block_on(verb.run(global)),
            Self::Backup(verb) => block_on(verb.run(global)),
            Self::Restore(verb) => block_on(verb.run(global)),
            Self::Config(verb) => block_on(verb.run(global)),
            Self::Bench(verb) => block_on(verb.run(global)),
            Self::Completions(verb) => verb.run(),
            Self::Reference(verb) => verb.run(),
        }
    }
}

/// Runs a verb that uses the store.
fn block_on(work: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|source| Error::Io { what: "threads".to_owned(), source })?.block_on(work)
}

/// Opens the log of the store that the configuration names, which must exist.
async fn open_log(global: &Global) -> Result<Log> {
    let config = global.load()?;
    refuse_missing(&config)?;
    let store = crate::config::store::options(&config).open().await?;
    Ok(Log::open(&store).await?)
}

/// A file that is not there is not made by whoever looks into a log: they mean one that exists.
pub(crate) fn refuse_missing(config: &Config) -> Result<()> {
    match Location::parse(config.text(&crate::config::store::URL))? {
        Location::File(path) if !path.exists() => {
            let what = path.display().to_string();
            Err(store::Error::Open { what, reason: "it does not exist".to_owned() }.into())
        }
        _ => Ok(()),
    }
}

/// A time as people write it, down to milliseconds.
fn span(text: &str) -> std::result::Result<Duration, String> {
    let millis = text.strip_suffix("ms").and_then(|digits| digits.parse().ok()).map(Duration::from_millis);
    let wrong = || format!("{text:?} is not a time such as 250ms, 90s, 30m, 12h or 30d");
    millis.or_else(|| token::life(text).ok()).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_down_to_milliseconds() {
        assert_eq!(span("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(span("2m"), Ok(Duration::from_secs(120)));
        for bad in ["", "ms", "1.5s", "-1ms", "5"] {
            assert!(span(bad).unwrap_err().contains("250ms, 90s"), "{bad}");
        }
    }
}
