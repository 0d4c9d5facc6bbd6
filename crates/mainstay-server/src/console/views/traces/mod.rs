//! A trace: everything that belongs together under one correlation id, on one time line, with what failed marked.
//!
//! - `gather`: what belongs together, from all that the API tells
//! - `work`: items of work, which no index finds by their correlation

mod gather;
mod work;

use super::super::api::{Fault, path};
use super::super::page::Sheet;
use super::super::parts::{badge, moment, span};
use super::super::visit::{Visit, address};
use gather::{Entry, gather};
use maud::{Markup, html};

/// Most entries that are drawn.
const MOST: usize = 400;

pub(super) async fn one(visit: &Visit, id: &str) -> Result<Sheet, Fault> {
    let is_confined = visit.principal.tenant.is_some();
    let trace = match is_confined {
        true => gather::of_tenant(visit, id).await?,
        false => visit.get(&path(&["admin", "traces", id])).await?,
    };
    let mut found = gather(visit, id, &trace).await?;
    let is_cut = found.entries.len() > MOST;
    found.entries.truncate(MOST);
    let (entries, failure) = (&found.entries, found.entries.iter().position(|entry| entry.is_failure));
    let all_work = address("/console/work", [("correlationId", id)].into_iter());
    let live = html! {
        p.hint { "Correlation " code { (id) } }
        @if let Some(place) = failure {
            p.notice.bad { "Something failed: the " (entries[place].kind) " at " (moment(entries[place].at_ms)) ". " a href="#failure" { "Go there" } }
        }
        @if entries.is_empty() { p.nothing { "Nothing is known under this id." } } @else { (timeline(entries, failure)) }
        @if is_cut { p.hint { "There is more; the first " (MOST) " are shown." } }
        @for part in &found.cut { p.hint { "There are more " (part) " than are shown here." } }
        @if is_confined { p.hint { "Commands, read models, work and dead letters belong to no tenant, and are not shown." } }
        @if !found.is_all_work {
            p.hint { "Work was looked for around these moments and not among everything that there is. " a href=(all_work) { "Look through all of it" } }
        }
    };
    Ok(Sheet::new("Trace", live))
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
