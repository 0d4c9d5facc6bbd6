//! Dead letters: one inbox over all kinds, by error, and what can be done about one or many.

use super::super::api::{Fault, path};
use super::super::page::Sheet;
use super::super::parts::{
    Ask, Column, Told, ago, attempts, badge, choice, code, count, field, filters, link, moment, next, pretty,
    rows, short, table,
};
use super::super::visit::{Visit, address};
use crate::access::Role;
use maud::{Markup, html};
use serde_json::Value;

/// What a list can be asked for, and what a bulk operation is asked with.
const FILTERS: [&str; 6] = ["kind", "name", "status", "group", "error", "correlationId"];

pub(super) async fn list(visit: &Visit) -> Result<Sheet, Fault> {
    let asked = visit.asked.only("/admin/dead-letters", &with_cursor(), &[("limit", "50")]);
    let letters = visit.get(&asked).await?;
    let stats = visit.get("/admin/dead-letters/stats").await?;
    let groups =
        visit.get(&visit.asked.only("/admin/dead-letters/groups", &FILTERS, &[("limit", "8")])).await?;
    let now = visit.now_ms();
    let live = html! {
        p { strong { (count(stats.number("pending"))) } " wait for somebody, of " (count(stats.number("total"))) " that are kept. " a href="/console/dead-letters/operations" { "What was done about them" } }
        section { h2 { "By error" } (grouped(visit, groups.list("groups"), now)) }
        section {
            h2 { "Letters" }
            div.actions { (bulk(visit)) }
            (drawn(letters.list("letters"), now))
            (next(visit, "cursor", letters.get("next").and_then(Value::as_str)))
        }
    };
    let fields = html! {
        (choice(visit, "status", "Status", &["pending", "retrying", "resolved", "ignored"]))
        (choice(visit, "kind", "Kind", &["work", "onComplete", "append", "publication", "projection", "quarantinedEvent"]))
        (field(visit, "name", "Function, projection or target"))
        (field(visit, "error", "Error contains"))
        (field(visit, "correlationId", "Correlation"))
        @if let Some(group) = visit.asked.get("group") { input type="hidden" name="group" value=(group); }
    };
    Ok(Sheet::new("Dead letters", live).controls(filters(visit, fields)))
}

fn with_cursor() -> Vec<&'static str> {
    FILTERS.into_iter().chain(["cursor"]).collect()
}

fn grouped(visit: &Visit, groups: &[Value], now: i64) -> Markup {
    let drawn = groups.iter().map(|group| {
        let id = group.text("group");
        let filter = [("group", id), ("kind", group.text("kind")), ("name", group.text("name"))];
        let chosen = address("/console/dead-letters", filter.into_iter());
        vec![
            html! { a href=(chosen) { (short(group.text("error"), 100)) } },
            html! { (group.text("kind")) " " (code(group.text("name"))) },
            html! { (count(group.number("count"))) },
            ago(group.number("oldestFailedAt"), now),
            ago(group.number("newestFailedAt"), now),
            html! {
                @for verb in [Verb::Retry, Verb::Ignore] {
                    (preview(visit, verb, vec![("set.filter.group", id.to_owned()), ("set.filter.kind", group.text("kind").to_owned()), ("set.filter.name", group.text("name").to_owned()), ("set.filter.status", "pending".to_owned())]))
                }
            },
        ]
    });
    let columns = [
        Column::Text("Error"),
        Column::Text("Of"),
        Column::Number("Letters"),
        Column::Text("Oldest"),
        Column::Text("Newest"),
        Column::Actions,
    ];
    table(&columns, drawn.collect(), "Nothing waits.")
}

/// What can be done about many at once.
#[derive(Clone, Copy)]
enum Verb {
    Retry,
    Ignore,
    Purge,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Ignore => "ignore",
            Self::Purge => "purge",
        }
    }
}

/// Makes a preview of an operation, and goes there.
fn preview(visit: &Visit, verb: Verb, filter: Vec<(&'static str, String)>) -> Markup {
    let (role, title) = match verb {
        Verb::Retry => (Role::Operator, "Retry"),
        Verb::Ignore => (Role::Operator, "Ignore"),
        Verb::Purge => (Role::Admin, "Purge"),
    };
    if !visit.may(role) {
        return html! {};
    }
    let fields = html! {
        input type="hidden" name="call" value="POST /admin/dead-letter-operations";
        input type="hidden" name="back" value=(visit.here());
        input type="hidden" name="said" value="Nothing is done yet: look at what it will touch, and run it.";
        input type="hidden" name="onward" value="/console/dead-letters/operations/ with operationId";
        input type="hidden" name="set.action" value=(verb.name());
        @for (name, value) in &filter { input type="hidden" name=(name) value=(value); }
        button.quiet type="submit" { (title) " all…" }
    };
    super::super::parts::post(visit, "/console/act", fields)
}

/// Operations on everything that the filters of this page find.
fn bulk(visit: &Visit) -> Markup {
    const NAMES: [(&str, &str); 6] = [
        ("kind", "set.filter.kind"),
        ("name", "set.filter.name"),
        ("status", "set.filter.status"),
        ("group", "set.filter.group"),
        ("error", "set.filter.error"),
        ("correlationId", "set.filter.correlationId"),
    ];
    let filter =
        || NAMES.iter().filter_map(|(name, field)| Some((*field, visit.asked.get(name)?.to_owned())));
    html! {
        span.hint { "All that these filters find: " }
        @for verb in [Verb::Retry, Verb::Ignore, Verb::Purge] { (preview(visit, verb, filter().collect())) }
    }
}

pub(super) fn drawn(letters: &[Value], now: i64) -> Markup {
    let rows = letters.iter().map(|letter| {
        vec![
            html! { a href=(path(&["console", "dead-letters", letter.text("letterId")])) { (short(letter.text("error"), 90)) } },
            html! { (letter.text("kind")) " " (code(letter.text("name"))) },
            badge(letter.text("status")),
            html! { (letter.number("retryCount")) },
            html! { @if let Some(id) = letter.get("correlationId").and_then(Value::as_str) { (link(&path(&["console", "traces", id]), id)) } },
            ago(letter.number("failedAt"), now),
        ]
    });
    let columns = [
        Column::Text("Error"),
        Column::Text("Of"),
        Column::Text("Status"),
        Column::Number("Retries"),
        Column::Text("Correlation"),
        Column::Text("Failed"),
    ];
    table(&columns, rows.collect(), "There is no such letter.")
}

/// The reference of a letter, with a link if it is work. Behind the event of a tenant stands the tenant.
fn reference(id: &str) -> Markup {
    html! {
        @if id.starts_with("work_") { (link(&path(&["console", "work", id]), id)) } @else { code { (id.replace('\u{1f}', " of ")) } }
    }
}

pub(super) async fn one(visit: &Visit, id: &str) -> Result<Sheet, Fault> {
    let letter = visit.get(&path(&["admin", "dead-letters", id])).await?;
    let now = visit.now_ms();
    let call = |verb: &str| format!("POST {}", path(&["admin", "dead-letters", id, verb]));
    let status = letter.text("status");
    let live = html! {
        p.notice.bad { (letter.text("error")) }
        div.actions {
            @if status == "pending" || status == "ignored" {
                (Ask { verb: "Retry", meaning: "It is tried again as a new attempt that is linked to this letter; its history stays.", call: call("retry"), said: "It is tried again.", ..Ask::default() }.draw(visit))
            }
            @if status == "pending" {
                (Ask { verb: "Ignore", meaning: "It is left for good, and kept until it is purged.", call: call("ignore"), said: "It is left for good.", is_grave: true, ..Ask::default() }.draw(visit))
            }
        }
        (rows(vec![
            ("Status", Some(badge(status))),
            ("Kind", Some(html! { (letter.text("kind")) })),
            ("Of", Some(code(letter.text("name")))),
            ("Failed", Some(html! { (moment(letter.number("failedAt"))) ", " (ago(letter.number("failedAt"), now)) })),
            ("Changed", Some(ago(letter.number("changedAt"), now))),
            ("Retries", Some(html! { (letter.number("retryCount")) })),
            ("Correlation", letter.get("correlationId").and_then(Value::as_str).map(|id| link(&path(&["console", "traces", id]), id))),
            ("Letter", Some(code(letter.text("letterId")))),
            ("Reference", Some(reference(letter.text("reference")))),
        ]))
        section { h2 { "Attempts" } (attempts(letter.list("attempts"), "Its attempts are told below.")) }
        @for (title, member) in [("Work", "work"), ("Projection", "projection"), ("Quarantined event", "quarantinedEvent"), ("Publication", "publication")] {
            @if letter.get(member).is_some_and(|about| !about.is_null()) { section { h2 { (title) } (pretty(&letter[member])) } }
        }
    };
    Ok(Sheet::new("Dead letter", live))
}
