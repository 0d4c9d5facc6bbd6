//! `mainstay bench limits`.

use super::callers::{Rows, Size};
use super::report::Report;
use crate::Result;
use clap::Args;
use mainstay::guards::limits::store::Limits;
use mainstay::store::Store;
use mainstay_bench::limits;
use mainstay_bench::table::Table;
use std::time::Duration;

/// Measure decisions of a rate limit: about one key that all want, in the store, and about many keys in memory
///
/// Works on a temporary SQLite file in the current folder, so that it is this disk that is measured; or on the store given
/// with --store, where the limit bench stays.
#[derive(Debug, Args)]
pub(super) struct LimitsBench {
    #[command(flatten)]
    size: Size,
}

impl LimitsBench {
    pub(super) async fn run(&self, opened: &Store, mut report: Report) -> Result<(Report, Table)> {
        let limits = Limits::open(opened.clone()).await?;
        let mut rows = Rows::new("consume", opened);
        for load in self.size.loads() {
            rows.before();
            let outcome = limits::measure(&limits, load).await?;
            report.measurements.push(rows.add(&outcome));
        }
        report.in_memory_per_second = Some(limits::in_memory(Duration::from_secs(self.size.seconds)).await?);
        Ok((report, rows.table))
    }
}

pub(super) fn told(per_second: f64) -> String {
    let keys = limits::KEYS;
    format!("\nIn memory, {keys} keys, one thread: {per_second:.0} decisions per second\n")
}
