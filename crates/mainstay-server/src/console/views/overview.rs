//! How everything is: health, throughput, lag, depth, letters, circuits, and what has changed lately.

use super::super::api::Fault;
use super::super::page::Sheet;
use super::super::parts::{Column, Line, Told, badge, count, link, meter, span, sparkline, table};
use super::super::past::Moment;
use super::super::visit::Visit;
use super::changes;
use maud::{Markup, html};
use serde_json::Value;

pub(super) async fn all(visit: &Visit) -> Result<Sheet, Fault> {
    let state = visit.get("/admin/system").await?;
    let pools = visit.get("/v1/pools?limit=1000").await?;
    let figures = visit.get("/admin/metrics").await?;
    let changes = changes::lately(visit, &pools).await?;
    let past = visit.app.past().show();
    let live = html! {
        (verdict(&state))
        section.tiles aria-label="Figures" { (tiles(&state, &pools, &past)) }
        div.columns {
            section { h2 { "Health" } (components(&state["health"])) }
            section { h2 { "What changed lately" } (changes) }
        }
        (rebuilds(&state))
        div.columns {
            section { h2 { a href="/console/projections" { "Projections" } } (lags(&state)) }
            section { h2 { a href="/console/work" { "Pools" } } (busiest(&pools)) }
        }
        section { h2 { "Commands" } (commands(&figures)) }
    };
    Ok(Sheet::new("Overview", live))
}

fn verdict(state: &Value) -> Markup {
    let status = state["summary"].text("status");
    let critical = state["summary"].list("critical");
    html! {
        div class={ "verdict " (status) } role="status" {
            (badge(status))
            @if critical.is_empty() { span { "Nothing asks for anybody." } }
            @else { ul { @for line in critical { li { (line.as_str().unwrap_or_default()) } } } }
        }
    }
}

fn tiles(state: &Value, pools: &Value, past: &[Moment]) -> Markup {
    let summary = &state["summary"];
    let waiting: i64 = pools.list("pools").iter().map(|pool| pool.number("pending")).sum();
    let lag = state["projections"]["lags"].as_object().into_iter().flatten();
    let lag = lag.filter_map(|(_, lag)| lag.as_i64()).max().unwrap_or(0);
    let rate = rates(past);
    // A line ends with what stands above it. As long as that is the same, the page stays the same.
    let at_ms = state.number("timestamp");
    let line = |of: fn(&Moment) -> u64, now: i64| {
        let points = past.iter().map(|moment| (moment.at_ms, of(moment) as f64));
        let differs = past.last().is_some_and(|last| last.at_ms < at_ms && of(last) as i64 != now);
        points.chain(differs.then_some((at_ms, now as f64))).collect::<Vec<_>>()
    };
    let [letters, aside, open] =
        ["pendingDeadLetters", "quarantinedEvents", "openCircuits"].map(|name| summary.number(name));
    html! {
        (tile("/console/events", "Events per second", &rate.last().map_or("–".to_owned(), |(_, rate)| format!("{rate:.1}")), &rate, false))
        (tile("/console/projections", "Furthest behind, events", &count(lag), &line(|moment| moment.lag, lag), lag > 100))
        (tile("/console/work", "Work that waits", &count(waiting), &line(|moment| moment.waiting, waiting), false))
        (tile("/console/dead-letters?status=pending", "Dead letters pending", &count(letters), &line(|moment| moment.letters, letters), letters > 0))
        (tile("/console/projections#poison", "Events put aside", &count(aside), &line(|moment| moment.aside, aside), aside > 0))
        (tile("/console/circuits", "Open circuits", &count(open), &line(|moment| moment.open, open), open > 0))
    }
}

/// Events per second between each moment and the one before.
fn rates(past: &[Moment]) -> Vec<(i64, f64)> {
    let pairs = past.iter().zip(past.iter().skip(1));
    pairs
        .map(|(before, after)| {
            let seconds = (after.at_ms - before.at_ms).max(1) as f64 / 1_000.0;
            (after.at_ms, after.head.saturating_sub(before.head) as f64 / seconds)
        })
        .collect()
}

fn tile(to: &str, title: &str, value: &str, points: &[(i64, f64)], is_bad: bool) -> Markup {
    html! {
        a.tile.bad[is_bad] href=(to) {
            span.title { (title) }
            strong { (value) }
            (sparkline(&Line { title: &format!("{title}, the last minutes"), points }))
        }
    }
}

fn components(health: &Value) -> Markup {
    let rows = health.list("components").iter().map(|one| {
        let about = html! {
            @if let Some(error) = one.get("error").and_then(Value::as_str) { (error) " " }
            @if let Some(action) = one.get("suggestedAction").and_then(Value::as_str) { em { (action) } }
        };
        vec![html! { (one.text("name")) }, badge(one.text("status")), about]
    });
    table(
        &[Column::Text("Part"), Column::Text("Status"), Column::Text("What helps")],
        rows.collect(),
        "Nothing is known yet.",
    )
}

fn rebuilds(state: &Value) -> Markup {
    let running = state["projections"].list("activeRebuilds");
    html! {
        @if !running.is_empty() {
            section { h2 { "Rebuilds" }
                @for one in running {
                    p.rebuild {
                        (link(&format!("/console/projections/{}", one.text("projectionName")), one.text("projectionName"))) " "
                        (meter(one["percentComplete"].as_f64().unwrap_or(0.0), "How much is done")) " "
                        (format!("{:.0} %", one["percentComplete"].as_f64().unwrap_or(0.0)))
                        @if let Some(left) = one.maybe("estimatedRemainingMs") { ", " (span(left)) " left" }
                    }
                }
            }
        }
    }
}

fn lags(state: &Value) -> Markup {
    let lags = state["projections"]["lags"].as_object();
    let rows = lags.into_iter().flatten().map(|(name, lag)| {
        let lag = lag.as_i64().unwrap_or(0);
        let band = match lag {
            ..=10 => "healthy",
            11..=100 => "warning",
            101..=1_000 => "degraded",
            _ => "unhealthy",
        };
        let name = link(&super::super::api::path(&["console", "projections", name]), name);
        vec![name, html! { (count(lag)) }, badge(band)]
    });
    table(
        &[Column::Text("Projection"), Column::Number("Behind"), Column::Text("")],
        rows.collect(),
        "This server keeps no read models.",
    )
}

fn busiest(pools: &Value) -> Markup {
    let mut pools: Vec<&Value> = pools.list("pools").iter().collect();
    pools.sort_by_key(|pool| std::cmp::Reverse(pool.number("pending") + pool.number("running")));
    let rows = pools.into_iter().take(8).map(|pool| {
        vec![
            link(
                &super::super::api::path(&["console", "work", "pools", pool.text("name")]),
                pool.text("name"),
            ),
            html! { (count(pool.number("pending"))) },
            html! { (count(pool.number("running"))) },
            html! { (format!("{:.1}", pool["endedPerSecond"].as_f64().unwrap_or(0.0))) },
        ]
    });
    let columns = [
        Column::Text("Pool"),
        Column::Number("Waiting"),
        Column::Number("Running"),
        Column::Number("Ended /s"),
    ];
    table(&columns, rows.collect(), "There are no pools.")
}

fn commands(figures: &Value) -> Markup {
    let rows = figures.list("commandLatencies").iter().map(|one| {
        let ms = |name: &str| format!("{:.1} ms", one[name].as_f64().unwrap_or(0.0));
        vec![
            html! { (one.text("commandType")) },
            badge(one.text("status")),
            html! { (count(one.number("count"))) },
            html! { (ms("p50Ms")) },
            html! { (ms("p99Ms")) },
        ]
    });
    let columns = [
        Column::Text("Command"),
        Column::Text("Outcome"),
        Column::Number("Dispatched here"),
        Column::Number("Median"),
        Column::Number("99 of 100 within"),
    ];
    table(&columns, rows.collect(), "No command was dispatched on this node yet.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_api::{CommandLatency, MetricsReport};

    #[test]
    fn the_times_of_commands_are_those_of_the_metrics_report() {
        let place = CommandLatency {
            command_type: "Place".to_owned(),
            status: "success".to_owned(),
            count: 3,
            mean_ms: 2.0,
            p50_ms: 1.5,
            p95_ms: 9.0,
            p99_ms: 20.0,
        };
        let report = MetricsReport { command_latencies: vec![place], ..MetricsReport::default() };
        let drawn = commands(&serde_json::to_value(report).unwrap()).into_string();
        for text in ["Place", "success", "3", "1.5 ms", "20.0 ms"] {
            assert!(drawn.contains(text), "{text}: {drawn}");
        }
    }
}
