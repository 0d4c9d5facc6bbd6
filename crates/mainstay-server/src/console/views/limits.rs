//! Limits: what each allows, what a key has left, and which keys were denied most.

use super::super::api::{Fault, path};
use super::super::page::Sheet;
use super::super::parts::{
    Ask, Column, Told, code, count, filters, link, meter, next, pretty, rows, span, table,
};
use super::super::visit::Visit;
use maud::{Markup, html};
use serde_json::Value;

pub(super) async fn list(visit: &Visit) -> Result<Sheet, Fault> {
    let page = visit.get(&visit.asked.only("/v1/limits", &["cursor"], &[("limit", "50")])).await?;
    let mut drawn = Vec::new();
    for limit in page.list("limits") {
        let name = limit.text("name");
        let denied = visit.get(&format!("{}?limit=3", path(&["admin", "limits", name, "denied"]))).await?;
        let keys = denied.list("denied").iter().map(|one| one.text("key").to_owned());
        let keys: Vec<String> = keys.collect();
        drawn.push(vec![
            link(&path(&["console", "limits", name]), name),
            html! { (limit.text("kind")) },
            html! { (rate(limit)) },
            html! { @if let Some(capacity) = limit.maybe("capacity") { (count(capacity)) } },
            html! { @for key in &keys { (code(key)) " " } },
        ]);
    }
    let columns = [
        Column::Text("Limit"),
        Column::Text("Kind"),
        Column::Text("Allows"),
        Column::Number("Capacity"),
        Column::Text("Denied most, on this node"),
    ];
    let live = html! {
        (table(&columns, drawn, "There are no limits."))
        (next(visit, "cursor", page.get("next").and_then(Value::as_str)))
    };
    Ok(Sheet::new("Limits", live))
}

fn rate(limit: &Value) -> String {
    let period = match &limit["period"] {
        Value::String(text) => text.clone(),
        number => span(number.as_i64().unwrap_or(0)),
    };
    let rate = limit["rate"].as_f64().unwrap_or(0.0);
    let rate = if rate.fract() == 0.0 { count(rate as i64) } else { format!("{rate}") };
    format!("{rate} in {period}")
}

pub(super) async fn one(visit: &Visit, name: &str) -> Result<Sheet, Fault> {
    let limit = visit.get(&path(&["v1", "limits", name])).await?;
    let denied = visit.get(&format!("{}?limit=20", path(&["admin", "limits", name, "denied"]))).await?;
    let budget = match visit.asked.get("key") {
        Some(key) => Some((
            key,
            visit.get(&visit.asked.only(&path(&["v1", "limits", name, "value"]), &["key"], &[])).await?,
        )),
        None => None,
    };
    let drawn = denied.list("denied").iter().map(|one| {
        let key = one.text("key");
        let (least, most) = (one.number("atLeast"), one.number("atMost"));
        vec![
            html! { a href=(visit.asked.with(&path(&["console", "limits", name]), &[("key", key)])) { (code(key)) } },
            html! { (count(least)) @if most != least { "–" (count(most)) } },
            reset(visit, name, key),
        ]
    });
    let live = html! {
        (rows(vec![("Kind", Some(html! { (limit.text("kind")) })), ("Allows", Some(html! { (rate(&limit)) })), ("Capacity", limit.maybe("capacity").map(|capacity| html! { (count(capacity)) })), ("Shards", limit.maybe("shards").map(|shards| html! { (shards) }))]))
        @if let Some((key, budget)) = &budget { section { h2 { "Key " (code(key)) } (used(&limit, budget)) (reset(visit, name, key)) (pretty(budget)) } }
        section { h2 { "Denied most, as far as this node was asked" } (table(&[Column::Text("Key"), Column::Number("Times"), Column::Actions], drawn.collect(), "Nobody was denied.")) }
    };
    let fields = html! { label { "What has this key left?" input type="text" name="key" value=[visit.asked.get("key")] required; } };
    Ok(Sheet::new(format!("Limit {name}"), live).controls(filters(visit, fields)))
}

/// How much of a budget is used.
fn used(limit: &Value, budget: &Value) -> Markup {
    let most = limit["capacity"].as_f64().or_else(|| limit["rate"].as_f64()).unwrap_or(0.0);
    let left = ["value", "remaining", "tokens"].iter().find_map(|name| budget[*name].as_f64());
    html! {
        @if let Some(left) = left {
            @let percent = if most > 0.0 { (most - left) / most * 100.0 } else { 0.0 };
            p { (meter(percent, "How much is used")) " " (format!("{percent:.0} % used")) }
        }
    }
}

fn reset(visit: &Visit, name: &str, key: &str) -> Markup {
    let ask = Ask {
        verb: "Reset",
        meaning: "The key begins anew, as if nobody had used it.",
        call: format!("POST {}", path(&["v1", "limits", name, "reset"])),
        with: vec![("set.key", key.to_owned())],
        said: "The key begins anew.",
        ..Ask::default()
    };
    ask.draw(visit)
}
