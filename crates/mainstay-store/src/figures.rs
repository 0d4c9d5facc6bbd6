//! What the store measures about itself.

use mainstay_core::measure::{Counter, Gauge, Histogram, Measured, Reading};

/// The store's own figures.
#[derive(Debug, Default)]
pub struct Figures {
    /// Transactions committed.
    pub committed: Counter,
    /// Transactions rolled back, for whatever reason.
    pub rolled_back: Counter,
    /// Times a closure was run again: a lost group, a serialisation failure, a lost connection.
    pub rerun: Counter,
    /// Calls refused because the store was busy.
    pub busy: Counter,
    /// Calls under way.
    pub in_flight: Gauge,
    /// Transactions waiting for the writer.
    pub queued: Gauge,
    /// Reads waiting for a reader, on SQLite.
    pub queued_reads: Gauge,
    /// Transactions per commit.
    pub group_size: Histogram,
    /// How long a commit took; on SQLite nearly all of it is the fsync.
    pub commit_time: Histogram,
    /// How long a call waited for its turn or its connection.
    pub wait_time: Histogram,
    /// Groups that were lost and whose members were run again alone.
    pub groups_lost: Counter,
    /// Bytes in the write-ahead log of SQLite that are not yet in the database file.
    pub wal_bytes: Gauge,
    /// How long a checkpoint kept the writer waiting.
    pub checkpoint_hold: Histogram,
    /// Reads ended because they kept the write-ahead log alive.
    pub reads_evicted: Counter,
    /// Wake-ups sent.
    pub wakeups: Counter,
    /// Times the connection for wake-ups had to be made anew.
    pub wakeup_reconnects: Counter,
}

impl Measured for Figures {
    fn measure(&self, visit: &mut dyn FnMut(&'static str, &'static str, Reading)) {
        let counter = |counter: &Counter| Reading::Counter(counter.get());
        let gauge = |gauge: &Gauge| Reading::Gauge(gauge.get());
        let time = |histogram: &Histogram| Reading::Microseconds(histogram.snapshot());
        visit("store_transactions_committed", "Transactions committed.", counter(&self.committed));
        visit("store_transactions_rolled_back", "Transactions rolled back.", counter(&self.rolled_back));
        visit("store_transactions_rerun", "Times a transaction was run again.", counter(&self.rerun));
        visit("store_busy", "Calls refused because the store was busy.", counter(&self.busy));
        visit("store_in_flight", "Calls under way.", gauge(&self.in_flight));
        visit("store_writer_queue", "Transactions waiting for the writer.", gauge(&self.queued));
        visit("store_reader_queue", "Reads waiting for a reader.", gauge(&self.queued_reads));
        visit("store_group_size", "Transactions per commit.", Reading::Sizes(self.group_size.snapshot()));
        visit("store_commit_time", "Duration of commits.", time(&self.commit_time));
        visit("store_wait_time", "Time calls waited for their turn.", time(&self.wait_time));
        visit("store_groups_lost", "Groups lost and run again alone.", counter(&self.groups_lost));
        visit("store_wal_bytes", "Size of the write-ahead log.", gauge(&self.wal_bytes));
        visit("store_checkpoint_hold", "Time checkpoints held the writer.", time(&self.checkpoint_hold));
        visit("store_reads_evicted", "Reads ended for the log's sake.", counter(&self.reads_evicted));
        visit("store_wakeups", "Wake-ups sent.", counter(&self.wakeups));
        visit("store_wakeup_reconnects", "Reconnects of the wake-up link.", counter(&self.wakeup_reconnects));
    }
}

/// Counts a call as under way for as long as it lives.
pub(crate) struct InFlight<'a>(&'a Figures);

impl Figures {
    /// Counts a call; the second value is how many are under way with it.
    pub(crate) fn enter(&self) -> (InFlight<'_>, i64) {
        let under_way = self.in_flight.add(1);
        (InFlight(self), under_way)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.add(-1);
    }
}
