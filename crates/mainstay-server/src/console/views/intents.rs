//! Intents: long operations that began, and those that nobody has ended.

use super::super::api::{Fault, path, tenant_of, with_tenant};
use super::super::page::Sheet;
use super::super::parts::{
    Ask, Column, Told, ago, badge, choice, code, field, filters, link, moment, next, pretty, rows, span,
    table,
};
use super::super::visit::Visit;
use maud::{Markup, html};
use serde_json::Value;

pub(super) async fn list(visit: &Visit) -> Result<Sheet, Fault> {
    let orphans = visit.get("/v1/intents/orphans?limit=20").await?;
    let asked = visit.asked.only(
        "/admin/intents",
        &["status", "operationType", "correlationId", "cursor"],
        &[("limit", "50")],
    );
    let page = visit.get(&asked).await?;
    let live = html! {
        section { h2 { "Orphans: past their time, and nobody has ended them" } (drawn(visit, orphans.list("intents"), "There are none.")) }
        section { h2 { "All" } (drawn(visit, page.list("intents"), "There is no such intent."))
            (next(visit, "cursor", page.get("next").and_then(Value::as_str)))
        }
    };
    let fields = html! {
        (choice(visit, "status", "Status", &["pending", "completed", "failed", "abandoned"]))
        (field(visit, "operationType", "Operation"))
        (field(visit, "correlationId", "Correlation"))
    };
    Ok(Sheet::new("Intents", live).controls(filters(visit, fields)))
}

fn drawn(visit: &Visit, intents: &[Value], nothing: &str) -> Markup {
    let now = visit.now_ms();
    let rows = intents.iter().map(|one| {
        vec![
            link(
                &with_tenant(path(&["console", "intents", one.text("intentKey")]), tenant_of(one)),
                one.text("intentKey"),
            ),
            html! { (one.text("operationType")) },
            badge(one.text("status")),
            html! { (one["onTimeout"].text("policy")) },
            ago(one.number("startedAt"), now),
            ago(one.number("timeoutAt"), now),
            abandon(visit, one),
        ]
    });
    let columns = [
        Column::Text("Intent"),
        Column::Text("Operation"),
        Column::Text("Status"),
        Column::Text("When late"),
        Column::Text("Began"),
        Column::Text("Time is over"),
        Column::Actions,
    ];
    table(&columns, rows.collect(), nothing)
}

fn abandon(visit: &Visit, intent: &Value) -> Markup {
    if intent.text("status") != "pending" {
        return html! {};
    }
    let ask = Ask {
        verb: "Abandon",
        meaning: "The operation is given up, and an event says so; whoever completes it later is refused.",
        call: format!(
            "POST {}",
            with_tenant(path(&["admin", "intents", intent.text("intentKey"), "abandon"]), tenant_of(intent))
        ),
        with: vec![("document", "1".to_owned())],
        fields: html! { label { "Why" input type="text" name="set.reason" maxlength="200"; } },
        said: "The intent is abandoned.",
        is_grave: true,
        ..Ask::default()
    };
    ask.draw(visit)
}

pub(super) async fn one(visit: &Visit, key: &str) -> Result<Sheet, Fault> {
    let intent = visit.get(&visit.asked.only(&path(&["admin", "intents", key]), &["tenant"], &[])).await?;
    let text = |name: &str| intent.get(name).and_then(Value::as_str).map(code);
    let event = |name: &str| {
        let id = intent.get(name).and_then(Value::as_str);
        id.map(|id| link(&with_tenant(path(&["console", "events", id]), tenant_of(&intent)), id))
    };
    let (kind, id) = (intent.text("streamType"), intent.text("streamId"));
    let live = html! {
        div.actions { (abandon(visit, &intent)) }
        (rows(vec![
            ("Status", Some(badge(intent.text("status")))),
            ("Operation", text("operationType")),
            ("Stream", Some(link(&path(&["console", "streams", kind, id]), &format!("{kind}/{id}")))),
            ("Context", text("boundedContext")),
            ("Tenant", text("tenantId")),
            ("Correlation", Some(link(&path(&["console", "traces", intent.text("correlationId")]), intent.text("correlationId")))),
            ("Began", Some(moment(intent.number("startedAt")))),
            ("Time", Some(html! { (span(intent.number("timeoutMs"))) ", until " (moment(intent.number("timeoutAt"))) })),
            ("When late", Some(html! { (intent["onTimeout"].text("policy")) ", was late " (intent.number("timeouts")) " times" })),
            ("Ended", intent.maybe("endedAt").map(moment)),
            ("Event of its beginning", event("intentEventId")),
            ("Event of its end", event("completionEventId")),
            ("Error", text("error")),
        ]))
        @for (title, member) in [("Result", "result"), ("Metadata", "metadata")] {
            @if intent.get(member).is_some_and(|value| !value.is_null()) { section { h2 { (title) } (pretty(&intent[member])) } }
        }
    };
    Ok(Sheet::new(format!("Intent {key}"), live))
}
