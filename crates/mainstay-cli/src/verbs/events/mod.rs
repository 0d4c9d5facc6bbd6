//! `mainstay events`: the log from the command line.
//!
//! - `append`, `read`, `follow`, `erase`: a verb each
//! - `filters`: the flags that choose events
//! - `page`: pages of the log
//! - `shown`: an event as a line for people
//! - `sse`: what a server sends to those who follow

mod append;
mod erase;
mod filters;
mod follow;
mod page;
mod read;
mod shown;
mod sse;

pub(super) use filters::moment;

use crate::Result;
use crate::arguments::Global;
use clap::{Args, Subcommand};

/// Append to the log, read it, follow it, and erase what events say
///
/// Works on the store, or but for erasing through the server that holds it.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub(crate) struct Events {
    #[command(subcommand)]
    verb: EventsVerb,
}

#[derive(Debug, Subcommand)]
enum EventsVerb {
    Append(Box<append::Append>),
    Read(read::Read),
    Follow(follow::Follow),
    Erase(erase::Erase),
}

impl Events {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        match &self.verb {
            EventsVerb::Append(append) => append.run(global).await,
            EventsVerb::Read(read) => read.run(global).await,
            EventsVerb::Follow(follow) => follow.run(global).await,
            EventsVerb::Erase(erase) => erase.run(global).await,
        }
    }
}

/// The largest position there can be.
const LAST: u64 = i64::MAX as u64;
