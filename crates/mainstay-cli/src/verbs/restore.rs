//! `mainstay restore`: a new store from a backup.

use super::progress::teller;
use super::verify;
use crate::arguments::Global;
use crate::{Result, config, output};
use clap::Args;
use mainstay::events::{self, Restored};
use mainstay::store::Location;
use serde_json::json;
use std::path::PathBuf;

/// Make a new store from a backup
///
/// The store that --store or the configuration names must not exist yet: a new SQLite file, or an empty PostgreSQL
/// database. The restored log is looked over as `mainstay verify` does, and a new epoch begins, so that consumers which
/// remember positions beyond the backup notice. A SQLite file gets its name only after that. Problems are reported with
/// exit code 1, and the store is in its place all the same: damaged events are not served.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// A file that `mainstay backup` has written
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Restore {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        let config = global.load()?;
        let store = Location::parse(config.text(&config::store::URL))?.to_string();
        let options = config::store::options(&config);
        let Restored { report, epoch } = events::restore(&self.file, options, teller(global.json)).await?;
        if global.json {
            output::print_json(&json!({ "store": store, "epoch": epoch, "report": report }))?;
        } else {
            output::print(&format!("{store}\nepoch     {epoch}\n{}", verify::findings(&report)))?;
        }
        verify::sound(&report)
    }
}
