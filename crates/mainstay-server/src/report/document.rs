//! All figures as JSON, by the names of item 250.

use super::collect::Collected;
use crate::app::App;
use mainstay_api::{CommandLatency, MetricsReport};
use mainstay_core::measure::HistogramSnapshot;
use std::collections::BTreeMap;

/// What was read from the database, if it could be read, and what this process has measured.
pub(super) fn report(app: &App, read: Result<&Collected, &'static str>) -> MetricsReport {
    let timestamp = app.store().clock().now_ms();
    let states = app.circuits().states().into_iter();
    let measured = MetricsReport {
        timestamp,
        event_throughput: app.rates().per_minute(timestamp, appended(app)).into_iter().collect(),
        command_latencies: latencies(app),
        circuit_breaker_states: states.map(|(name, state)| (name, state.to_string())).collect(),
        retrier_attempts: attempts(app),
        ..MetricsReport::default()
    };
    let read = match read {
        Ok(read) => read,
        Err(code) => return MetricsReport { error: Some(code.to_owned()), ..measured },
    };
    let aside = |one: &mainstay_flows::projections::Aside| one.letters.saturating_add(one.quarantined);
    MetricsReport {
        projection_lags: read.projections.iter().map(|one| (one.name.clone(), one.lag)).collect(),
        dlq_sizes: read.aside.iter().map(|one| (one.projection.clone(), aside(one))).collect(),
        dead_letters_by_kind: read
            .letters
            .iter()
            .map(|(kind, count)| (kind.as_str().to_owned(), *count))
            .collect(),
        workpool_depths: read.pools.iter().map(|pool| (pool.name.clone(), pool.depth.pending)).collect(),
        ..measured
    }
}

/// How many events this process has appended, by the type of their stream.
pub(super) fn appended(app: &App) -> BTreeMap<String, u64> {
    let rows = app.log().figures().events_of.rows(|name, counter| (name.to_owned(), counter.get()));
    rows.into_iter().collect()
}

fn latencies(app: &App) -> Vec<CommandLatency> {
    let times = app.commands().figures().times();
    times.into_iter().map(|(name, status, times)| latency(name, status, &times)).collect()
}

fn latency(command_type: &str, status: &str, micros: &HistogramSnapshot) -> CommandLatency {
    let quantile = |of: f64| micros.quantile(of) as f64 / 1_000.0;
    CommandLatency {
        command_type: command_type.to_owned(),
        status: status.to_owned(),
        count: micros.count,
        mean_ms: micros.mean() / 1_000.0,
        p50_ms: quantile(0.5),
        p95_ms: quantile(0.95),
        p99_ms: quantile(0.99),
    }
}

fn attempts(app: &App) -> BTreeMap<String, BTreeMap<String, u64>> {
    let rows = app.work().figures().retrier.rows(|operation, attempts| {
        let by_status = attempts.by_status().into_iter();
        (operation.to_owned(), by_status.map(|(status, value)| (status.to_owned(), value)).collect())
    });
    rows.into_iter().collect()
}
