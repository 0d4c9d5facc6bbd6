//! Publications: what was published to which context, and what came of it.

use super::super::api::{Fault, path, tenant_of, with_tenant};
use super::super::page::Sheet;
use super::super::parts::{Ask, Column, Told, ago, badge, choice, field, filters, link, next, short, table};
use super::super::visit::Visit;
use maud::{Markup, html};
use serde_json::Value;

pub(super) async fn list(visit: &Visit) -> Result<Sheet, Fault> {
    let page = visit
        .get(&visit.asked.only("/admin/publications", &["target", "status", "cursor"], &[("limit", "50")]))
        .await?;
    let live = html! {
        (drawn(visit, page.list("publications")))
        (next(visit, "cursor", page.get("next").and_then(Value::as_str)))
    };
    let fields = html! {
        (field(visit, "target", "Target"))
        (choice(visit, "status", "Status", &["pending", "delivered", "failed", "dead_letter", "retried"]))
    };
    Ok(Sheet::new("Publications", live).controls(filters(visit, fields)))
}

pub(super) async fn of_event(visit: &Visit, event: &str) -> Result<Sheet, Fault> {
    let asked = visit.asked.only(&path(&["v1", "publications", event]), &["tenant"], &[]);
    let found = visit.get(&asked).await?;
    let tenant = found.list("publications").first().and_then(tenant_of);
    let live = html! {
        p { (link(&with_tenant(path(&["console", "events", event]), tenant), "The event")) }
        (drawn(visit, found.list("publications")))
    };
    Ok(Sheet::new("Publications of an event", live))
}

pub(super) fn drawn(visit: &Visit, publications: &[Value]) -> Markup {
    let now = visit.now_ms();
    let rows = publications.iter().map(|one| {
        let (event, target) = (one.text("eventId"), one.text("targetContext"));
        let letter = one.text("letter");
        let call = |verb: &str| {
            let letter = path(&["admin", "publications", "letters", target, event, verb]);
            format!("POST {}", with_tenant(letter, tenant_of(one)))
        };
        vec![
            link(&with_tenant(path(&["console", "events", event]), tenant_of(one)), one.text("eventType")),
            html! { (one.text("sourceContext")) " → " (target) },
            html! { (badge(one.text("status"))) @if letter == "ignored" { " " (badge(letter)) } },
            html! { (one.number("attemptCount")) },
            html! { @if let Some(error) = one.get("error").and_then(Value::as_str) { (short(error, 100)) } },
            html! { @if let Some(id) = one.get("correlationId").and_then(Value::as_str) { (link(&path(&["console", "traces", id]), id)) } },
            html! { @if let Some(at) = one.maybe("deliveredAt") { "delivered " (ago(at, now)) } @else { "since " (ago(one.number("createdAt"), now)) } },
            html! {
                @if matches!(letter, "pending" | "ignored") && visit.principal.tenant.is_none() {
                    (Ask { verb: "Retry", meaning: "It is delivered again as a new attempt; the receiver knows it by its key if it came before.", call: call("retry"), said: "It is delivered again.", ..Ask::default() }.draw(visit))
                }
                @if letter == "pending" && visit.principal.tenant.is_none() {
                    (Ask { verb: "Ignore", meaning: "It is left for good.", call: call("ignore"), said: "It is left for good.", is_grave: true, ..Ask::default() }.draw(visit))
                }
            },
        ]
    });
    let columns = [
        Column::Text("Event"),
        Column::Text("Way"),
        Column::Text("Status"),
        Column::Number("Attempts"),
        Column::Text("Error"),
        Column::Text("Correlation"),
        Column::Text("When"),
        Column::Actions,
    ];
    table(&columns, rows.collect(), "Nothing was published.")
}
