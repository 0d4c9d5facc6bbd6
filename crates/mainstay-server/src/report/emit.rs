//! The report as a line of the log (items 253, 254): the job `emit-system-metrics`.
//!
//! Every node tells what it has measured itself beside what all of them see in the database, so every node writes a line;
//! a cron would let one of them do so.

use super::collect::collect;
use super::document::{Report, appended};
use crate::app::App;
use crate::glance::bounded;
use serde::Serialize;
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
    report: &'a Report,
}

/// Writes a line every minute of the store's clock, for ever.
pub(crate) async fn emit_every_minute(app: &App) {
    let clock = app.store().clock();
    let mut due = clock.now_ms().saturating_add(EVERY_MS);
    // So that the first report knows what was there before.
    app.rates().per_minute(clock.now_ms(), appended(app));
    loop {
        let left = due.saturating_sub(clock.now_ms());
        if left <= 0 {
            emit(app).await;
        }
        // Also when the clock was set back.
        if left <= 0 || left > EVERY_MS {
            due = clock.now_ms().saturating_add(EVERY_MS);
            continue;
        }
        tokio::time::sleep(LOOK_AGAIN.min(Duration::from_millis(left.unsigned_abs()))).await;
    }
}

/// Writes a line, whether the database answers or not; what it tells.
async fn emit(app: &App) -> Report {
    let read = bounded(collect(app.clone())).await;
    let report = Report::of(app, read.as_ref().map_err(|code| *code));
    let node = app.address().to_string();
    let line = Line { level: "REPORT", kind: "METRICS", job: EMIT_JOB, node, report: &report };
    let line = serde_json::to_string(&line).expect("texts and finite numbers");
    tracing::info!(target: REPORT_TARGET, "{line}");
    report
}
