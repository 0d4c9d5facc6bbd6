//! `mainstay demo`: shows what is there so far, for real.

use crate::arguments::Global;
use crate::config::{self, Place};
use crate::{Error, Result, demo, output};
use clap::Args;
use std::io::IsTerminal;

/// Show what Mainstay does, for real and in a few seconds
///
/// Works on a temporary SQLite file that is removed afterwards, whatever the configuration says; or on the store
/// given with --store, where it makes the table mainstay_demo and drops it again. The part about the log is always on
/// a temporary file, because what is in a log stays there.
#[derive(Debug, Args)]
pub(crate) struct Demo {}

impl Demo {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        let config = global.load()?;
        let folder = tempfile::Builder::new().prefix("mainstay-demo-").tempdir();
        let folder =
            folder.map_err(|source| Error::Io { what: "the temporary folder".to_owned(), source })?;
        let is_asked = matches!(config.entry(&config::store::URL).place, Some(Place::Flag(_)));
        let url = if is_asked {
            config.text(&config::store::URL).to_owned()
        } else {
            format!("sqlite:{}", folder.path().join("demo.db").display())
        };
        let aside = format!("sqlite:{}", folder.path().join("log.db").display());
        let [options, aside] = [&url, &aside].map(|url| config::store::options_at(url, &config));
        let facts = demo::play(options, aside).await?;
        if global.json {
            return output::print_json(&facts);
        }
        output::print(&demo::tell(&facts, is_bold()))
    }
}

/// Headings are bold on a terminal whose user did not ask for plain text.
fn is_bold() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
