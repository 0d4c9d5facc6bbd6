//! What belongs together, from all that the API tells.

use super::super::super::api::{Fault, path, tenant_of, with_tenant};
use super::super::super::parts::{Told, link, short};
use super::super::super::visit::{Visit, address};
use super::work;
use maud::{Markup, html};
use serde_json::{Value, json};

/// Publications are looked up for so many events.
const MOST_PUBLISHED: usize = 40;
/// Most events that the API tells.
const MOST_EVENTS: usize = 1_000;

/// One thing that happened.
pub(super) struct Entry {
    pub(super) at_ms: i64,
    /// When it ended, if it took a while.
    pub(super) until_ms: Option<i64>,
    pub(super) kind: &'static str,
    pub(super) what: Markup,
    pub(super) status: String,
    pub(super) is_failure: bool,
}

/// Everything that was found.
pub(super) struct Found {
    /// In the order of time.
    pub(super) entries: Vec<Entry>,
    /// What there is more of.
    pub(super) cut: Vec<&'static str>,
    /// Whether all work was looked through.
    pub(super) is_all_work: bool,
}

pub(super) async fn gather(visit: &Visit, id: &str, trace: &Value) -> Result<Found, Fault> {
    let mut entries = commands(trace);
    entries.extend(events(trace));
    entries.extend(projections(trace));
    entries.extend(put_aside(trace));
    let mut cut = Vec::new();
    let many = trace.list("events").len();
    if many >= MOST_EVENTS {
        cut.push("events");
    }
    if many > MOST_PUBLISHED {
        cut.push("publications");
    }
    entries.extend(publications(visit, trace).await?);
    if visit.principal.tenant.is_some() {
        entries.sort_by_key(|entry| entry.at_ms);
        return Ok(Found { entries, cut, is_all_work: true });
    }
    let asked = address("/admin/dead-letters", [("correlationId", id), ("limit", "100")].into_iter());
    let inbox = visit.get(&asked).await?;
    if inbox.get("next").is_some_and(Value::is_string) {
        cut.push("dead letters");
    }
    entries.extend(letters(&inbox));
    let moments: Vec<i64> = entries.iter().map(|entry| entry.at_ms).collect();
    let work = work::find(visit, id, &moments).await?;
    entries.extend(items(&work.items));
    entries.sort_by_key(|entry| entry.at_ms);
    Ok(Found { entries, cut, is_all_work: work.is_all })
}

/// What somebody who is confined to a tenant may see of a trace, as a trace: its events.
pub(super) async fn of_tenant(visit: &Visit, id: &str) -> Result<Value, Fault> {
    let limit = MOST_EVENTS.to_string();
    let asked = address("/v1/events", [("correlationId", id), ("limit", &*limit)].into_iter());
    let page = visit.get(&asked).await?;
    let events = page.list("events").iter().map(|event| {
        let stream = event.get("stream").filter(|stream| !stream.is_null());
        json!({
            "eventId": event.text("eventId"), "eventType": event.text("type"), "streamType": stream.map(|stream| stream.text("type")),
            "streamId": stream.map(|stream| stream.text("id")), "timestamp": event.number("timestamp"),
        })
    });
    Ok(json!({ "events": events.collect::<Vec<_>>() }))
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
        what: html! { (link(&with_tenant(path(&["console", "events", event.text("eventId")]), tenant_of(event)), event.text("eventType"))) " " span.hint { @if event["streamId"].is_string() { (event.text("streamType")) "/" (event.text("streamId")) } } },
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

/// Events that a read model goes on without. The inbox has the letters of projections, but not these.
fn put_aside(trace: &Value) -> Vec<Entry> {
    let found = trace.list("deadLetters").iter().filter(|one| one.text("status") == "quarantined");
    let found = found.map(|one| Entry {
        at_ms: one.number("failedAt"),
        until_ms: None,
        kind: "poison event",
        what: html! { (link(&path(&["console", "projections", one.text("projectionName")]), one.text("projectionName"))) ": " a href=(with_tenant(path(&["console", "events", one.text("eventId")]), tenant_of(one))) { (short(one.text("error"), 100)) } },
        status: one.text("status").to_owned(),
        is_failure: true,
    });
    found.collect()
}

async fn publications(visit: &Visit, trace: &Value) -> Result<Vec<Entry>, Fault> {
    let mut entries = Vec::new();
    for event in trace.list("events").iter().take(MOST_PUBLISHED) {
        let found = match visit.get(&path(&["v1", "publications", event.text("eventId")])).await {
            Ok(found) => found,
            // Most events are published nowhere.
            Err(Fault { status: 404, .. }) => continue,
            Err(fault) => return Err(fault),
        };
        entries.extend(found.list("publications").iter().map(|one| Entry {
            at_ms: one.number("createdAt"),
            until_ms: one.maybe("deliveredAt"),
            kind: "publication",
            what: html! { (one.text("eventType")) " → " (one.text("targetContext")) },
            status: one.text("status").to_owned(),
            is_failure: matches!(one.text("status"), "failed" | "dead_letter"),
        }));
    }
    Ok(entries)
}

fn items(work: &[Value]) -> Vec<Entry> {
    let found = work.iter().map(|item| Entry {
        at_ms: item.number("enqueuedAt"),
        until_ms: item.maybe("endedAt"),
        kind: "work",
        what: html! { (link(&path(&["console", "work", item.text("workId")]), item.text("function"))) " " span.hint { (item.text("pool")) } },
        status: item.text("state").to_owned(),
        is_failure: item.text("state") == "failed",
    });
    found.collect()
}

fn letters(found: &Value) -> Vec<Entry> {
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
