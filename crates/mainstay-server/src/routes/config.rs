//! `/admin/config`: how this process was started.

use crate::{Answer, App, Json, Permission, Principal, Routes};
use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::routes;

pub(super) fn routes() -> Routes {
    Routes::default().add(Permission::Admin, routes!(get))
}

/// The configuration of this process.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Configuration {
    /// Every setting with its value and where that was said, secrets masked; null where a program was not started from a
    /// configuration.
    configuration: Option<Value>,
}

/// Look at the configuration in force
///
/// That of the process that answers. What was set over the API since is told by the resources themselves.
#[utoipa::path(get, path = "/admin/config", operation_id = "getConfig", tag = "system",
    responses((status = 200, body = Configuration)))]
async fn get(State(app): State<App>, principal: Principal) -> Answer<Json<Configuration>> {
    principal.unconfined("The configuration")?;
    Ok(Json(Configuration { configuration: app.options().configuration.clone() }))
}
