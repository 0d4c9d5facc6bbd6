//! `mainstay backup`: a copy of the whole store, while it is in use.

use crate::arguments::Global;
use crate::{Result, config, output};
use clap::Args;
use mainstay::store::{Location, backup};
use serde_json::json;
use std::path::PathBuf;

/// Copy the whole store to a new file, while it is in use
///
/// The copy is the store as it was at one moment; whoever writes goes on, also in another process. It appears under its
/// name only when it is complete and on the disk. On PostgreSQL it is what pg_dump writes, found on the PATH or in the
/// folder that MAINSTAY_PG_BIN names.
#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// The file to be written; it must not exist
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Backup {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        let config = global.load()?;
        let url = config.text(&config::store::URL);
        let bytes = backup::backup(url, &self.file).await?;
        let (store, file) = (Location::parse(url)?.to_string(), self.file.display().to_string());
        if global.json {
            return output::print_json(&json!({ "store": store, "file": file, "bytes": bytes }));
        }
        output::print(&format!("{file}: {bytes} bytes, a copy of {store}\n"))
    }
}
