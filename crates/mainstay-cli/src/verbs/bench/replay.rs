//! `mainstay bench replay`.

use super::report::Report;
use crate::{Error, Result};
use clap::Args;
use mainstay::store::Store;
use mainstay_bench::replay::{self, Measured};
use serde::Serialize;

/// Measure how fast a read model with one row for each event is filled anew from the log
///
/// Appends events of 100 bytes and replays them, 2000 to a commit. Works on a temporary SQLite file in the current folder, so
/// that it is this disk that is measured; or on the store given with --store, in whose log the events stay, as all events do,
/// and where the projection bench stays. No other replay may run there meanwhile.
#[derive(Debug, Args)]
pub(super) struct ReplayBench {
    /// How many events are appended and replayed
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    events: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Replayed {
    events: u64,
    rows: u64,
    appended_per_second: f64,
    replayed_per_second: f64,
}

impl ReplayBench {
    pub(super) async fn run(&self, opened: &Store, mut report: Report) -> Result<Report> {
        if let Some(other) = replay::others(opened).await?.first() {
            let (id, projection) = (&other.replay_id, &other.projection_name);
            let told = format!("{id} of {projection} is {} on this store", other.status.as_str());
            return Err(Error::Argument(format!("{told}; wait until it has ended, or use another store")));
        }
        let measured = replay::measure(opened, self.events as usize).await?;
        if measured.rows != measured.events {
            let Measured { events, rows, progress, .. } = &measured;
            let why = progress.error.as_deref().unwrap_or("it did not end in time");
            return Err(Error::Argument(format!("the replay wrote {rows} rows of {events} events: {why}")));
        }
        report.replay = Some(Replayed {
            events: measured.events,
            rows: measured.rows,
            appended_per_second: measured.appended_per_second(),
            replayed_per_second: measured.replayed_per_second(),
        });
        Ok(report)
    }
}

pub(super) fn told(replayed: &Replayed) -> String {
    let Replayed { events, rows, appended_per_second, replayed_per_second } = replayed;
    let chunk = replay::CHUNK;
    format!(
        "Appending {events} events: {appended_per_second:.0} events per second\n\
         Replaying them into {rows} rows, {chunk} to a commit: {replayed_per_second:.0} events per second\n"
    )
}
