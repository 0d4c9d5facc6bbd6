//! Work: pools with their depth and rate, items by state, key and function, queues of keys, one item.

use super::super::api::{Fault, path};
use super::super::page::Sheet;
use super::super::parts::{
    Ask, Column, Told, ago, attempts, badge, choice, code, count, field, filters, link, moment, next, pretty,
    rows, short, span, table,
};
use super::super::visit::{Visit, address};
use crate::routes::LOOKED_AT;
use maud::{Markup, html};
use serde_json::Value;

/// Most items of a page.
const PAGE: usize = 50;
/// How many pages of the API one page is made of, where each has few items.
const MOST_PAGES: usize = 4;
const STATES: [&str; 7] = ["ready", "delayed", "behind", "running", "success", "failed", "canceled"];
/// Most keys of a page.
const KEYS: &str = "50";
/// What says where a page of keys begins: items have a cursor of their own beside it.
const KEYS_AFTER: &str = "keysAfter";

pub(super) async fn all(visit: &Visit) -> Result<Sheet, Fault> {
    let pools = visit.get("/admin/pools?limit=1000").await?;
    let items = search(visit, &["pool", "state", "key", "function", "args", "correlationId"], &[]).await?;
    let live = html! {
        section { h2 { "Pools" } (pool_table(pools.list("pools"))) }
        section { h2 { "Items" } (items.draw(visit)) }
    };
    Ok(Sheet::new("Work", live).controls(wanted(visit, true)))
}

fn wanted(visit: &Visit, with_pool: bool) -> Markup {
    filters(
        visit,
        html! {
            @if with_pool { (field(visit, "pool", "Pool")) }
            (choice(visit, "state", "State", &STATES))
            (field(visit, "key", "Key"))
            (field(visit, "function", "Function"))
            (field(visit, "args", "Arguments contain"))
            (field(visit, "correlationId", "Correlation"))
        },
    )
}

fn pool_table(pools: &[Value]) -> Markup {
    let drawn = pools.iter().map(|pool| {
        let rate = |name: &str| format!("{:.1}", pool[name].as_f64().unwrap_or(0.0));
        vec![
            html! { (link(&path(&["console", "work", "pools", pool.text("name")]), pool.text("name"))) @if pool.is("isPaused") { " " (badge("paused")) } },
            html! { (count(pool.number("pending"))) },
            html! { (count(pool.number("running"))) @if let Some(most) = pool["settings"].maybe("maxParallelism") { " of " (most) } },
            html! { @if let Some(age) = pool.maybe("oldestAgeMs") { (span(age)) } },
            html! { (rate("startedPerSecond")) },
            html! { (rate("endedPerSecond")) },
        ]
    });
    let columns = [
        Column::Text("Pool"),
        Column::Number("Waiting"),
        Column::Number("Running"),
        Column::Text("Oldest waits for"),
        Column::Number("Started /s"),
        Column::Number("Ended /s"),
    ];
    table(&columns, drawn.collect(), "There are no pools.")
}

/// Items that are like what was asked.
struct Found {
    items: Vec<Value>,
    next: Option<String>,
    /// How many were looked at, at least, when there may be more.
    looked: usize,
}

/// Looks for a page of items. What is rare may lie far back: some pages of the API are looked at, each of which costs the same.
async fn search(visit: &Visit, names: &[&str], further: &[(&str, &str)]) -> Result<Found, Fault> {
    let mut found =
        Found { items: Vec::new(), next: visit.asked.get("cursor").map(str::to_owned), looked: 0 };
    for _ in 0..MOST_PAGES {
        let left = (PAGE - found.items.len()).to_string();
        let mut asked = vec![("limit", left.as_str())];
        asked.extend(found.next.as_deref().map(|next| ("cursor", next)));
        asked.extend_from_slice(further);
        let page = visit.get(&visit.asked.only("/admin/work", names, &asked)).await?;
        found.items.extend_from_slice(page.list("work"));
        found.next = page.get("next").and_then(Value::as_str).map(str::to_owned);
        found.looked += LOOKED_AT;
        if found.next.is_none() || found.items.len() >= PAGE {
            break;
        }
    }
    Ok(found)
}

impl Found {
    fn draw(&self, visit: &Visit) -> Markup {
        let further = self.next.as_deref().filter(|_| self.items.len() < PAGE);
        let is_first = visit.asked.get("cursor").is_none();
        let nothing = if further.is_some() { "None of those is like that." } else { "No item is like that." };
        html! {
            @if let Some(further) = further {
                p.hint {
                    "The " (if is_first { "newest" } else { "next" }) " " (count(self.looked as i64)) " items were looked at; what is like that may lie further back. "
                    a rel="next" href=(visit.asked.with(visit.here().split('?').next().unwrap_or_default(), &[("cursor", further)])) { "Go on" }
                }
            }
            (drawn(visit, &self.items, nothing))
            (next(visit, "cursor", self.next.as_deref()))
        }
    }
}

fn drawn(visit: &Visit, items: &[Value], nothing: &str) -> Markup {
    let now = visit.now_ms();
    let rows = items.iter().map(|item| {
        let args = if item["args"].is_null() { String::new() } else { item["args"].to_string() };
        vec![
            link(&path(&["console", "work", item.text("workId")]), item.text("function")),
            link(&path(&["console", "work", "pools", item.text("pool")]), item.text("pool")),
            badge(item.text("native")),
            html! { @if let Some(key) = item.get("key").and_then(Value::as_str) { (code(key)) } },
            html! { code { (short(&args, 60)) } },
            html! { (item.number("attempts")) },
            html! { @if let Some(at) = item.maybe("dueAt") { (ago(at, now)) } @else { (ago(item.number("enqueuedAt"), now)) } },
            actions(visit, item),
        ]
    });
    let columns = [
        Column::Text("Function"),
        Column::Text("Pool"),
        Column::Text("State"),
        Column::Text("Key"),
        Column::Text("Arguments"),
        Column::Number("Attempts"),
        Column::Text("Due, or since"),
        Column::Actions,
    ];
    table(&columns, rows.collect(), nothing)
}

fn actions(visit: &Visit, item: &Value) -> Markup {
    let call = |verb: &str| format!("POST {}", path(&["admin", "work", item.text("workId"), verb]));
    let native = item.text("native");
    html! {
        @if native == "delayed" {
            (Ask { verb: "Run now", meaning: "It is due at once, instead of when its time or its backoff is over.", call: call("run-now"), said: "It is due now.", ..Ask::default() }.draw(visit))
        }
        @if matches!(native, "ready" | "delayed" | "behind" | "running") {
            (Ask { verb: "Cancel", meaning: if native == "running" { "It is told to stop; what it has done so far stays done." } else { "It never starts, and its onComplete is told that it was cancelled." }, call: call("cancel"), said: "It is cancelled.", is_grave: true, ..Ask::default() }.draw(visit))
        }
        @if native == "failed" {
            (Ask { verb: "Retry", meaning: "It is tried again as a new item that is linked to this one.", call: call("retry"), said: "It is tried again.", ..Ask::default() }.draw(visit))
        }
    }
}

pub(super) async fn pool(visit: &Visit, name: &str) -> Result<Sheet, Fault> {
    let pool = visit.get(&path(&["v1", "pools", name])).await?;
    let items =
        search(visit, &["state", "key", "function", "args", "correlationId"], &[("pool", name)]).await?;
    let call = |verb: &str| format!("POST {}", path(&["admin", "pools", name, verb]));
    let keys = keys(visit, name).await?;
    let live = html! {
        (pool_table(std::slice::from_ref(&pool)))
        div.actions {
            @if pool.is("isPaused") {
                (Ask { verb: "Resume", meaning: "Its items start again.", call: call("resume"), said: "The pool goes on.", ..Ask::default() }.draw(visit))
            } @else {
                (Ask { verb: "Pause", meaning: "Nothing of this pool starts on any node until somebody resumes it; what runs goes on.", call: call("pause"), said: "The pool rests.", is_grave: true, ..Ask::default() }.draw(visit))
            }
        }
        section { h2 { "Items" } (items.draw(visit)) }
        section { h2 { "Queues of keys" } (keys) }
        section { h2 { "Settings" } (pretty(&pool["settings"])) }
    };
    Ok(Sheet::new(format!("Pool {name}"), live).controls(wanted(visit, false)))
}

/// A page of the queues of a pool's keys.
async fn keys(visit: &Visit, pool: &str) -> Result<Markup, Fault> {
    // A key may begin or end with blanks, which nothing that is asked does: it stands between quotes.
    let after = visit.asked.get(KEYS_AFTER).and_then(|text| text.strip_prefix('"')?.strip_suffix('"'));
    let asked = after.map(|after| ("cursor", after)).into_iter().chain([("limit", KEYS)]);
    let page = visit.get(&address(&path(&["admin", "pools", pool, "keys"]), asked)).await?;
    let (now, here) = (visit.now_ms(), path(&["console", "work", "pools", pool]));
    let queues = page.list("keys").iter().map(|key| {
        // What is like the key is looked for from its beginning.
        let kept = ["state", "function", "args", "correlationId", KEYS_AFTER];
        let items = visit.asked.only(&here, &kept, &[("key", key.text("key"))]);
        vec![
            html! { a href=(items) { (code(key.text("key"))) } },
            html! { (count(key.number("depth"))) },
            html! { @if let Some(at) = key.maybe("oldestAt") { (ago(at, now)) } },
            html! { @if key.is("isRunning") { (badge("running")) } },
        ]
    });
    let columns = [Column::Text("Key"), Column::Number("Items"), Column::Text("Oldest"), Column::Text("")];
    let further = page.get("next").and_then(Value::as_str).map(|next| format!("\"{next}\""));
    Ok(html! {
        (table(&columns, queues.collect(), "No key has anything that waits."))
        (next(visit, KEYS_AFTER, further.as_deref()))
    })
}

pub(super) async fn one(visit: &Visit, id: &str) -> Result<Sheet, Fault> {
    let item = visit.get(&path(&["admin", "work", id])).await?;
    if !item.is("found") {
        return Ok(Sheet::new(
            "Item",
            html! { p.nothing { "No item has the id " (code(id)) ", or it ended too long ago." } },
        ));
    }
    let now = visit.now_ms();
    let live = html! {
        @if let Some(error) = item.get("lastError").and_then(Value::as_str) { p.notice.bad { (error) } }
        div.actions { (actions(visit, &item)) }
        (rows(vec![
            ("State", Some(html! { (badge(item.text("state"))) " " (item.text("native")) })),
            ("Pool", Some(link(&path(&["console", "work", "pools", item.text("pool")]), item.text("pool")))),
            ("Function", Some(code(item.text("function")))),
            ("Key", item.get("key").and_then(Value::as_str).map(code)),
            ("Attempts", Some(html! { (item.number("attempts")) })),
            ("Enqueued", item.maybe("enqueuedAt").map(|at| html! { (moment(at)) ", " (ago(at, now)) })),
            ("Due", item.maybe("dueAt").map(|at| ago(at, now))),
            ("Ended", item.maybe("endedAt").map(|at| ago(at, now))),
            ("Correlation", item.get("correlationId").and_then(Value::as_str).map(|id| link(&path(&["console", "traces", id]), id))),
        ]))
        @for (title, member) in [("Arguments", "args"), ("Context", "context"), ("Result", "result")] {
            @if item.get(member).is_some_and(|value| !value.is_null()) { section { h2 { (title) } (pretty(&item[member])) } }
        }
        section { h2 { "Attempts that failed" } (attempts(item.list("errors"), "None.")) }
    };
    Ok(Sheet::new(format!("Item of {}", item.text("function")), live))
}
