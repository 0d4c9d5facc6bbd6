//! A trace: everything that belongs together under one correlation id, on one time line, with what failed marked.

use super::super::api::{Fault, path};
use super::super::page::Sheet;
use super::super::parts::{Told, badge, link, moment, short, span};
use super::super::visit::Visit;
use maud::{Markup, html};
use serde_json::Value;

/// Publications are looked up for so many events.
const MOST_PUBLISHED: usize = 40;
/// Most entries that are drawn.
const MOST: usize = 400;

/// One thing that happened.
struct Entry {
    at_ms: i64,
    /// When it ended, if it took a while.
    until_ms: Option<i64>,
    kind: &'static str,
    what: Markup,
    status: String,
    is_failure: bool,
}

pub(super) async fn one(visit: &Visit, id: &str) -> Result<Sheet, Fault> {
    let trace = visit.get(&path(&["admin", "traces", id])).await?;
    let mut entries = commands(&trace);
    entries.extend(events(&trace));
    entries.extend(projections(&trace));
    entries.extend(publications(visit, &trace).await);
    entries.extend(work(visit, id).await);
    entries.extend(letters(visit, id).await);
    entries.sort_by_key(|entry| entry.at_ms);
    let is_cut = entries.len() > MOST;
    entries.truncate(MOST);
    let failure = entries.iter().position(|entry| entry.is_failure);
    let live = html! {
        p.hint { "Correlation " code { (id) } }
        @if let Some(place) = failure {
            p.notice.bad { "Something failed: the " (entries[place].kind) " at " (moment(entries[place].at_ms)) ". " a href="#failure" { "Go there" } }
        }
        @if entries.is_empty() { p.nothing { "Nothing is known under this id." } } @else { (timeline(&entries, failure)) }
        @if is_cut { p.hint { "There is more; the first " (MOST) " are shown." } }
    };
    Ok(Sheet::new("Trace", live))
}

fn commands(trace: &Value) -> Vec<Entry> {
    let found = trace.list("commands").iter().map(|command| {
        let status = command.text("status");
        Entry {
            at_ms: command.number("createdAt"),
            until_ms: command.maybe("completedAt"),
            kind: "command",
            what: html! { (command.text("commandType")) },
            status: status.to_owned(),
            is_failure: status == "failed" || status == "rejected",
        }
    });
    found.collect()
}

fn events(trace: &Value) -> Vec<Entry> {
    let found = trace.list("events").iter().map(|event| Entry {
        at_ms: event.number("timestamp"),
        until_ms: None,
        kind: "event",
        what: html! { (link(&path(&["console", "events", event.text("eventId")]), event.text("eventType"))) " " span.hint { (event.text("streamId")) } },
        status: String::new(),
        is_failure: false,
    });
    found.collect()
}

fn projections(trace: &Value) -> Vec<Entry> {
    let found = trace.list("projectionUpdates").iter().map(|update| Entry {
        at_ms: update.number("updatedAt"),
        until_ms: None,
        kind: "projection",
        what: html! { (link(&path(&["console", "projections", update.text("projectionName")]), update.text("projectionName"))) },
        status: "active".to_owned(),
        is_failure: false,
    });
    found.collect()
}

async fn publications(visit: &Visit, trace: &Value) -> Vec<Entry> {
    let mut entries = Vec::new();
    for event in trace.list("events").iter().take(MOST_PUBLISHED) {
        let Ok(found) = visit.get(&path(&["v1", "publications", event.text("eventId")])).await else {
            continue;
        };
        entries.extend(found.list("publications").iter().map(|one| Entry {
            at_ms: one.number("createdAt"),
            until_ms: one.maybe("deliveredAt"),
            kind: "publication",
            what: html! { (one.text("eventType")) " → " (one.text("targetContext")) },
            status: one.text("status").to_owned(),
            is_failure: one.text("status") == "dead_letter",
        }));
    }
    entries
}

async fn work(visit: &Visit, id: &str) -> Vec<Entry> {
    let asked =
        super::super::visit::address("/admin/work", [("correlationId", id), ("limit", "100")].into_iter());
    let Ok(found) = visit.get(&asked).await else { return Vec::new() };
    let found = found.list("work").iter().map(|item| Entry {
        at_ms: item.number("enqueuedAt"),
        until_ms: item.maybe("endedAt"),
        kind: "work",
        what: html! { (link(&path(&["console", "work", item.text("workId")]), item.text("function"))) " " span.hint { (item.text("pool")) } },
        status: item.text("state").to_owned(),
        is_failure: item.text("state") == "failed",
    });
    found.collect()
}

async fn letters(visit: &Visit, id: &str) -> Vec<Entry> {
    let asked = super::super::visit::address(
        "/admin/dead-letters",
        [("correlationId", id), ("limit", "100")].into_iter(),
    );
    let Ok(found) = visit.get(&asked).await else { return Vec::new() };
    let found = found.list("letters").iter().map(|letter| Entry {
        at_ms: letter.number("failedAt"),
        until_ms: None,
        kind: "dead letter",
        what: html! { (letter.text("name")) ": " a href=(path(&["console", "dead-letters", letter.text("letterId")])) { (short(letter.text("error"), 100)) } },
        status: letter.text("status").to_owned(),
        is_failure: letter.text("status") == "pending",
    });
    found.collect()
}

const WIDTH: f64 = 300.0;

fn timeline(entries: &[Entry], failure: Option<usize>) -> Markup {
    let first = entries.iter().map(|entry| entry.at_ms).min().unwrap_or(0);
    let last = entries.iter().map(|entry| entry.until_ms.unwrap_or(entry.at_ms)).max().unwrap_or(first);
    let whole = (last - first).max(1) as f64;
    let x = |at_ms: i64| (at_ms - first) as f64 / whole * (WIDTH - 12.0) + 6.0;
    html! {
        p.hint { (entries.len()) " entries within " (span(last - first)) "." }
        ol.timeline {
            @for (place, entry) in entries.iter().enumerate() {
                li.failure[entry.is_failure] id=[(failure == Some(place)).then_some("failure")] {
                    time title="after the first" { "+" (span(entry.at_ms - first)) }
                    span.kind { (entry.kind) }
                    span.what { (entry.what) " " @if !entry.status.is_empty() { (badge(&entry.status)) } }
                    svg viewBox={ "0 0 " (WIDTH) " 14" } aria-hidden="true" {
                        line.axis x1="0" y1="7" x2=(WIDTH) y2="7" {}
                        @if let Some(until) = entry.until_ms.filter(|until| *until > entry.at_ms) {
                            rect.took x=(format!("{:.1}", x(entry.at_ms))) y="3" width=(format!("{:.1}", (x(until) - x(entry.at_ms)).max(3.0))) height="8" rx="3" {}
                        } @else {
                            circle.point cx=(format!("{:.1}", x(entry.at_ms))) cy="7" r="4" {}
                        }
                    }
                }
            }
        }
    }
}
