//! All figures as JSON, by the names of item 250.

use super::collect::Collected;
use crate::app::App;
use mainstay_core::measure::HistogramSnapshot;
use mainstay_guards::circuits;
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Figures of the whole system.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = MetricsReport)]
pub(crate) struct Report {
    /// When they were read, in milliseconds since the epoch.
    pub(crate) timestamp: i64,
    /// `projection.lag_events`: how many events every projection is behind.
    pub(crate) projection_lags: Vec<Figure>,
    /// `dlq.size`: what lies aside of every projection, and of every other kind, counted up to 1000 each.
    pub(crate) dlq_sizes: Vec<Figure>,
    /// `workpool.queue_depth`: how many items of every pool wait.
    pub(crate) workpool_depths: Vec<Figure>,
    /// `events.throughput`: how many events were appended by this server within a minute, by the type of their stream.
    pub(crate) event_throughput: Vec<Figure>,
    /// `command.latency_ms`: how long commands took at this server since it began.
    pub(crate) command_latencies: Vec<Latency>,
    /// `circuit_breaker.state`: where circuits are that have counted something.
    pub(crate) circuit_breaker_states: Vec<CircuitFigure>,
    /// `retrier.attempts`: tries of the retrier at this server since it began.
    pub(crate) retrier_attempts: Vec<Figure>,
    /// Why nothing could be read from the database, as an error code.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) error: Option<&'static str>,
}

/// A figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = MetricsFigure)]
pub(crate) struct Figure {
    /// What it tells.
    #[schema(value_type = String, example = "projection.lag_events")]
    pub(crate) metric: &'static str,
    /// Of what.
    #[schema(value_type = BTreeMap<String, String>)]
    pub(crate) labels: Labels,
    pub(crate) value: u64,
}

/// How long something takes, in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = MetricsLatency)]
pub(crate) struct Latency {
    /// What it tells.
    #[schema(value_type = String, example = "command.latency_ms")]
    pub(crate) metric: &'static str,
    /// Of what.
    #[schema(value_type = BTreeMap<String, String>)]
    pub(crate) labels: Labels,
    /// The mean.
    pub(crate) value: f64,
    /// How often it happened.
    pub(crate) count: u64,
    /// What half of them do not exceed, within a factor of two.
    pub(crate) p50: f64,
    /// What 95 of a hundred do not exceed, within a factor of two.
    pub(crate) p95: f64,
    /// What 99 of a hundred do not exceed, within a factor of two.
    pub(crate) p99: f64,
}

/// Where a circuit is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = MetricsCircuit)]
pub(crate) struct CircuitFigure {
    /// What it tells.
    #[schema(value_type = String, example = "circuit_breaker.state")]
    pub(crate) metric: &'static str,
    /// Of what.
    #[schema(value_type = BTreeMap<String, String>)]
    pub(crate) labels: Labels,
    /// `closed`, `open` or `half_open`.
    #[schema(value_type = String, example = "closed")]
    pub(crate) value: circuits::State,
}

type Labels = BTreeMap<&'static str, String>;

fn labels<const N: usize>(labels: [(&'static str, &str); N]) -> Labels {
    labels.into_iter().map(|(name, value)| (name, value.to_owned())).collect()
}

impl Report {
    /// What was read, if anything was, and what this process has measured.
    pub(super) fn of(app: &App, read: Result<&Collected, &'static str>) -> Self {
        let timestamp = app.store().clock().now_ms();
        Self {
            timestamp,
            projection_lags: read.map(lags).unwrap_or_default(),
            dlq_sizes: read.map(letters).unwrap_or_default(),
            workpool_depths: read.map(depths).unwrap_or_default(),
            event_throughput: throughput(app, timestamp),
            command_latencies: latencies(app),
            circuit_breaker_states: circuit_states(app),
            retrier_attempts: attempts(app),
            error: read.err(),
        }
    }
}

fn lags(read: &Collected) -> Vec<Figure> {
    let figure = |(name, value): (&str, u64)| Figure {
        metric: "projection.lag_events",
        labels: labels([("projection_name", name)]),
        value,
    };
    read.projections.iter().map(|one| figure((&one.name, one.lag))).collect()
}

fn letters(read: &Collected) -> Vec<Figure> {
    let figure = |labels, value| Figure { metric: "dlq.size", labels, value };
    // Those of projections are told one by one.
    let others = read.letters.iter().filter(|(kind, _)| kind != mainstay_work::inbox::PROJECTION);
    let others = others.map(|(kind, count)| figure(labels([("kind", kind)]), *count));
    let aside = read.aside.iter().map(|one| {
        figure(labels([("projection_name", &one.projection)]), one.letters.saturating_add(one.quarantined))
    });
    aside.chain(others).collect()
}

fn depths(read: &Collected) -> Vec<Figure> {
    let depth = |pool: &mainstay_work::PoolStatus| Figure {
        metric: "workpool.queue_depth",
        labels: labels([("pool_name", &pool.name)]),
        value: pool.depth.pending,
    };
    read.pools.iter().map(depth).collect()
}

fn throughput(app: &App, now_ms: i64) -> Vec<Figure> {
    let figure = |(name, value): (String, u64)| Figure {
        metric: "events.throughput",
        labels: labels([("stream_type", &name)]),
        value,
    };
    app.rates().per_minute(now_ms, appended(app)).into_iter().map(figure).collect()
}

/// How many events this process has appended, by the type of their stream.
pub(super) fn appended(app: &App) -> BTreeMap<String, u64> {
    let rows = app.log().figures().events_of.rows(|name, counter| (name.to_owned(), counter.get()));
    rows.into_iter().collect()
}

fn latencies(app: &App) -> Vec<Latency> {
    let times = app.commands().figures().times();
    times.into_iter().map(|(name, status, times)| latency(name, status, &times)).collect()
}

fn latency(command_type: &str, status: &str, micros: &HistogramSnapshot) -> Latency {
    let quantile = |of: f64| micros.quantile(of) as f64 / 1_000.0;
    Latency {
        metric: "command.latency_ms",
        labels: labels([("command_type", command_type), ("status", status)]),
        value: micros.mean() / 1_000.0,
        count: micros.count,
        p50: quantile(0.5),
        p95: quantile(0.95),
        p99: quantile(0.99),
    }
}

fn circuit_states(app: &App) -> Vec<CircuitFigure> {
    let figure = |(name, value): (String, circuits::State)| CircuitFigure {
        metric: "circuit_breaker.state",
        labels: labels([("breaker_name", &name)]),
        value,
    };
    app.circuits().states().into_iter().map(figure).collect()
}

fn attempts(app: &App) -> Vec<Figure> {
    let rows = app.work().figures().retrier.rows(|operation, attempts| {
        attempts.by_status().map(|(status, value)| Figure {
            metric: "retrier.attempts",
            labels: labels([("operation_name", operation), ("status", status)]),
            value,
        })
    });
    rows.into_iter().flatten().collect()
}
