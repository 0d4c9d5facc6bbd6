//! What the workshop measures about itself.

use crate::retrier::RETRIER_POOL;
use mainstay_core::measure::{Counter, Family, Gauge, Histogram, Labelled, Measured, Reading};

/// Tries of one function by the retrier.
#[derive(Debug, Default)]
pub struct Attempts {
    /// Those that returned.
    pub succeeded: Counter,
    /// Those that failed.
    pub failed: Counter,
    /// Those that were cancelled.
    pub canceled: Counter,
}

impl Attempts {
    /// How many there were, by how they ended.
    pub fn by_status(&self) -> [(&'static str, u64); 3] {
        [("success", &self.succeeded), ("failed", &self.failed), ("canceled", &self.canceled)]
            .map(|(status, counter)| (status, counter.get()))
    }
}

/// How an execution ended, as it is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ended {
    Succeeded,
    Failed,
    Canceled,
    Postponed,
}

/// The figures of this process.
#[derive(Debug, Default)]
pub struct Figures {
    /// Items taken.
    pub taken: Counter,
    /// Executions that returned.
    pub succeeded: Counter,
    /// Executions that failed.
    pub failed: Counter,
    /// Items that were cancelled.
    pub canceled: Counter,
    /// Items that wait because a circuit was open when they were to begin.
    pub postponed: Counter,
    /// Leases of others that were over and whose work was taken back.
    pub reaped: Counter,
    /// Times that this process lost its own lease.
    pub lost: Counter,
    /// Times that the store failed under the engine, which then tried again.
    pub store_failures: Counter,
    /// Items that run in this process.
    pub running: Gauge,
    /// Executions that were ended because their time was up, and that still hold a thread.
    pub stuck: Gauge,
    /// Items of one claim.
    pub claim_size: Histogram,
    /// Items that ended in one transaction.
    pub settle_size: Histogram,
    /// Time from an item being ready or enqueued to its start, by the database's clock.
    pub start_delay: Histogram,
    /// Tries of the retrier, by function.
    pub retrier: Family<Attempts>,
}

impl Figures {
    /// Counts an execution of a pool's item.
    pub(crate) fn record(&self, pool: &str, function: &str, ended: Ended) {
        let counter = match ended {
            Ended::Succeeded => &self.succeeded,
            Ended::Failed => &self.failed,
            Ended::Canceled => &self.canceled,
            Ended::Postponed => &self.postponed,
        };
        counter.increment();
        if pool != RETRIER_POOL {
            return;
        }
        self.retrier.with(function, |attempts| match ended {
            Ended::Succeeded => attempts.succeeded.increment(),
            Ended::Failed => attempts.failed.increment(),
            Ended::Canceled => attempts.canceled.increment(),
            // It was not tried.
            Ended::Postponed => {}
        });
    }
}

impl Measured for Figures {
    fn measure(&self, visit: &mut dyn FnMut(&'static str, &'static str, Reading)) {
        let counters = [
            ("work_taken", "Items taken.", &self.taken),
            ("work_succeeded", "Executions that returned.", &self.succeeded),
            ("work_failed", "Executions that failed.", &self.failed),
            ("work_canceled", "Items that were cancelled.", &self.canceled),
            ("work_postponed", "Items that wait because a circuit was open.", &self.postponed),
            ("work_leases_reaped", "Leases of others that were over.", &self.reaped),
            ("work_leases_lost", "Times that this process lost its lease.", &self.lost),
            ("work_store_failures", "Times that the store failed under the engine.", &self.store_failures),
        ];
        for (name, meaning, counter) in counters {
            visit(name, meaning, Reading::Counter(counter.get()));
        }
        visit("work_running", "Items that run in this process.", Reading::Gauge(self.running.get()));
        visit(
            "work_stuck",
            "Functions that do not stop, and hold a thread.",
            Reading::Gauge(self.stuck.get()),
        );
        visit("work_claim_size", "Items of one claim.", Reading::Sizes(self.claim_size.snapshot()));
        visit(
            "work_settle_size",
            "Items that ended in one transaction.",
            Reading::Sizes(self.settle_size.snapshot()),
        );
        visit(
            "work_start_delay",
            "Time from enqueueing to the first start.",
            Reading::Microseconds(self.start_delay.snapshot()),
        );
        let rows = self.retrier.rows(|operation, attempts| {
            attempts.by_status().map(|(status, count)| (vec![operation.to_owned(), status.to_owned()], count))
        });
        let rows = rows.into_iter().flatten().collect();
        visit(
            "retrier_attempts",
            "Tries of the retrier, by function and how they ended.",
            Reading::Counters(Labelled { labels: &["operation", "status"], rows }),
        );
    }
}
