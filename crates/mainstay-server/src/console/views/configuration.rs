//! Configuration: what this process runs with, the tokens, and the pools' and crons' settings.

use super::super::api::{Fault, path};
use super::super::page::Sheet;
use super::super::parts::{Ask, Column, Told, ago, badge, code, pretty, table};
use super::super::visit::Visit;
use crate::access::Role;
use maud::{Markup, html};

pub(super) async fn all(visit: &Visit) -> Result<Sheet, Fault> {
    let is_confined = visit.principal.tenant.is_some();
    let live = html! {
        @if !is_confined { section { h2 { "Crons" } (crons(visit).await?) } }
        @if visit.may(Role::Admin) {
            section { h2 { "Tokens" } (tokens(visit).await?) }
            @if !is_confined {
                section { h2 { "What this process runs with" } (pretty(&visit.get("/admin/config").await?)) }
            }
        } @else {
            p.hint { "An admin sees tokens and the configuration here." }
        }
    };
    Ok(Sheet::new("Configuration", live))
}

async fn crons(visit: &Visit) -> Result<Markup, Fault> {
    let crons = visit.get("/v1/crons").await?;
    let now = visit.now_ms();
    let drawn = crons.list("crons").iter().map(|cron| {
        let schedule = match cron["schedule"].text("cron") {
            "" => format!("every {}", super::super::parts::span(cron["schedule"].number("everyMs"))),
            text => format!("{text} {}", cron["schedule"].text("timeZone")),
        };
        vec![
            code(cron.text("name")),
            html! { (schedule) @if cron.is("isPaused") { " " (badge("paused")) } },
            html! { (cron.text("function")) },
            ago(cron.number("nextAt"), now),
            html! { @if let Some(at) = cron.maybe("lastAt") { (ago(at, now)) } },
        ]
    });
    let columns = [
        Column::Text("Cron"),
        Column::Text("Schedule"),
        Column::Text("Calls"),
        Column::Text("Due"),
        Column::Text("Last"),
    ];
    Ok(table(&columns, drawn.collect(), "There are no crons."))
}

async fn tokens(visit: &Visit) -> Result<Markup, Fault> {
    let found = visit.get("/admin/tokens").await?;
    let drawn = found.list("tokens").iter().map(|token| {
        let is_over = token.get("revokedAt").is_some_and(|at| !at.is_null());
        let when = |name: &str| token.text(name).get(..19).unwrap_or_default().replace('T', " ");
        vec![
            html! { (token.text("name")) " " (code(token.text("id"))) },
            html! { (token.text("role")) @if let Some(tenant) = token.get("tenant").and_then(|tenant| tenant.as_str()) { " of " (tenant) } },
            html! { (when("createdAt")) },
            html! { (when("lastUsedAt")) },
            html! { @if is_over { "revoked " (when("revokedAt")) } @else if token.get("expiresAt").is_some() { "until " (when("expiresAt")) } },
            html! { @if !is_over {
                (Ask { role: Role::Admin, verb: "Revoke", meaning: "Whoever holds this token is refused from now on, and its sessions end.", call: format!("DELETE {}", path(&["admin", "tokens", token.text("id")])), said: "The token is worthless.", is_grave: true, ..Ask::default() }.draw(visit))
            } },
        ]
    });
    let columns = [
        Column::Text("Token"),
        Column::Text("Role"),
        Column::Text("Made (UTC)"),
        Column::Text("Last used"),
        Column::Text("Ends"),
        Column::Actions,
    ];
    Ok(table(&columns, drawn.collect(), "There are no tokens."))
}
