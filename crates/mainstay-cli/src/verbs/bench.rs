//! `mainstay bench`: measures Mainstay on this machine and its disk.

use crate::arguments::Global;
use crate::bench::load::{Load, Outcome};
use crate::bench::table::Table;
use crate::bench::{disk, store};
use crate::config::{self, Place};
use crate::{Error, Result, output};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// Measure Mainstay on this machine
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Store(StoreBench),
}

/// Measure transactions with two small inserts, by one caller and by many
///
/// Works on a temporary SQLite file in the current folder, so that it is this disk that is measured; or on the store
/// given with --store, where it makes two tables mainstay_bench_* and drops them again.
#[derive(Debug, Args)]
struct StoreBench {
    /// How many callers at once, one measurement each
    #[arg(long, value_delimiter = ',', default_value = "1,8,64", value_parser = clap::value_parser!(u16).range(1..=4096))]
    callers: Vec<u16>,
    /// How long each measurement takes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    durability: String,
    disk_sync_ms: Option<f64>,
    measurements: Vec<Measurement>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Measurement {
    callers: usize,
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    failed: u64,
    transactions_per_commit: f64,
}

impl Bench {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        let What::Store(bench) = &self.what;
        bench.run(global).await
    }
}

impl StoreBench {
    async fn run(&self, global: &Global) -> Result<()> {
        let config = global.load()?;
        let is_asked = matches!(config.entry(&config::store::URL).place, Some(Place::Flag(_)));
        let io = |source| Error::Io { what: "the current folder".to_owned(), source };
        // Removed when dropped; not made at all when a store was asked for.
        let folder = match is_asked {
            true => None,
            false => Some(tempfile::Builder::new().prefix(".mainstay-bench-").tempdir_in(".").map_err(io)?),
        };
        let url = match &folder {
            None => config.text(&config::store::URL).to_owned(),
            Some(folder) => format!("sqlite:{}", folder.path().join("bench.db").display()),
        };
        let opened = config::store::options_at(&url, &config).open().await?;
        store::prepare(&opened).await?;
        let mut report = Report {
            durability: opened.durability().await?,
            disk_sync_ms: folder.as_ref().map(|folder| sync_ms(folder.path())).transpose().map_err(io)?,
            measurements: Vec::new(),
        };
        let mut table = Table::new();
        let mut first: Option<f64> = None;
        for (run, callers) in (0..).zip(&self.callers) {
            let load = Load {
                callers: usize::from(*callers),
                warm_up: Duration::from_millis(300),
                measured: Duration::from_secs(self.seconds),
            };
            let before = opened.figures().group_size.snapshot();
            let outcome = store::measure(&opened, load, run).await;
            let after = opened.figures().group_size.snapshot();
            let shared = (after.sum - before.sum) as f64 / (after.count - before.count).max(1) as f64;
            let first = *first.get_or_insert(outcome.per_second());
            table.add("transact", &outcome, &format!("{:.1}×", outcome.per_second() / first));
            report.measurements.push(measurement(&outcome, shared));
        }
        store::clean_up(&opened).await?;
        opened.close().await;
        if global.json {
            return output::print_json(&report);
        }
        output::print(&format!("{}\n\n{}", headline(&report), table.render()))
    }
}

fn sync_ms(folder: &Path) -> std::io::Result<f64> {
    Ok(disk::sync_time(folder)?.as_secs_f64() * 1e3)
}

fn headline(report: &Report) -> String {
    match report.disk_sync_ms {
        Some(sync) => format!("{}; this disk syncs a page in {sync:.3} ms", report.durability),
        None => report.durability.clone(),
    }
}

fn measurement(outcome: &Outcome, transactions_per_commit: f64) -> Measurement {
    Measurement {
        callers: outcome.callers,
        per_second: outcome.per_second(),
        p50_ms: outcome.latency_ms(0.5),
        p99_ms: outcome.latency_ms(0.99),
        p999_ms: outcome.latency_ms(0.999),
        failed: outcome.failed,
        transactions_per_commit,
    }
}
