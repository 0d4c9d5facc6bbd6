//! Circuits: where each is, as a diagram, forcing it, and what has happened to it.

use super::super::api::{Fault, path};
use super::super::page::Sheet;
use super::super::parts::{
    Ask, Column, Told, ago, badge, count, field, filters, link, moment, next, rows, span, table,
};
use super::super::visit::{Visit, address};
use maud::{Markup, html};
use serde_json::Value;

/// Most circuits of a page.
const PAGE: usize = 100;
/// How many circuits are looked at at once for a name, and how often.
const MOST_LOOKED_AT: usize = 1_000;
const MOST_PAGES: usize = 10;

pub(super) async fn list(visit: &Visit) -> Result<Sheet, Fault> {
    let (found, further) = search(visit).await?;
    let now = visit.now_ms();
    let drawn = found.iter().map(|one| {
        vec![
            link(&path(&["console", "circuits", one.text("name")]), one.text("name")),
            state(one),
            html! { (count(one.number("failureCount"))) },
            html! { @if let Some(at) = one.maybe("lastFailureAt") { (ago(at, now)) } },
            html! { @if let Some(wait) = one.maybe("retryAfterMs") { "in " (span(wait)) } },
        ]
    });
    let columns = [
        Column::Text("Circuit"),
        Column::Text("State"),
        Column::Number("Failures counted"),
        Column::Text("Last failure"),
        Column::Text("Tried again"),
    ];
    let changes = changes(visit, 20).await?;
    let live = html! {
        (table(&columns, drawn.collect(), nothing(visit, further.is_some())))
        (next(visit, "cursor", further.as_deref()))
        section { h2 { "Changes" } (change_table(visit, &changes)) }
    };
    Ok(Sheet::new("Circuits", live).controls(filters(visit, field(visit, "name", "Name"))))
}

fn nothing(visit: &Visit, is_more: bool) -> &'static str {
    match visit.asked.get("name") {
        Some(_) if is_more => "None of the circuits up to here has this in its name.",
        Some(_) => "No circuit has this in its name.",
        None => "No circuit has counted anything yet.",
    }
}

/// A page of circuits with a text in their names, and where the next one begins. They are few: a filter looks at all of them, or
/// at very many.
async fn search(visit: &Visit) -> Result<(Vec<Value>, Option<String>), Fault> {
    let wanted = visit.asked.get("name").unwrap_or_default().to_lowercase();
    let (limit, pages) = if wanted.is_empty() { (PAGE, 1) } else { (MOST_LOOKED_AT, MOST_PAGES) };
    let limit = limit.to_string();
    let mut cursor = visit.asked.get("cursor").map(str::to_owned);
    let mut found: Vec<Value> = Vec::new();
    for _ in 0..pages {
        let asked = cursor.iter().map(|cursor| ("cursor", cursor.as_str()));
        let page = visit.get(&address("/v1/circuits", asked.chain([("limit", &*limit)]))).await?;
        for one in
            page.list("circuits").iter().filter(|one| one.text("name").to_lowercase().contains(&wanted))
        {
            if let Some(last) = found.last().filter(|_| found.len() == PAGE) {
                let last = last.text("name").to_owned();
                return Ok((found, Some(last)));
            }
            found.push(one.clone());
        }
        cursor = page.get("next").and_then(Value::as_str).map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    Ok((found, cursor))
}

fn state(circuit: &Value) -> Markup {
    html! {
        (badge(circuit.text("state")))
        @if circuit.get("forced").is_some_and(|forced| !forced.is_null()) { " " span.badge.plain { "forced" } }
    }
}

pub(super) async fn one(visit: &Visit, name: &str) -> Result<Sheet, Fault> {
    let circuit = visit.get(&path(&["v1", "circuits", name])).await?;
    let history = visit.get(&path(&["admin", "circuits", name, "history"])).await?;
    let now = visit.now_ms();
    let forced = circuit.get("forced").filter(|forced| !forced.is_null());
    let live = html! {
        (diagram(circuit.text("state")))
        div.actions { (actions(visit, name, forced.is_some())) }
        (rows(vec![
            ("State", Some(state(&circuit))),
            ("Forced", forced.map(|forced| html! { (forced.text("reason")) ", by " (forced.text("actor")) ", " (ago(forced.number("atMs"), now)) @if let Some(until) = forced.maybe("untilMs") { ", until " (moment(until)) } })),
            ("Failures counted", Some(html! { (count(circuit.number("failureCount"))) })),
            ("Successes of probes", Some(html! { (count(circuit.number("successCount"))) })),
            ("Last failure", circuit.maybe("lastFailureAt").map(|at| ago(at, now))),
            ("Opened", circuit.maybe("openedAt").map(|at| ago(at, now))),
            ("Tried again", circuit.maybe("retryAfterMs").map(|wait| html! { "in " (span(wait)) })),
        ]))
        section { h2 { "Settings" } (super::super::parts::pretty(&circuit["config"])) }
        section { h2 { "Changes" } (change_table(visit, history.list("changes"))) }
    };
    Ok(Sheet::new(format!("Circuit {name}"), live))
}

fn actions(visit: &Visit, name: &str, is_forced: bool) -> Markup {
    let reason = html! { label { "Why" input type="text" name="set.reason" required maxlength="200"; } };
    let call = |verb: &str| format!("POST {}", path(&["admin", "circuits", name, verb]));
    let force = |state: &'static str, verb, meaning| Ask {
        verb,
        meaning,
        call: call("force"),
        with: vec![("set.state", state.to_owned())],
        fields: reason.clone(),
        said: "The circuit is forced.",
        is_grave: true,
        ..Ask::default()
    };
    let opened = "Every call through this circuit is refused on all nodes, until somebody releases it.";
    let closed = "Every call goes through on all nodes, however many fail, until somebody releases it.";
    html! {
        (force("open", "Force open", opened).draw(visit))
        (force("closed", "Force closed", closed).draw(visit))
        @if is_forced {
            (Ask { verb: "Release", meaning: "Calls decide again.", call: call("release"), fields: reason.clone(), said: "The circuit is released.", ..Ask::default() }.draw(visit))
        }
        (Ask { verb: "Reset", meaning: "The circuit begins anew: closed, nothing counted, not forced.", call: call("reset"), fields: reason.clone(), said: "The circuit was reset.", ..Ask::default() }.draw(visit))
    }
}

/// The three states and the ways between them.
fn diagram(state: &str) -> Markup {
    let node = |name: &str, title: &str, x: u32| {
        let tone = if name == state { "at" } else { "away" };
        html! {
            g class=(tone) {
                rect x=(x) y="30" width="110" height="40" rx="20" {}
                text x=(x + 55) y="55" text-anchor="middle" { (title) }
            }
        }
    };
    html! {
        svg.circuit viewBox="0 0 560 110" role="img" aria-label={ "The circuit is " (state.replace('_', " ")) } {
            defs { marker #arrow viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto" { path d="M0 0 8 4 0 8Z" {} } }
            path.way d="M115 42H218" marker-end="url(#arrow)" {}
            path.way d="M335 42H438" marker-end="url(#arrow)" {}
            path.way d="M440 66C400 92 375 92 337 66" marker-end="url(#arrow)" {}
            path.way d="M500 26C420 -8 140 -8 62 26" marker-end="url(#arrow)" {}
            text.word x="166" y="36" text-anchor="middle" { "failures" }
            text.word x="386" y="36" text-anchor="middle" { "time" }
            text.word x="388" y="102" text-anchor="middle" { "probe fails" }
            text.word x="280" y="18" text-anchor="middle" { "probe succeeds" }
            (node("closed", "closed", 4)) (node("open", "open", 222)) (node("half_open", "half open", 442))
        }
    }
}

/// What has happened to circuits lately.
pub(super) async fn changes(visit: &Visit, most: usize) -> Result<Vec<Value>, Fault> {
    let found = visit.get(&format!("/admin/circuit-changes?limit={most}")).await?;
    Ok(found.list("changes").to_vec())
}

fn change_table(visit: &Visit, changes: &[Value]) -> Markup {
    let now = visit.now_ms();
    let drawn = changes.iter().map(|change| {
        let name = change.text("name");
        vec![
            ago(change.number("at"), now),
            link(&path(&["console", "circuits", name]), name),
            html! { (badge(change.text("from"))) " → " (badge(change.text("to"))) },
            html! { (change.text("reason")) @if let Some(actor) = change.get("actor").and_then(Value::as_str) { ", by " (actor) } },
        ]
    });
    let columns =
        [Column::Text("When"), Column::Text("Circuit"), Column::Text("Change"), Column::Text("Why")];
    table(&columns, drawn.collect(), "Nothing has changed.")
}
