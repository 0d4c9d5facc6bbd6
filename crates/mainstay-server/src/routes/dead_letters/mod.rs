//! `/admin/dead-letters` and `/admin/dead-letter-operations`: everything that failed for good, and what is done about it.
//!
//! - `letters`: lists, counts, groups, one letter and what is done about it
//! - `operations`: what is done about many
//! - `schema`: how the API's description shows what they take and give

mod letters;
mod operations;
mod schema;

use crate::{App, Permission, Principal, Problem, Routes};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use mainstay_flows::dead_letters::DeadLetters;
use utoipa_axum::routes;

pub(super) fn routes() -> Routes {
    use Permission::{Operator, Reader};
    Routes::default()
        .add(Reader, routes!(letters::list))
        .add(Reader, routes!(letters::stats))
        .add(Reader, routes!(letters::groups))
        .add(Reader, routes!(letters::get))
        .add(Operator, routes!(letters::retry))
        .add(Operator, routes!(letters::ignore))
        // Looking at what would be done changes nothing that anybody would miss.
        .add(Operator.written(), routes!(operations::preview))
        .add(Reader, routes!(operations::list))
        .add(Reader, routes!(operations::get))
        .add(Operator, routes!(operations::run))
        .add(Operator.revoking(), routes!(operations::cancel))
}

/// The inbox, for whoever may see all of it: what fails belongs to no tenant. And who asks.
struct Inbox(DeadLetters, Principal);

impl FromRequestParts<App> for Inbox {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let asks = Principal::from_request_parts(parts, app).await?.unconfined("A dead letter")?;
        Ok(Self(app.dead_letters().clone(), asks))
    }
}
