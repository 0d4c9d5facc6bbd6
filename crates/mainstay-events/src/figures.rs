//! What the log measures about itself.

use crate::append::{Appended, Prepared, Status};
use crate::error::{Error, Result};
use mainstay_core::measure::{Counter, Family, Gauge, Histogram, Labelled, Measured, Reading};
use std::time::Instant;

/// What stands for the type of stream of events that belong to none.
pub const NO_STREAM: &str = "none";

/// The log's own figures.
#[derive(Debug, Default)]
pub struct Figures {
    /// Events appended.
    pub events: Counter,
    /// Events appended, by the type of their stream.
    pub events_of: Family<Counter>,
    /// Appends that were done.
    pub appended: Counter,
    /// Appends that had been done before.
    pub duplicates: Counter,
    /// Appends that were refused for the state of the log.
    pub conflicts: Counter,
    /// Appends that failed otherwise.
    pub failed: Counter,
    /// Appends of one transaction.
    pub batch_size: Histogram,
    /// Time from call to answer of an append.
    pub append_time: Histogram,
    /// Events read.
    pub read: Counter,
    /// Stored events that were found damaged.
    pub damaged: Counter,
    /// Subscriptions that are open.
    pub subscriptions: Gauge,
    /// The last position this process knows of.
    pub head: Gauge,
}

impl Figures {
    pub(crate) fn record(&self, prepared: &Prepared, answer: &Result<Appended>, began: Instant) {
        self.append_time.record_duration(began.elapsed());
        match answer {
            Ok(appended) if appended.status == Status::Appended => {
                self.appended.increment();
                self.events.add(appended.events.len() as u64);
                for stream_type in prepared.stream_types() {
                    self.events_of.with(stream_type.unwrap_or(NO_STREAM), Counter::increment);
                }
                self.head.set(appended.head as i64);
            }
            Ok(_) => self.duplicates.increment(),
            Err(error) if error.is_conflict() => self.conflicts.increment(),
            Err(Error::IdempotencyConflict { .. } | Error::EventIdTaken { .. }) => self.conflicts.increment(),
            Err(_) => self.failed.increment(),
        }
    }
}

impl Measured for Figures {
    fn measure(&self, visit: &mut dyn FnMut(&'static str, &'static str, Reading)) {
        let counters = [
            ("log_events_appended", "Events appended.", &self.events),
            ("log_appends", "Appends that were done.", &self.appended),
            ("log_append_duplicates", "Appends that had been done before.", &self.duplicates),
            ("log_append_conflicts", "Appends that were refused for the state of the log.", &self.conflicts),
            ("log_append_failures", "Appends that failed otherwise.", &self.failed),
            ("log_events_read", "Events read.", &self.read),
            ("log_events_damaged", "Stored events that were found damaged.", &self.damaged),
        ];
        for (name, meaning, counter) in counters {
            visit(name, meaning, Reading::Counter(counter.get()));
        }
        let rows = self.events_of.rows(|name, counter| (vec![name.to_owned()], counter.get()));
        visit(
            "events_appended",
            "Events appended, by the type of their stream.",
            Reading::Counters(Labelled { labels: &["stream_type"], rows }),
        );
        visit(
            "log_append_batch_size",
            "Appends of one transaction.",
            Reading::Sizes(self.batch_size.snapshot()),
        );
        visit(
            "log_append_time",
            "Time from call to answer of an append.",
            Reading::Microseconds(self.append_time.snapshot()),
        );
        visit("log_subscriptions", "Subscriptions that are open.", Reading::Gauge(self.subscriptions.get()));
        visit("log_head", "The last position this process knows of.", Reading::Gauge(self.head.get()));
    }
}
