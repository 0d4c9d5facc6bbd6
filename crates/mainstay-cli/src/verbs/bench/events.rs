//! `mainstay bench events`.

use super::callers::{Rows, Size};
use super::report::Report;
use crate::Result;
use clap::Args;
use mainstay::events::Log;
use mainstay::store::Store;
use mainstay_bench::events::{self, Reading};
use mainstay_bench::table::Table;
use serde::Serialize;

/// Measure conditional appends to the log, by one caller and by many, and reading them
///
/// Each append is one event of 100 bytes with a tag, on the condition that no event has that tag yet. Works on a
/// temporary SQLite file in the current folder, so that it is this disk that is measured; or on the store given with
/// --store, in whose log the events stay, as all events do.
#[derive(Debug, Args)]
pub(super) struct EventsBench {
    #[command(flatten)]
    size: Size,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Read {
    events: u64,
    per_second: f64,
}

impl EventsBench {
    pub(super) async fn run(&self, opened: &Store, mut report: Report) -> Result<(Report, Table)> {
        let log = Log::open(opened).await?;
        let first = log.head().await?;
        let mut rows = Rows::new("append", opened);
        for (run, load) in self.size.loads().enumerate() {
            rows.before();
            // The log may hold events of an earlier bench, or of one that runs beside this.
            let series = format!("{first}-{}-{run}", std::process::id());
            let outcome = events::measure(&log, load, &series).await?;
            report.measurements.push(rows.add(&outcome));
        }
        let reading: Reading = events::read(&log, first).await?;
        report.reading = Some(Read { events: reading.events, per_second: reading.per_second() });
        Ok((report, rows.table))
    }
}

pub(super) fn told(reading: &Read) -> String {
    format!("\nReading all {} of them: {:.0} events per second\n", reading.events, reading.per_second)
}
