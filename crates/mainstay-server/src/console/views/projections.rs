//! Projections: lag, status, rebuilds with their progress, pauses, and events that were put aside.

use super::super::api::{Fault, path, tenant_of, with_tenant};
use super::super::page::Sheet;
use super::super::parts::{
    Ask, Column, Told, ago, badge, count, field, filters, link, meter, moment, next, rows, short, span, table,
};
use super::super::visit::Visit;
use crate::access::Role;
use maud::{Markup, html};
use serde_json::Value;

pub(super) async fn list(visit: &Visit) -> Result<Sheet, Fault> {
    let models = visit.get("/admin/projections").await?;
    let replays = visit.get("/admin/replays").await?;
    let now = visit.now_ms();
    let drawn = models.list("projections").iter().map(|one| {
        let name = one.text("projection");
        let replay = replays.list("replays").iter().find(|replay| replay.text("projectionName") == name);
        vec![
            html! { (link(&path(&["console", "projections", name]), name)) @if one.is("isOutdated") { " " span.badge.fair { "outdated" } } },
            html! { (badge(one.text("status"))) },
            html! { (count(one.number("lag"))) },
            html! { (count(one.number("lastGlobalPosition"))) },
            html! { (count(one.number("eventsFailed"))) },
            html! { @if let Some(replay) = replay { (progress(replay)) } @else { (one.text("category")) } },
            ago(one.number("updatedAt"), now),
        ]
    });
    let columns = [
        Column::Text("Projection"),
        Column::Text("Status"),
        Column::Number("Behind"),
        Column::Number("Position"),
        Column::Number("Failed"),
        Column::Text("Kind, or rebuild"),
        Column::Text("Status since"),
    ];
    let live = html! {
        (table(&columns, drawn.collect(), "This server keeps no read models."))
        div.actions {
            (Ask { verb: "Rebuild all", meaning: "Every read model that can be is filled anew from the log, in the order of the registry. Readers see the old ones until the new ones are complete.", call: "POST /admin/replays".to_owned(), with: vec![("document", "1".to_owned())], said: "The rebuilds have begun.", ..Ask::default() }.draw(visit))
        }
        section { h2 #poison { "Events that were put aside" } (poison(visit, None).await?) }
    };
    Ok(Sheet::new("Projections", live).controls(filters(visit, field(visit, "projection", "Put aside by"))))
}

fn progress(replay: &Value) -> Markup {
    let percent = replay["percentComplete"].as_f64().unwrap_or(0.0);
    html! {
        (meter(percent, "How much is done")) " " (format!("{percent:.0} %"))
        @if let Some(left) = replay.maybe("estimatedRemainingMs") { ", " (span(left)) " left" }
    }
}

pub(super) async fn one(visit: &Visit, name: &str) -> Result<Sheet, Fault> {
    let model = visit.get(&path(&["admin", "projections", name])).await?;
    let replays = visit.get("/admin/replays").await?;
    let replay = replays.list("replays").iter().find(|replay| replay.text("projectionName") == name);
    let checkpoints = visit.get("/admin/checkpoints").await?;
    let lanes = checkpoints.list("checkpoints").iter().filter(|lane| lane.text("projection") == name);
    let now = visit.now_ms();
    let lanes = lanes.map(|lane| {
        vec![
            html! { (lane.number("partition")) },
            html! { (count(lane.number("lastGlobalPosition"))) },
            ago(lane.number("updatedAt"), now),
        ]
    });
    let live = html! {
        p { (model.text("description")) }
        @if let Some(error) = model.get("errorMessage").and_then(Value::as_str) { p.notice.bad { (error) } }
        @if let Some(replay) = replay { (rebuild(visit, replay)) }
        div.actions { (actions(visit, &model, replay.is_some())) }
        (rows(vec![
            ("Status", Some(badge(model.text("status")))),
            ("Behind", Some(html! { (count(model.number("lag"))) " events" })),
            ("Position", Some(html! { (count(model.number("lastGlobalPosition"))) })),
            ("Taken", Some(html! { (count(model.number("eventsProcessed"))) " events" })),
            ("Failed", Some(html! { (count(model.number("eventsFailed"))) " events" })),
            ("Generation", Some(html! { (model.number("generation")) @if model.is("isOutdated") { ", and its code is newer: rebuild it" } })),
            ("Status since", Some(ago(model.number("updatedAt"), now))),
        ]))
        section { h2 { "Lanes" } (table(&[Column::Number("Lane"), Column::Number("Position"), Column::Text("Moved")], lanes.collect(), "It has no checkpoint yet.")) }
        section { h2 { "Events that were put aside" } (poison(visit, Some(name)).await?) }
        p { a href={ "/console/dead-letters?kind=projection&name=" (name) } { "Dead letters of this projection" } }
    };
    Ok(Sheet::new(format!("Projection {name}"), live))
}

fn rebuild(visit: &Visit, replay: &Value) -> Markup {
    let id = replay.text("replayId");
    let call = |verb: &str| format!("POST {}", path(&["admin", "replays", id, verb]));
    html! {
        section.rebuild {
            h2 { "Rebuild " (badge(replay.text("status"))) }
            p { (progress(replay)) }
            p.hint { (count(replay.number("eventsProcessed"))) " of " (count(replay.number("totalEvents"))) " events, since " (moment(replay.number("startedAt"))) }
            @if let Some(error) = replay.get("error").and_then(Value::as_str) { p.notice.bad { (error) } }
            div.actions {
                @if replay.text("status") == "running" {
                    (Ask { verb: "Pause rebuild", meaning: "It stops behind the chunk that is under way, and can go on from there.", call: call("pause"), said: "The rebuild rests.", ..Ask::default() }.draw(visit))
                } @else {
                    (Ask { verb: "Resume rebuild", meaning: "It goes on from its last chunk.", call: call("resume"), said: "The rebuild goes on.", ..Ask::default() }.draw(visit))
                }
                (Ask { verb: "Cancel rebuild", meaning: "What was built so far is given up; readers keep the read model they have.", call: call("cancel"), said: "The rebuild was cancelled.", is_grave: true, ..Ask::default() }.draw(visit))
            }
        }
    }
}

fn actions(visit: &Visit, model: &Value, is_rebuilding: bool) -> Markup {
    let name = model.text("projection");
    let call = |verb: &str| format!("POST {}", path(&["admin", "projections", name, verb]));
    html! {
        @if !is_rebuilding {
            (Ask { verb: "Rebuild", meaning: "The read model is filled anew from the whole log. Readers see the old one until the new one is complete.", call: call("replays"), with: vec![("document", "1".to_owned())], said: "The rebuild has begun.", ..Ask::default() }.draw(visit))
        }
        @match model.text("status") {
            "paused" => (Ask { verb: "Resume", meaning: "It takes events again, from where it stopped.", call: call("resume"), said: "It goes on.", ..Ask::default() }.draw(visit)),
            "error" => (Ask { verb: "Recover", meaning: "It goes on from where it stopped. Mend what its message names first.", call: call("recover"), said: "It tries again.", ..Ask::default() }.draw(visit)),
            "active" => (Ask { verb: "Pause", meaning: "It takes no events until somebody resumes it; its lag grows meanwhile.", call: call("pause"), said: "It rests.", ..Ask::default() }.draw(visit)),
            _ => "",
        }
    }
}

async fn poison(visit: &Visit, projection: Option<&str>) -> Result<Markup, Fault> {
    let mut further = vec![("limit", "50")];
    further.extend(projection.map(|name| ("projection", name)));
    let names: &[&str] = if projection.is_some() { &["cursor"] } else { &["cursor", "projection"] };
    let page = visit.get(&visit.asked.only("/admin/poison-events", names, &further)).await?;
    let now = visit.now_ms();
    let drawn = page.list("poisonEvents").iter().map(|one| {
        let (projection, event) = (one.text("projectionName"), one.text("eventId"));
        let call = |verb: &str| {
            let event = path(&["admin", "poison-events", projection, event, verb]);
            format!("POST {}", with_tenant(event, tenant_of(one)))
        };
        vec![
            link(&with_tenant(path(&["console", "events", event]), tenant_of(one)), one.text("eventType")),
            link(&path(&["console", "projections", projection]), projection),
            badge(one.text("status")),
            html! { (one.number("attempts")) },
            short(one.text("error"), 120),
            ago(one.number("failedAt"), now),
            html! {
                @if one.text("status") == "quarantined" {
                    (Ask { role: Role::Operator, verb: "Try again", meaning: "The event goes through the projection once more, in its place.", call: call("unquarantine"), said: "It is tried again.", ..Ask::default() }.draw(visit))
                    (Ask { role: Role::Operator, verb: "Ignore", meaning: "The projection goes on without this event for good.", call: call("ignore"), said: "It is left for good.", is_grave: true, ..Ask::default() }.draw(visit))
                }
            },
        ]
    });
    let columns = [
        Column::Text("Event"),
        Column::Text("Projection"),
        Column::Text("Status"),
        Column::Number("Attempts"),
        Column::Text("Error"),
        Column::Text("Failed"),
        Column::Actions,
    ];
    Ok(html! {
        (table(&columns, drawn.collect(), "No event was put aside."))
        (next(visit, "cursor", page.get("next").and_then(Value::as_str)))
    })
}
