//! The store on which it is measured.

use super::report::Report;
use crate::arguments::Global;
use crate::config::{self, Place};
use crate::{Error, Result};
use mainstay::store::Store;
use mainstay_bench::disk;
use std::path::Path;
use tempfile::TempDir;

/// Where it is measured.
pub(super) struct Bed {
    pub(super) store: Store,
    /// Removed when dropped; not made at all when a store was asked for.
    folder: Option<TempDir>,
}

impl Bed {
    pub(super) async fn make(global: &Global) -> Result<Self> {
        let config = global.load()?;
        let is_asked = matches!(config.entry(&config::store::URL).place, Some(Place::Flag(_)));
        let folder = match is_asked {
            true => None,
            false => Some(tempfile::Builder::new().prefix(".mainstay-bench-").tempdir_in(".").map_err(io)?),
        };
        let url = match &folder {
            None => config.text(&config::store::URL).to_owned(),
            Some(folder) => format!("sqlite:{}", folder.path().join("bench.db").display()),
        };
        Ok(Self { store: config::store::options_at(&url, &config).open().await?, folder })
    }

    /// What can be told before anything was measured.
    pub(super) async fn report(&self) -> Result<Report> {
        Ok(Report {
            durability: self.store.durability().await?,
            disk_sync_ms: self
                .folder
                .as_ref()
                .map(|folder| sync_ms(folder.path()))
                .transpose()
                .map_err(io)?,
            measurements: Vec::new(),
            reading: None,
            work: None,
            in_memory_per_second: None,
            replay: None,
            publications: Vec::new(),
            operate: None,
        })
    }
}

fn io(source: std::io::Error) -> Error {
    Error::Io { what: "the current folder".to_owned(), source }
}

fn sync_ms(folder: &Path) -> std::io::Result<f64> {
    Ok(disk::sync_time(folder)?.as_secs_f64() * 1e3)
}
