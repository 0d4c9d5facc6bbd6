//! `mainstay bench work`.

use super::report::Report;
use crate::Result;
use clap::Args;
use mainstay::store::Store;
use mainstay_bench::work;
use serde::Serialize;

/// Measure how fast items that do nothing are enqueued, worked and started
///
/// Enqueues items a thousand at a time, works them until none is left, then enqueues some one after another and measures
/// how long each takes to start. Works on a temporary SQLite file in the current folder, so that it is this disk that is
/// measured; or on the store given with --store, where the pool bench stays, and for a week what came of the
/// items.
#[derive(Debug, Args)]
pub(super) struct WorkBench {
    /// How many items are enqueued and worked, in thousands
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    thousands: u16,
    /// How many items are started one after another
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..))]
    starts: u16,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Worked {
    items: u64,
    enqueued_per_second: f64,
    worked_per_second: f64,
    start_p50_ms: f64,
    start_p99_ms: f64,
}

impl WorkBench {
    pub(super) async fn run(&self, opened: &Store, mut report: Report) -> Result<Report> {
        let items = usize::from(self.thousands) * work::BATCH;
        let measured = work::measure(opened, items, self.starts.into()).await?;
        report.work = Some(Worked {
            items: measured.items,
            enqueued_per_second: measured.enqueued_per_second(),
            worked_per_second: measured.worked_per_second(),
            start_p50_ms: measured.start_ms(0.5),
            start_p99_ms: measured.start_ms(0.99),
        });
        Ok(report)
    }
}

pub(super) fn told(worked: &Worked) -> String {
    let Worked { items, enqueued_per_second, worked_per_second, start_p50_ms, start_p99_ms } = worked;
    let (batch, at_once) = (work::BATCH, work::AT_ONCE);
    format!(
        "Enqueueing {items} items, {batch} at a time: {enqueued_per_second:.0} items per second\n\
         Working them, at most {at_once} at once: {worked_per_second:.0} items per second\n\
         Starting one, from the call that enqueues it: p50 {start_p50_ms:.3} ms, p99 {start_p99_ms:.3} ms\n"
    )
}
