//! The command line.

use crate::config::{self, Config, Setting, Sources};
use crate::log::Level;
use crate::verbs::Verb;
use crate::{Error, Result};
use clap::{Args, Parser};
use std::fmt;
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
    /// The server to ask; without it the store is opened, or the server that holds it is asked
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// The token to show the server; better given as the variable MAINSTAY_TOKEN, which others do not see
    #[arg(long, global = true, value_name = "TOKEN", env = "MAINSTAY_TOKEN", hide_env = true)]
    pub(crate) token: Option<Token>,
    /// Answer in JSON: data on stdout, an error as one line on stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Tell on stderr what happens, from this level on; serve tells from report on and other verbs from warn, unless given
    #[arg(long, global = true, value_name = "LEVEL", env = "MAINSTAY_LOG")]
    pub(crate) log: Option<Level>,
}

/// The tenant that an id is of: ids are unique within a tenant.
#[derive(Debug, Args)]
pub(crate) struct Whose {
    /// The tenant that the id is of; without it, what has no tenant, or else the only one
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
}

impl Whose {
    /// The tenant.
    pub(crate) fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }
}

/// A page of a list.
#[derive(Debug, Args)]
pub(crate) struct Page {
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) limit: u16,
    /// The `next` of the page before
    #[arg(long)]
    pub(crate) cursor: Option<String>,
}

/// A secret on the command line, which no message repeats.
#[derive(Clone)]
pub(crate) struct Token(pub(crate) String);

impl From<String> for Token {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

impl Global {
    /// The configuration in force, with this process's environment and flags.
    pub(crate) fn load(&self) -> Result<Config> {
        self.load_with(Vec::new())
    }

    /// As [`load`](Self::load), with what the flags of a verb say.
    pub(crate) fn load_with(&self, mut flags: Vec<(&'static Setting, String)>) -> Result<Config> {
        flags.extend(self.store.iter().map(|url| (&config::store::URL, url.clone())));
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
