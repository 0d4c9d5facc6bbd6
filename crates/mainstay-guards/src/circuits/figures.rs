//! What circuits measure about themselves.

use mainstay_core::measure::{Counter, Gauge, Measured, Reading};

/// The figures of this process.
#[derive(Debug, Default)]
pub struct Figures {
    /// Calls that were refused.
    pub rejected: Counter,
    /// Probes that were let through.
    pub probes: Counter,
    /// Times that this process's reports opened a circuit.
    pub opened: Counter,
    /// Times that this process let a circuit be half open.
    pub half_opened: Counter,
    /// Times that this process's reports closed a circuit.
    pub closed: Counter,
    /// Times that an operator decided by way of this process.
    pub forced: Counter,
    /// Transactions in which reports were written.
    pub writes: Counter,
    /// Reports that were written or were of no consequence any more.
    pub reports: Counter,
    /// 1 while the database cannot be reached.
    pub away: Gauge,
}

impl Measured for Figures {
    fn measure(&self, visit: &mut dyn FnMut(&'static str, &'static str, Reading)) {
        let counters = [
            ("circuits_rejected", "Calls that circuits refused.", &self.rejected),
            ("circuits_probes", "Probes that were let through.", &self.probes),
            ("circuits_opened", "Circuits that opened.", &self.opened),
            ("circuits_half_opened", "Circuits that became half open.", &self.half_opened),
            ("circuits_closed", "Circuits that closed.", &self.closed),
            ("circuits_forced", "Decisions of operators about circuits.", &self.forced),
            ("circuits_writes", "Transactions in which reports were written.", &self.writes),
            ("circuits_reports", "Reports about calls that were written.", &self.reports),
        ];
        for (name, meaning, counter) in counters {
            visit(name, meaning, Reading::Counter(counter.get()));
        }
        visit(
            "circuits_away",
            "1 while circuits cannot reach the database.",
            Reading::Gauge(self.away.get()),
        );
    }
}
