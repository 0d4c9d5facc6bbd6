//! `mainstay metrics`: figures of the whole system.

use crate::arguments::Global;
use crate::output::{print, print_json, table};
use crate::reach::Reached;
use crate::shown::text;
use crate::{Error, Result};
use clap::Args;
use serde_json::Value;

/// Tell how far projections are behind, what waits, what lies aside, and how fast it goes
///
/// A server is asked: what it has measured is known to nobody else.
#[derive(Debug, Args)]
pub(crate) struct Metrics {}

impl Metrics {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        let server = match global.reach_existing().await? {
            Reached::Server(server) => server,
            Reached::Store(store) => {
                store.close().await;
                let reason = "no server runs on this store; name one with --server";
                return Err(Error::Argument(format!("figures are a server's, and {reason}")));
            }
        };
        let report: Value = server.get("/admin/metrics")?;
        if global.json {
            return print_json(&report);
        }
        print(&shown(&report))
    }
}

/// The lists of a report, in the order of who looks for what is wrong.
const LISTS: [&str; 7] = [
    "projectionLags",
    "dlqSizes",
    "workpoolDepths",
    "circuitBreakerStates",
    "eventThroughput",
    "commandLatencies",
    "retrierAttempts",
];

fn shown(report: &Value) -> String {
    let figures = LISTS.iter().filter_map(|list| report[*list].as_array()).flatten();
    let rows: Vec<_> =
        figures.map(|figure| [text(&figure["metric"]), labels(figure), value(figure)]).collect();
    table(["METRIC", "OF", "VALUE"], &rows)
}

fn labels(figure: &Value) -> String {
    let values = figure["labels"].as_object().into_iter().flat_map(|labels| labels.values());
    values.map(text).collect::<Vec<_>>().join(" ")
}

/// What there is to say of it; of times also how they are spread.
fn value(figure: &Value) -> String {
    let Some(count) = figure["count"].as_u64() else { return text(&figure["value"]) };
    let of = |name: &str| figure[name].as_f64().unwrap_or_default();
    format!("{:.1} (p50 {:.1}, p95 {:.1}, p99 {:.1}; {count})", of("value"), of("p50"), of("p95"), of("p99"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn b_250_figures_are_shown_one_to_a_line() {
        let report = json!({
            "timestamp": 1,
            "projectionLags": [{"metric": "projection.lag_events", "labels": {"projection_name": "orders"}, "value": 50}],
            "dlqSizes": [{"metric": "dlq.size", "labels": {"kind": "work"}, "value": 1}],
            "workpoolDepths": [],
            "circuitBreakerStates": [{"metric": "circuit_breaker.state", "labels": {"breaker_name": "mail"}, "value": "open"}],
            "commandLatencies": [{
                "metric": "command.latency_ms", "labels": {"command_type": "Place", "status": "success"},
                "value": 1.25, "count": 3, "p50": 1.024, "p95": 2.048, "p99": 2.048,
            }],
        });
        insta::assert_snapshot!(shown(&report), @"
            METRIC                 OF             VALUE
            projection.lag_events  orders         50
            dlq.size               work           1
            circuit_breaker.state  mail           open
            command.latency_ms     Place success  1.2 (p50 1.0, p95 2.0, p99 2.0; 3)
            ");
    }
}
