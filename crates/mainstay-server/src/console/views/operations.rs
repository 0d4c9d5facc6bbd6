//! Operations on many dead letters: a preview of what one will touch, its progress, its end.

use super::super::api::{Fault, path};
use super::super::page::Sheet;
use super::super::parts::{
    Ask, Column, Told, ago, badge, code, count, link, meter, next, pretty, rows, short, table,
};
use super::super::visit::Visit;
use crate::access::Role;
use maud::{Markup, html};
use serde_json::Value;

pub(super) async fn list(visit: &Visit) -> Result<Sheet, Fault> {
    let page = visit
        .get(&visit.asked.only("/admin/dead-letter-operations", &["status", "cursor"], &[("limit", "50")]))
        .await?;
    let now = visit.now_ms();
    let drawn = page.list("operations").iter().map(|one| {
        vec![
            link(
                &path(&["console", "dead-letters", "operations", one.text("operationId")]),
                one.text("action"),
            ),
            badge(one.text("status")),
            html! { (count(one.number("done"))) " of " (count(one.number("total"))) },
            html! { (count(one.number("failed"))) },
            code(one.text("askedBy")),
            ago(one.number("createdAt"), now),
        ]
    });
    let columns = [
        Column::Text("Operation"),
        Column::Text("Status"),
        Column::Text("Done"),
        Column::Number("Failed"),
        Column::Text("Asked by"),
        Column::Text("When"),
    ];
    let live = html! {
        (table(&columns, drawn.collect(), "Nothing was done about dead letters yet."))
        (next(visit, "cursor", page.get("next").and_then(Value::as_str)))
    };
    Ok(Sheet::new("Operations on dead letters", live))
}

pub(super) async fn one(visit: &Visit, id: &str) -> Result<Sheet, Fault> {
    let operation = visit.get(&path(&["admin", "dead-letter-operations", id])).await?;
    let now = visit.now_ms();
    let (action, total) = (operation.text("action"), operation.number("total"));
    let touched = operation.number("done") + operation.number("skipped") + operation.number("failed");
    // More than was counted, if the preview is partial.
    let percent = if total == 0 { 100.0 } else { (touched as f64 * 100.0 / total as f64).min(100.0) };
    let failures = operation.list("failures").iter().map(|failure| {
        vec![
            link(&path(&["console", "dead-letters", failure.text("letterId")]), failure.text("letterId")),
            code(failure.text("code")),
            short(failure.text("error"), 160),
        ]
    });
    let live = html! {
        (said(&operation))
        div.actions { (actions(visit, &operation, id)) }
        @if operation.text("status") != "previewed" { p { (meter(percent, "How much is done")) " " (format!("{percent:.0} %")) } }
        (rows(vec![
            ("Status", Some(badge(operation.text("status")))),
            ("Action", Some(html! { (action) })),
            ("Letters", Some(html! { (count(total)) @if operation.is("isPartial") { " or more" } })),
            ("Done", Some(html! { (count(operation.number("done"))) })),
            ("Skipped", Some(html! { (count(operation.number("skipped"))) ", dealt with by others meanwhile" })),
            ("Failed", Some(html! { (count(operation.number("failed"))) })),
            ("Asked by", Some(code(operation.text("askedBy")))),
            ("Run by", operation.get("runBy").and_then(Value::as_str).map(code)),
            ("Cancelled by", operation.get("cancelledBy").and_then(Value::as_str).map(code)),
            ("Made", Some(ago(operation.number("createdAt"), now))),
            ("Ended", operation.maybe("endedAt").map(|at| ago(at, now))),
        ]))
        section { h2 { "What it touches" } (touches(&operation)) h3 { "Filter" } (pretty(&operation["filter"])) }
        @if !operation.list("failures").is_empty() {
            section { h2 { "Failures" } (table(&[Column::Text("Letter"), Column::Text("Code"), Column::Text("Why")], failures.collect(), "")) }
        }
    };
    Ok(Sheet::new(format!("{} dead letters", capital(action)), live))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn said(operation: &Value) -> Markup {
    let is_partial = operation.is("isPartial");
    let more = if is_partial { " or more" } else { "" };
    let total = format!("{}{more}", count(operation.number("total")));
    let will = match operation.text("action") {
        "retry" => {
            format!("{total} letters will be tried again, each as a new attempt that is linked to it.")
        }
        "ignore" => format!("{total} letters will be left for good, and kept until they are purged."),
        _ => format!("{total} letters will be removed for good, with their history."),
    };
    html! {
        @if operation.text("status") == "previewed" {
            @if operation.number("total") == 0 && !is_partial { p.notice.fair { "No letter is like that, so there is nothing to do." } }
            @else { p.notice.fair { (will) " Nothing has been done yet." } }
            @if is_partial { p.notice.fair { "There are too many letters to look at all of them for a preview." } }
        }
        @if let Some(error) = operation.get("error").and_then(Value::as_str) { p.notice.bad { (error) } }
    }
}

fn actions(visit: &Visit, operation: &Value, id: &str) -> Markup {
    let call = |verb: &str| format!("POST {}", path(&["admin", "dead-letter-operations", id, verb]));
    let role = if operation.text("action") == "purge" { Role::Admin } else { Role::Operator };
    let (total, is_partial) = (operation.number("total"), operation.is("isPartial"));
    let more = if is_partial { " or more" } else { "" };
    let verb = format!("{} {}{more} letters", capital(operation.text("action")), count(total));
    html! {
        @match operation.text("status") {
            "previewed" => {
                @if visit.may(role) && (total > 0 || is_partial) {
                    (super::super::parts::post(visit, "/console/act", html! {
                        input type="hidden" name="call" value=(call("run"));
                        input type="hidden" name="back" value=(visit.here());
                        input type="hidden" name="said" value="It has begun.";
                        button.grave[operation.text("action") != "retry"] type="submit" { (verb) }
                    }))
                }
                a href="/console/dead-letters" { "Leave it" }
            }
            "running" => (Ask { role, verb: "Stop", meaning: "What it has done stays; the rest is left as it is.", call: call("cancel"), said: "It stops.", ..Ask::default() }.draw(visit)),
            _ => "",
        }
    }
}

fn touches(operation: &Value) -> Markup {
    let drawn = operation.list("preview").iter().map(|line| {
        vec![
            html! { (line.text("kind")) },
            code(line.text("name")),
            badge(line.text("status")),
            html! { (count(line.number("count"))) },
        ]
    });
    let columns =
        [Column::Text("Kind"), Column::Text("Of"), Column::Text("Status"), Column::Number("Letters")];
    table(&columns, drawn.collect(), "No letter.")
}
