//! What has changed lately: circuits, read models that do not follow the log, pools that rest, rebuilds that ended.
//!
//! Circuits and rebuilds keep what they have been through. Of a read model and a pool it is known how it is and since when, so
//! that one that is well again is not told of.

use super::super::api::{Fault, path};
use super::super::parts::{Column, Told, ago, badge, count, link, short, table};
use super::super::visit::Visit;
use maud::{Markup, html};
use serde_json::Value;

/// Most changes that are shown.
const MOST: usize = 10;
/// Most of them that are of circuits: one that opens and closes all the time must not leave the others without room.
const MOST_OF_CIRCUITS: usize = 5;

/// One thing that changed.
struct Change {
    at_ms: i64,
    kind: &'static str,
    what: Markup,
    to: Markup,
    why: Markup,
}

/// The newest changes of all kinds, the newest first; `pools` as the API tells them.
pub(super) async fn lately(visit: &Visit, pools: &Value) -> Result<Markup, Fault> {
    let moved = super::circuits::changes(visit, MOST_OF_CIRCUITS).await?;
    let models = visit.get("/admin/projections").await?;
    let ended = visit.get(&format!("/admin/replays?ended=true&limit={MOST}")).await?;
    let mut all: Vec<Change> = moved.iter().map(circuit).collect();
    let held = models.list("projections").iter().filter(|model| model.text("status") != "active");
    all.extend(held.map(projection));
    all.extend(pools.list("pools").iter().filter(|pool| pool.is("isPaused")).map(pool));
    all.extend(ended.list("replays").iter().map(rebuild));
    all.sort_by_key(|change| std::cmp::Reverse(change.at_ms));
    let now = visit.now_ms();
    let rows = all.into_iter().take(MOST).map(|change| {
        let what = html! { span.hint { (change.kind) } " " (change.what) };
        vec![ago(change.at_ms, now), what, change.to, change.why]
    });
    let columns = [Column::Text("When"), Column::Text("What"), Column::Text("Change"), Column::Text("Why")];
    Ok(table(&columns, rows.collect(), "Nothing has changed."))
}

fn circuit(change: &Value) -> Change {
    let name = change.text("name");
    Change {
        at_ms: change.number("at"),
        kind: "Circuit",
        what: link(&path(&["console", "circuits", name]), name),
        to: html! { (badge(change.text("from"))) " → " (badge(change.text("to"))) },
        why: html! { (change.text("reason")) @if let Some(actor) = change.get("actor").and_then(Value::as_str) { ", by " (actor) } },
    }
}

fn projection(model: &Value) -> Change {
    let name = model.text("projection");
    Change {
        at_ms: model.number("updatedAt"),
        kind: "Projection",
        what: link(&path(&["console", "projections", name]), name),
        to: badge(model.text("status")),
        why: short(model.text("errorMessage"), 100),
    }
}

fn pool(pool: &Value) -> Change {
    let name = pool.text("name");
    Change {
        at_ms: pool.number("changedAt"),
        kind: "Pool",
        what: link(&path(&["console", "work", "pools", name]), name),
        to: badge("paused"),
        why: html! {},
    }
}

fn rebuild(replay: &Value) -> Change {
    let name = replay.text("projectionName");
    let done = html! { (count(replay.number("eventsProcessed"))) " of " (count(replay.number("totalEvents"))) " events" };
    Change {
        at_ms: replay.number("completedAt"),
        kind: "Rebuild",
        what: link(&path(&["console", "projections", name]), name),
        to: badge(replay.text("status")),
        why: replay.get("error").and_then(Value::as_str).map_or(done, |error| short(error, 100)),
    }
}
