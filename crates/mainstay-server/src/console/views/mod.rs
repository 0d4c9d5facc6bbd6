//! The views, one file each, and the table of their paths.

mod audit;
mod changes;
mod circuits;
mod configuration;
mod dead_letters;
mod events;
mod find;
mod intents;
mod limits;
mod operations;
mod overview;
mod projections;
mod publications;
mod traces;
mod work;

use super::api::Fault;
use super::page::{self, Sheet};
use super::visit::Visit;
use axum::response::{IntoResponse, Redirect, Response};

/// A view, as a page.
pub(super) async fn show(visit: Visit) -> Response {
    if visit.view == "find" {
        return find::go(&visit).await;
    }
    // How everything is belongs to no tenant.
    if visit.view.is_empty() && visit.principal.tenant.is_some() {
        return Redirect::to("/console/events").into_response();
    }
    let drawn = sheet(&visit).await;
    page::whole(&visit, drawn)
}

/// What is to be seen at the path of a visit.
pub(super) async fn sheet(visit: &Visit) -> Result<Sheet, Fault> {
    let parts: Vec<String> = visit.view.split('/').filter(|part| !part.is_empty()).map(unescaped).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    if let Some(tenant) = visit.principal.tenant.as_deref().filter(|_| !is_of_tenants(&parts)) {
        return Err(Fault::of_no_tenant(tenant));
    }
    match parts.as_slice() {
        [] => overview::all(visit).await,
        ["events"] => events::list(visit).await,
        ["events", id] => events::one(visit, id).await,
        ["streams", kind, id] => events::stream(visit, kind, id).await,
        ["traces", id] => traces::one(visit, id).await,
        ["work"] => work::all(visit).await,
        ["work", "pools", pool] => work::pool(visit, pool).await,
        ["work", id] => work::one(visit, id).await,
        ["projections"] => projections::list(visit).await,
        ["projections", name] => projections::one(visit, name).await,
        ["dead-letters"] => dead_letters::list(visit).await,
        ["dead-letters", "operations"] => operations::list(visit).await,
        ["dead-letters", "operations", id] => operations::one(visit, id).await,
        ["dead-letters", id] => dead_letters::one(visit, id).await,
        ["publications"] => publications::list(visit).await,
        ["publications", event] => publications::of_event(visit, event).await,
        ["intents"] => intents::list(visit).await,
        ["intents", key] => intents::one(visit, key).await,
        ["circuits"] => circuits::list(visit).await,
        ["circuits", name] => circuits::one(visit, name).await,
        ["limits"] => limits::list(visit).await,
        ["limits", name] => limits::one(visit, name).await,
        ["audit"] => audit::list(visit).await,
        ["configuration"] => configuration::all(visit).await,
        _ => Err(Fault::no_view()),
    }
}

/// Whether a view shows something to whoever is confined to a tenant.
fn is_of_tenants(parts: &[&str]) -> bool {
    let of_tenants = ["events", "streams", "traces", "intents", "audit", "configuration"];
    matches!(parts, ["publications", _]) || parts.first().is_some_and(|first| of_tenants.contains(first))
}

/// A part of a path as it was before it was escaped.
fn unescaped(part: &str) -> String {
    let pair = format!("={}", part.replace('+', "%2B").replace('&', "%26"));
    form_urlencoded::parse(pair.as_bytes()).next().map(|(_, part)| part.into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::api::path;
    use super::*;

    #[test]
    fn a_part_that_was_escaped_comes_back() {
        for part in ["a+b", "a b", "a/b", "ü&=%", "%2F"] {
            assert_eq!(unescaped(path(&[part]).trim_start_matches('/')), part);
        }
    }
}
