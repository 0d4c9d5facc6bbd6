//! `/v1/events` and `/v1/streams`: the log.
//!
//! - `append`, `read`, `subscribe`, `streams`: a route each
//! - `select`: the parameters that choose events
//! - `problem`: what the log says, as a problem document
//! - `schema`: how the API's description shows what the log takes and gives

mod append;
mod problem;
mod read;
mod schema;
mod select;
mod streams;
mod subscribe;

use crate::{App, Permission, Principal, Role, Routes};
use mainstay_events::Log;
use utoipa_axum::routes;

pub(super) fn routes() -> Routes {
    Routes::default()
        .add(Permission::Operator.batch().or(Role::Publisher), routes!(append::append))
        .add(Permission::Reader, routes!(read::read))
        .add(Permission::Reader, routes!(read::get))
        .add(Permission::Reader.streaming(), routes!(subscribe::subscribe))
        .add(Permission::Reader, routes!(streams::read))
}

/// The log as `principal` sees it.
pub(super) fn log_of(app: &App, principal: &Principal) -> Log {
    match &principal.tenant {
        Some(tenant) => app.log().for_tenant(tenant.as_str()),
        None => app.log().clone(),
    }
}
