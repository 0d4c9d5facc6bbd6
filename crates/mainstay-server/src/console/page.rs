//! What surrounds every view.

use super::api::Fault;
use super::parts::post;
use super::visit::Visit;
use super::{ROOT, assets};
use crate::access::Role;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// A view: what stays as it is while somebody looks at it, and what changes.
pub(super) struct Sheet {
    pub(super) title: String,
    /// Filters and the like.
    pub(super) controls: Markup,
    pub(super) live: Markup,
}

impl Sheet {
    pub(super) fn new(title: impl Into<String>, live: Markup) -> Self {
        Self { title: title.into(), controls: html! {}, live }
    }

    pub(super) fn controls(self, controls: Markup) -> Self {
        Self { controls, ..self }
    }
}

/// The views that one can always go to.
const PLACES: [(&str, &str, &str); 11] = [
    ("", "Overview", "o"),
    ("events", "Events", "e"),
    ("work", "Work", "w"),
    ("projections", "Projections", "p"),
    ("dead-letters", "Dead letters", "d"),
    ("publications", "Publications", "u"),
    ("intents", "Intents", "i"),
    ("circuits", "Circuits", "c"),
    ("limits", "Limits", "l"),
    ("audit", "Audit", "a"),
    ("configuration", "Configuration", "f"),
];

/// A view, as a page.
pub(super) fn whole(visit: &Visit, drawn: Result<Sheet, Fault>) -> Response {
    let (status, sheet) = match drawn {
        Ok(sheet) => (StatusCode::OK, sheet),
        Err(fault) => {
            let status = StatusCode::from_u16(fault.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            (status, Sheet::new("Not to be shown", self::fault(&fault)))
        }
    };
    // What the server could not do now it may do in a moment; what it refuses it refuses again.
    let is_followed = !status.is_client_error();
    let here = visit.here();
    let follow = here.replacen(ROOT, "/console/live", 1);
    let body = html! {
        a.skip href="#main" { "Skip to what this page is about" }
        header.top {
            a.brand href=(ROOT) { (mark()) "Mainstay" }
            form.find role="search" action="/console/find" {
                input type="search" name="id" placeholder="Find by correlation, event or work id" aria-label="Find by id" accesskey="s";
            }
            span.who title=(format!("token {}", visit.principal.name())) { (visit.principal.role.name()) @if let Some(tenant) = &visit.principal.tenant { " of " (tenant) } }
            (post(visit, "/console/logout", html! {
                button.quiet type="submit" { "Log out" }
                button.quiet type="submit" name="everywhere" value="1" title="Ends every session of your token" { "Sign out everywhere" }
            }))
        }
        nav.places aria-label="Views" {
            @for (path, name, key) in PLACES.into_iter().filter(|(path, ..)| is_open(visit, path)) {
                a href=(place(path)) data-key=(key) aria-current=[is_at(visit, path).then_some("page")] { (name) }
            }
        }
        main #main tabindex="-1" {
            div.heading {
                h1 { (sheet.title) }
                @if is_followed { span.pulse #pulse title="This page follows what happens" { "live" } }
            }
            @if let Some(told) = &visit.told { (notice(told)) }
            (sheet.controls)
            @if is_followed {
                div #live hx-sse:connect=(follow) hx-swap="innerMorph" aria-live="off" { (sheet.live) }
            } @else {
                div #live { (sheet.live) }
            }
        }
    };
    let mut answer = (status, bare(&sheet.title, &body)).into_response();
    if visit.told.is_some() {
        let gone = format!("{}=; Path=/console; HttpOnly; SameSite=Strict; Max-Age=0", super::visit::TOLD);
        if let Ok(gone) = gone.try_into() {
            answer.headers_mut().append(axum::http::header::SET_COOKIE, gone);
        }
    }
    answer
}

/// Whether somebody finds anything at a place. What most tokens of tenants may not see, they are not led to.
fn is_open(visit: &Visit, path: &str) -> bool {
    match path {
        _ if visit.principal.tenant.is_none() => true,
        "events" | "intents" => true,
        "audit" | "configuration" => visit.may(Role::Admin),
        _ => false,
    }
}

fn place(path: &str) -> String {
    if path.is_empty() { ROOT.to_owned() } else { format!("{ROOT}/{path}") }
}

fn is_at(visit: &Visit, path: &str) -> bool {
    let first = visit.view.split('/').next().unwrap_or_default();
    first == path || (first == "traces" && path == "events") || (first == "streams" && path == "events")
}

/// What an action came to: `ok …` or `no …`.
fn notice(told: &str) -> Markup {
    let (is_good, text) = match told.split_once(' ') {
        Some(("ok", text)) => (true, text),
        Some(("no", text)) => (false, text),
        _ => (true, told),
    };
    html! { p.notice.good[is_good].bad[!is_good] role=(if is_good { "status" } else { "alert" }) { (text) } }
}

/// Why something is not shown.
pub(super) fn fault(fault: &Fault) -> Markup {
    html! {
        p.notice.bad role="alert" { (fault.detail) " " a href={ "/docs/errors/" (fault.code) } { code { (fault.code) } } }
    }
}

/// A page with nothing around it.
pub(super) fn bare(title: &str, body: &Markup) -> Html<String> {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                // Details that somebody has opened stay open when the page changes under them.
                meta name="htmx-config" content=r#"{"includeIndicatorCSS":false,"morphIgnore":["data-htmx-powered","open"]}"#;
                title { (title) " · Mainstay" }
                link rel="icon" href=(assets::address("icon.svg"));
                link rel="stylesheet" href=(assets::address("console.css"));
            }
            body {
                (body)
                // Not deferred: htmx would begin before what teaches it to follow has come, and pages would stand still.
                script src=(assets::address("htmx.js")) {}
                script src=(assets::address("htmx-sse.js")) {}
                script src=(assets::address("console.js")) {}
            }
        }
    };
    Html(page.into_string())
}

/// The mark of the house.
pub(super) fn mark() -> Markup {
    html! {
        svg.mark viewBox="0 0 32 32" width="24" height="24" aria-hidden="true" {
            (PreEscaped(r##"<rect width="32" height="32" rx="7" class="ground"/><path d="M16 5v22M16 7 6 25h20Z" class="line"/>"##))
        }
    }
}
