//! Measuring by one caller and by many: how many and how long, and a row for each.

use clap::Args;
use mainstay::store::Store;
use mainstay_bench::load::{Load, Outcome};
use mainstay_bench::table::Table;
use serde::Serialize;
use std::time::Duration;

#[derive(Debug, Args)]
pub(super) struct Size {
    /// How many callers at once, one measurement each
    #[arg(long, value_delimiter = ',', default_value = "1,8,64", value_parser = clap::value_parser!(u16).range(1..=4096))]
    callers: Vec<u16>,
    /// How long each measurement takes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(super) seconds: u64,
}

impl Size {
    pub(super) fn loads(&self) -> impl Iterator<Item = Load> {
        self.callers.iter().map(|callers| Load {
            callers: usize::from(*callers),
            warm_up: Duration::from_millis(300),
            measured: Duration::from_secs(self.seconds),
        })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Measurement {
    callers: usize,
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    failed: u64,
    transactions_per_commit: f64,
}

/// The table, and what is needed to fill it.
pub(super) struct Rows<'a> {
    what: &'static str,
    store: &'a Store,
    pub(super) table: Table,
    first: Option<f64>,
    /// Transactions and commits before the measurement.
    before: (u64, u64),
}

impl<'a> Rows<'a> {
    pub(super) fn new(what: &'static str, store: &'a Store) -> Self {
        Self { what, store, table: Table::new(), first: None, before: (0, 0) }
    }

    fn groups(&self) -> (u64, u64) {
        let groups = self.store.figures().group_size.snapshot();
        (groups.sum, groups.count)
    }

    pub(super) fn before(&mut self) {
        self.before = self.groups();
    }

    pub(super) fn add(&mut self, outcome: &Outcome) -> Measurement {
        let (transactions, commits) = self.groups();
        let shared = (transactions - self.before.0) as f64 / (commits - self.before.1).max(1) as f64;
        let first = *self.first.get_or_insert(outcome.per_second());
        self.table.add(self.what, outcome, &format!("{:.1}×", outcome.per_second() / first));
        measurement(outcome, shared)
    }
}

fn measurement(outcome: &Outcome, transactions_per_commit: f64) -> Measurement {
    Measurement {
        callers: outcome.callers,
        per_second: outcome.per_second(),
        p50_ms: outcome.latency_ms(0.5),
        p99_ms: outcome.latency_ms(0.99),
        p999_ms: outcome.latency_ms(0.999),
        failed: outcome.failed,
        transactions_per_commit,
    }
}
