//! What the program can be asked to do: one file per verb.

mod bench;
mod config;
mod demo;
mod events;
mod migrate;
mod reference;
mod serve;
mod token;

use crate::arguments::Global;
use crate::{Error, Result};
use clap::Subcommand;
use std::future::Future;

/// A verb of the command line.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Serve(serve::Serve),
    Demo(demo::Demo),
    Migrate(migrate::Migrate),
    Events(events::Events),
    Token(token::Token),
    Config(config::Config),
    Bench(bench::Bench),
    #[command(hide = true)]
    Reference(reference::Reference),
}

impl Verb {
    pub(crate) fn run(&self, global: &Global) -> Result<()> {
        match self {
            Self::Serve(verb) => block_on(verb.run(global)),
            Self::Demo(verb) => block_on(verb.run(global)),
            Self::Migrate(verb) => block_on(verb.run(global)),
            Self::Events(verb) => block_on(verb.run(global)),
            Self::Token(verb) => block_on(verb.run(global)),
            Self::Config(verb) => verb.run(global),
            Self::Bench(verb) => block_on(verb.run(global)),
            Self::Reference(verb) => verb.run(),
        }
    }
}

/// Runs a verb that uses the store.
fn block_on(work: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|source| Error::Io { what: "threads".to_owned(), source })?.block_on(work)
}
