//! What commands measure about themselves.

use super::outcome::{Dispatched, Outcome};
use crate::error::Result;
use mainstay_core::measure::{Histogram, HistogramSnapshot, Labelled, Measured, Reading};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long dispatching takes on this node, by the type of command and what came of it. There are as many types as
/// handlers: what nobody handles is not measured.
#[derive(Debug, Default)]
pub struct Figures(BTreeMap<String, Times>);

/// The times of one type of command.
#[derive(Debug, Default)]
struct Times {
    success: Histogram,
    rejected: Histogram,
    failed: Histogram,
    deferred: Histogram,
    duplicate: Histogram,
    error: Histogram,
}

impl Times {
    fn of(&self, answer: &Result<Dispatched>) -> &Histogram {
        match answer {
            Ok(dispatched) if dispatched.is_duplicate => &self.duplicate,
            Ok(dispatched) => match dispatched.outcome {
                Outcome::Success { .. } => &self.success,
                Outcome::Rejected { .. } => &self.rejected,
                Outcome::Failed { .. } => &self.failed,
                Outcome::Deferred(_) => &self.deferred,
            },
            Err(_) => &self.error,
        }
    }

    fn by_status(&self) -> [(&'static str, &Histogram); 6] {
        [
            ("success", &self.success),
            ("rejected", &self.rejected),
            ("failed", &self.failed),
            ("deferred", &self.deferred),
            ("duplicate", &self.duplicate),
            ("error", &self.error),
        ]
    }
}

impl Figures {
    pub(super) fn of<'a>(types: impl Iterator<Item = &'a str>) -> Self {
        Self(types.map(|name| (name.to_owned(), Times::default())).collect())
    }

    pub(super) fn record(&self, command_type: &str, answer: &Result<Dispatched>, took: Duration) {
        if let Some(times) = self.0.get(command_type) {
            times.of(answer).record_duration(took);
        }
    }

    /// The times in microseconds of everything that has happened, by the type of command and what came of it.
    pub fn times(&self) -> Vec<(&str, &'static str, HistogramSnapshot)> {
        let all = self.0.iter().flat_map(|(name, times)| {
            times.by_status().map(|(status, times)| (name.as_str(), status, times.snapshot()))
        });
        all.filter(|(_, _, times)| times.count > 0).collect()
    }
}

impl Measured for Figures {
    fn measure(&self, visit: &mut dyn FnMut(&'static str, &'static str, Reading)) {
        let rows = self.times().into_iter();
        let rows = rows.map(|(name, status, times)| (vec![name.to_owned(), status.to_owned()], times));
        let labelled = Labelled { labels: &["command_type", "status"], rows: rows.collect() };
        visit("command_duration", "Time from dispatch to answer of a command.", Reading::Times(labelled));
    }
}
