//! `mainstay work`: the workshop from the command line.
//!
//! - `enqueue`, `items`, `pools`, `letters`, `crons`, `run`: the verbs
//! - `shown`: what people get to see

mod crons;
mod enqueue;
mod items;
mod letters;
mod pools;
mod run;
mod shown;

use crate::Result;
use crate::arguments::Global;
use clap::{Args, Subcommand};
use serde_json::value::RawValue;

/// Put work into pools, look after it, and deal with what failed
///
/// Works on the store, or through the server that holds it. It is a running `mainstay serve`, a node of your own or a
/// pull worker that carries work out.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub(crate) struct Work {
    #[command(subcommand)]
    verb: WorkVerb,
}

#[derive(Debug, Subcommand)]
enum WorkVerb {
    Enqueue(Box<enqueue::Enqueue>),
    List(items::List),
    Show(items::Show),
    Cancel(items::Cancel),
    RunNow(items::RunNow),
    Pools(pools::Pools),
    DeleteFunction(pools::DeleteFunction),
    Keys(pools::Keys),
    Pause(pools::Pause),
    Resume(pools::Resume),
    Retry(letters::Retry),
    Crons(crons::Crons),
    Run(run::Run),
    RunStatus(run::RunStatus),
}

impl Work {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        match &self.verb {
            WorkVerb::Enqueue(verb) => verb.run(global).await,
            WorkVerb::List(verb) => verb.run(global).await,
            WorkVerb::Show(verb) => verb.run(global).await,
            WorkVerb::Cancel(verb) => verb.run(global).await,
            WorkVerb::RunNow(verb) => verb.run(global).await,
            WorkVerb::Pools(verb) => verb.run(global).await,
            WorkVerb::DeleteFunction(verb) => verb.run(global).await,
            WorkVerb::Keys(verb) => verb.run(global).await,
            WorkVerb::Pause(verb) => verb.run(global).await,
            WorkVerb::Resume(verb) => verb.run(global).await,
            WorkVerb::Retry(verb) => verb.run(global).await,
            WorkVerb::Crons(verb) => verb.run(global).await,
            WorkVerb::Run(verb) => verb.run(global).await,
            WorkVerb::RunStatus(verb) => verb.run(global).await,
        }
    }
}

/// The JSON that a flag was given, as it was written.
fn raw(flag: &str, text: &str) -> Result<Box<RawValue>> {
    crate::verbs::json(flag, text)
}
