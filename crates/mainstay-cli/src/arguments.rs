//! The command line.

use crate::config::{self, Config, Sources};
use crate::verbs::Verb;
use crate::{Error, Result};
use clap::{Args, Parser};
use std::path::PathBuf;

/// The durable back end of an event-sourced application.
#[derive(Debug, Parser)]
#[command(name = "mainstay", version, arg_required_else_help = true)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
#[command(
    after_help = "Exit codes: 0 done, 1 the operation failed, 2 the command line or the configuration is wrong."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// The flags that every verb takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// The configuration file; ./mainstay.toml is read when it exists
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The store: sqlite:FILE, sqlite::memory: or postgres://USER@HOST/DATABASE
    #[arg(long, global = true, value_name = "URL")]
    store: Option<String>,
    /// Answer in JSON: data on stdout, an error as one line on stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

impl Global {
    /// The configuration in force, with this process's environment and flags.
    pub(crate) fn load(&self) -> Result<Config> {
        let flags = self.store.iter().map(|url| (&config::store::URL, url.clone())).collect();
        let environment = std::env::vars_os().collect();
        Config::load(Sources { file: self.config.clone(), environment, flags }).map_err(Error::Config)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Arguments::command().debug_assert();
    }
}
