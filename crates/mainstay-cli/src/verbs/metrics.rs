//! `mainstay metrics`: figures of the whole system.

use crate::Result;
use crate::arguments::Global;
use crate::client::Call;
use crate::output::{print, print_json, table};
use clap::Args;
use mainstay_api::{CommandLatency, MetricsReport};
use std::collections::BTreeMap;

/// Tell how far projections are behind, what waits, what lies aside, and how fast it goes
///
/// A server is asked: what it has measured is known to nobody else.
#[derive(Debug, Args)]
pub(crate) struct Metrics {}

impl Metrics {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        let why = "figures are a server's, and no server runs on this store; name one with --server";
        let report: MetricsReport = global.send_to_server(why, Call::new("GET /admin/metrics", &[])).await?;
        if global.json {
            return print_json(&report);
        }
        print(&shown(&report))
    }
}

fn shown(report: &MetricsReport) -> String {
    let mut rows = Vec::new();
    let mut figures = |metric: &str, values: &BTreeMap<String, u64>| {
        rows.extend(values.iter().map(|(of, value)| [metric.to_owned(), of.clone(), value.to_string()]));
    };
    figures("projection.lag_events", &report.projection_lags);
    figures("dlq.size", &report.dlq_sizes);
    figures("dead letters", &report.dead_letters_by_kind);
    figures("workpool.queue_depth", &report.workpool_depths);
    figures("events.throughput", &report.event_throughput);
    for (operation, attempts) in &report.retrier_attempts {
        let named =
            attempts.iter().map(|(status, count)| (format!("{operation} {status}"), *count)).collect();
        figures("retrier.attempts", &named);
    }
    let states = report.circuit_breaker_states.iter();
    rows.extend(
        states.map(|(name, state)| ["circuit_breaker.state".to_owned(), name.clone(), state.clone()]),
    );
    rows.extend(report.command_latencies.iter().map(|one| {
        let CommandLatency { command_type, status, count, mean_ms, p50_ms, p95_ms, p99_ms } = one;
        let spread = format!("{mean_ms:.1} (p50 {p50_ms:.1}, p95 {p95_ms:.1}, p99 {p99_ms:.1}; {count})");
        ["command.latency_ms".to_owned(), format!("{command_type} {status}"), spread]
    }));
    table(["METRIC", "OF", "VALUE"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_250_figures_are_shown_one_to_a_line() {
        let of = |name: &str, value| BTreeMap::from([(name.to_owned(), value)]);
        let report = MetricsReport {
            projection_lags: of("orders", 50),
            dlq_sizes: of("orders", 1),
            dead_letters_by_kind: of("work", 1),
            circuit_breaker_states: BTreeMap::from([("mail".to_owned(), "open".to_owned())]),
            retrier_attempts: BTreeMap::from([("call".to_owned(), of("failed", 2))]),
            command_latencies: vec![CommandLatency {
                command_type: "Place".to_owned(),
                status: "success".to_owned(),
                count: 3,
                mean_ms: 1.25,
                p50_ms: 1.024,
                p95_ms: 2.048,
                p99_ms: 2.048,
            }],
            ..MetricsReport::default()
        };
        insta::assert_snapshot!(shown(&report), @"
            METRIC                 OF             VALUE
            projection.lag_events  orders         50
            dlq.size               orders         1
            dead letters           work           1
            retrier.attempts       call failed    2
            circuit_breaker.state  mail           open
            command.latency_ms     Place success  1.2 (p50 1.0, p95 2.0, p99 2.0; 3)
            ");
    }
}
