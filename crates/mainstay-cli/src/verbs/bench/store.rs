//! `mainstay bench store`.

use super::callers::{Rows, Size};
use super::report::Report;
use crate::Result;
use clap::Args;
use mainstay::store::Store;
use mainstay_bench::store;
use mainstay_bench::table::Table;

/// Measure transactions with two small inserts, by one caller and by many
///
/// Works on a temporary SQLite file in the current folder, so that it is this disk that is measured; or on the store
/// given with --store, where it makes two tables mainstay_bench_* and drops them again.
#[derive(Debug, Args)]
pub(super) struct StoreBench {
    #[command(flatten)]
    size: Size,
}

impl StoreBench {
    pub(super) async fn run(&self, opened: &Store, mut report: Report) -> Result<(Report, Table)> {
        store::prepare(opened).await?;
        let mut rows = Rows::new("transact", opened);
        for (run, load) in (0..).zip(self.size.loads()) {
            rows.before();
            let outcome = store::measure(opened, load, run).await;
            report.measurements.push(rows.add(&outcome));
        }
        store::clean_up(opened).await?;
        Ok((report, rows.table))
    }
}
