//! The report as a line of the log (items 253, 254): the job `emit-system-metrics`.
//!
//! Every node tells what it has measured itself beside what all of them see in the database, so every node writes a line;
//! a cron would let one of them do so.

use super::collect::collect;
use super::document::{self, appended};
use crate::app::App;
use crate::glance::bounded;
use mainstay_api::MetricsReport;
use serde::Serialize;
use std::future::Future;
use std::time::Duration;

/// The name of the job.
pub const EMIT_JOB: &str = "emit-system-metrics";
/// The target of lines that are reports: they rank between information and warnings, for which there is no level of
/// `tracing`. Their message is a line of JSON.
pub const REPORT_TARGET: &str = "mainstay::report";

const EVERY_MS: i64 = 60_000;
/// How long it goes on without looking at the clock, which may be set.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A report as a line.
#[derive(Serialize)]
struct Line<'a> {
    level: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    job: &'static str,
    /// Which server tells it.
    node: String,
    #[serde(flatten)]
    report: &'a MetricsReport,
}

/// Remembers what was there before the server, so that the first report tells what has come since.
pub(crate) fn begin(app: &App) {
    app.rates().per_minute(app.store().clock().now_ms(), appended(app));
}

/// Writes a line every minute of the store's clock from now on, for ever.
pub(crate) fn emit_every_minute(app: &App) -> impl Future<Output = ()> {
    let clock = app.store().clock();
    let mut due = clock.now_ms().saturating_add(EVERY_MS);
    async move {
        loop {
            let now_ms = clock.now_ms();
            let left = due.saturating_sub(now_ms);
            if left <= 0 {
                emit(app).await;
            }
            due = next(due, now_ms);
            let left = due.saturating_sub(clock.now_ms()).clamp(0, EVERY_MS);
            tokio::time::sleep(LOOK_AGAIN.min(Duration::from_millis(left.unsigned_abs()))).await;
        }
    }
}

/// When the next line is due: minutes that were missed stay so, and a clock that was set back lets nobody wait for longer.
fn next(due: i64, now_ms: i64) -> i64 {
    if due > now_ms {
        return due.min(now_ms.saturating_add(EVERY_MS));
    }
    due.saturating_add((now_ms.saturating_sub(due) / EVERY_MS + 1).saturating_mul(EVERY_MS))
}

/// Writes a line, whether the database answers or not; what it tells.
async fn emit(app: &App) -> MetricsReport {
    let read = bounded(collect(app.clone())).await;
    let report = document::report(app, read.as_ref().map_err(|code| *code));
    let node = app.address().to_string();
    let line = Line { level: "REPORT", kind: "METRICS", job: EMIT_JOB, node, report: &report };
    let line = serde_json::to_string(&line).expect("texts and finite numbers");
    tracing::info!(target: REPORT_TARGET, "{line}");
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_254_a_line_is_due_every_minute_whatever_the_clock_does() {
        assert_eq!(next(60_000, 59_999), 60_000);
        assert_eq!(next(60_000, 60_000), 120_000);
        assert_eq!(next(60_000, 60_400), 120_000, "it does not drift");
        assert_eq!(next(60_000, 3_600_000), 3_660_000, "one for all that were missed");
        assert_eq!(next(3_600_000, 0), 60_000, "the clock was set back");
    }
}
