//! `/docs/errors`: a page for every error code, to which the `type` of a problem leads.

use crate::{Answer, CODE_TABLES, Path, Permission, Problem, Routes, error};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY};
use axum::response::{Html, IntoResponse};
use mainstay_core::codes::{ErrorCode, Register};
use maud::{DOCTYPE, Markup, html};
use std::sync::LazyLock;
use utoipa_axum::routes;

/// Every code that the server can answer with.
static REGISTER: LazyLock<Register> =
    LazyLock::new(|| Register::join(&CODE_TABLES).expect("a test keeps the tables apart"));

/// The pages load nothing and run nothing.
const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) fn routes() -> Routes {
    Routes::default().add(Permission::Public, routes!(index)).add(Permission::Public, routes!(page))
}

/// All error codes, as a page
#[utoipa::path(get, path = "/docs/errors", operation_id = "listErrorCodes", tag = "operate",
    responses((status = 200, description = "A page of HTML", body = String, content_type = "text/html")))]
async fn index() -> impl IntoResponse {
    document(
        "Error codes",
        &html! {
            h1 { "Error codes" }
            p { "Every failure has a code that never changes. It is the " code { "code" } " of a problem document." }
            ul {
                @for entry in REGISTER.iter() {
                    li { a href={ "/docs/errors/" (entry.code) } { code { (entry.code) } } " " (entry.meaning) }
                }
            }
        },
    )
}

/// What an error code means, as a page
#[utoipa::path(get, path = "/docs/errors/{code}", operation_id = "explainErrorCode", tag = "operate",
    params(("code" = String, Path, description = "The code of a problem document")),
    responses((status = 200, description = "A page of HTML", body = String, content_type = "text/html")))]
async fn page(Path(code): Path<String>) -> Answer<impl IntoResponse> {
    let entry = REGISTER.get(&code);
    let entry =
        entry.ok_or_else(|| Problem::new(&error::ROUTE_NOT_FOUND, "There is no error code of this name."))?;
    let ErrorCode { code, status, meaning, remedy, .. } = entry;
    Ok(document(
        code,
        &html! {
            h1 { (code) }
            p { (meaning) }
            h2 { "What to do" }
            p { (remedy) }
            h2 { "Trying again" }
            p { (entry.retry()) " The HTTP status is " (status) "." }
            p { a href="/docs/errors" { "All error codes" } }
        },
    ))
}

fn document(title: &str, body: &Markup) -> impl IntoResponse + use<> {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Mainstay" }
            }
            body { main { (body) } }
        }
    };
    let headers = [(CONTENT_SECURITY_POLICY, POLICY), (CACHE_CONTROL, "public, max-age=3600")];
    (headers, Html(page.into_string()))
}
