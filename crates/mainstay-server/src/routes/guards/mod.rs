//! `/v1/limits`, `/v1/circuits`, `/admin/limits` and `/admin/circuits`: the guards.
//!
//! - `limits`: taking from limits, and what they are
//! - `circuits`: asking circuits, telling them how calls ended, and deciding over them
//! - `problem`: what guards say, as a problem document
//! - `schema`: how the API's description shows what guards take and give

mod circuits;
mod limits;
mod problem;
mod schema;

use crate::{App, Permission, Principal, Problem, Routes};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use mainstay_guards::circuits::Circuits;
use mainstay_guards::limits::store::Limits;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;
use utoipa_axum::routes;

pub(super) fn routes() -> Routes {
    use Permission::{Admin, Operator, Reader};
    let limits = Routes::default()
        .add(Reader, routes!(limits::list))
        .add(Operator, routes!(limits::consume_many))
        .add(Reader, routes!(limits::get))
        .add(Reader, routes!(limits::value))
        .add(Reader, routes!(limits::check))
        .add(Operator, routes!(limits::consume))
        .add(Operator, routes!(limits::reserve))
        .add(Operator, routes!(limits::refund))
        .add(Operator, routes!(limits::penalize))
        .add(Operator.written(), routes!(limits::block))
        .add(Operator.written(), routes!(limits::reset))
        // Whoever has used up what it may do must be able to raise that.
        .add(Admin.written(), routes!(limits::put))
        .add(Admin.written(), routes!(limits::delete))
        .add(Reader, routes!(limits::denied));
    let circuits = Routes::default()
        .add(Reader, routes!(circuits::list))
        .add(Reader, routes!(circuits::get))
        .add(Operator, routes!(circuits::ask))
        .add(Operator, routes!(circuits::report))
        .add(Reader, routes!(circuits::list_all))
        .add(Reader, routes!(circuits::changes))
        .add(Reader, routes!(circuits::history))
        .add(Admin, routes!(circuits::put))
        .add(Admin.written(), routes!(circuits::delete))
        .add(Operator, routes!(circuits::force))
        .add(Operator, routes!(circuits::release))
        .add(Operator, routes!(circuits::reset));
    limits.and(circuits)
}

/// The guards, for whoever may see all of them: they belong to no tenant.
struct Guards {
    limits: Limits,
    circuits: Circuits,
    principal: Principal,
}

impl FromRequestParts<App> for Guards {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let principal = Principal::from_request_parts(parts, app).await?.unconfined("A guard")?;
        Ok(Self { limits: app.limits().clone(), circuits: app.circuits().clone(), principal })
    }
}

/// A guard that is gone.
#[derive(Debug, Serialize)]
struct Deleted {
    name: String,
}

/// Which page of a list is wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Page {
    /// At most so many.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}
