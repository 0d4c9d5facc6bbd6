//! `/health/live`, `/health/ready`, `/health`, and the short names that probes know.

use crate::access::Visitor;
use crate::app::App;
use crate::health::{self, readiness, system, without_details};
use crate::{Answer, Json, Permission, Principal, Query, Routes};
use axum::extract::State;
use axum::http::StatusCode;
use mainstay_core::health::{Status, SystemHealth};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

pub(super) fn routes() -> Routes {
    Routes::default()
        .add(Permission::Public, routes!(live))
        .add(Permission::Public, routes!(livez))
        .add(Permission::Public, routes!(ready))
        .add(Permission::Public, routes!(readyz))
        .add(Permission::Local, routes!(health))
}

/// That the process lives.
#[derive(Debug, Serialize, ToSchema)]
struct Alive {
    #[schema(value_type = String, example = "alive")]
    status: &'static str,
    /// In milliseconds since the epoch.
    timestamp: i64,
}

/// Whether the server can take work.
#[derive(Debug, Serialize, ToSchema)]
struct Ready {
    #[schema(value_type = schema::HealthStatus)]
    status: Status,
    /// When that was seen, in milliseconds since the epoch.
    timestamp: i64,
    /// Status of each component, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, schema::HealthStatus>>)]
    components: Option<BTreeMap<String, Status>>,
    /// Code of the reason why the store does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    error: Option<&'static str>,
    /// Figures of each projection and pool, by name. For a token without a tenant, and on loopback while no token exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, serde_json::Value>>)]
    details: Option<Map<String, Value>>,
}

/// The shapes of `mainstay_core::health`, for the description.
#[allow(dead_code, reason = "only described")]
mod schema {
    use utoipa::ToSchema;

    #[derive(ToSchema)]
    #[schema(rename_all = "lowercase")]
    pub(super) enum HealthStatus {
        Healthy,
        Degraded,
        Unhealthy,
    }

    #[derive(ToSchema)]
    #[schema(rename_all = "camelCase")]
    pub(super) struct ComponentHealth {
        name: String,
        status: HealthStatus,
        /// What that was seen by.
        details: Option<serde_json::Value>,
        /// What is wrong, as an error code or in words.
        error: Option<String>,
        /// What somebody can do about it.
        suggested_action: Option<String>,
    }

    #[derive(ToSchema)]
    #[schema(rename_all = "camelCase")]
    pub(super) struct SystemHealth {
        status: HealthStatus,
        /// When that was seen, in milliseconds since the epoch.
        timestamp: i64,
        components: Vec<ComponentHealth>,
        summary: HealthSummary,
        /// What somebody should know although it works.
        warning: Option<String>,
    }

    #[derive(ToSchema)]
    pub(super) struct HealthSummary {
        healthy: u32,
        degraded: u32,
        unhealthy: u32,
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Verbosity {
    /// Tell how the parts are, too.
    #[serde(default)]
    #[param(required = false)]
    verbose: bool,
}

/// Whether the process answers at all
#[utoipa::path(get, path = "/health/live", tag = "health", responses((status = 200, body = Alive)))]
async fn live(State(app): State<App>) -> Json<Alive> {
    Json(Alive { status: "alive", timestamp: app.store().clock().now_ms() })
}

/// Whether the process answers at all
#[utoipa::path(get, path = "/livez", tag = "health", responses((status = 200, body = Alive)))]
async fn livez(app: State<App>) -> Json<Alive> {
    live(app).await
}

/// Whether the server can take work: its store answers, and neither projections nor pools are behind
#[utoipa::path(get, path = "/health/ready", tag = "health",
    responses((status = 200, body = Ready), (status = 503, body = Ready)))]
async fn ready(State(app): State<App>, Visitor(visitor): Visitor) -> Answer<(StatusCode, Json<Ready>)> {
    Ok(gate(&app, true, visitor.as_ref()).await)
}

/// Whether the server can take work: its store answers, and neither projections nor pools are behind
#[utoipa::path(get, path = "/readyz", tag = "health", params(Verbosity),
    responses((status = 200, body = Ready), (status = 503, body = Ready)))]
async fn readyz(
    State(app): State<App>,
    Query(Verbosity { verbose }): Query<Verbosity>,
    Visitor(visitor): Visitor,
) -> Answer<(StatusCode, Json<Ready>)> {
    Ok(gate(&app, verbose, visitor.as_ref()).await)
}

/// How everything is, in grades, and what can be done about it
///
/// A token that is confined to a tenant is told the grades without the details.
#[utoipa::path(get, path = "/health", tag = "health",
    responses((status = 200, body = schema::SystemHealth), (status = 503, body = schema::SystemHealth)))]
async fn health(State(app): State<App>, principal: Principal) -> Answer<(StatusCode, Json<SystemHealth>)> {
    let look = health::now(&app).await;
    let system = system(&look, &app.options().health, app.store().clock().now_ms());
    let system = if principal.tenant.is_some() { without_details(system) } else { system };
    Ok((code(system.status == Status::Unhealthy), Json(system)))
}

async fn gate(app: &App, is_verbose: bool, visitor: Option<&Principal>) -> (StatusCode, Json<Ready>) {
    let look = health::now(app).await;
    let gate = readiness(&look, &app.options().health, app.store().clock().now_ms());
    let is_told = is_verbose && visitor.is_some_and(|visitor| visitor.tenant.is_none());
    let ready = Ready {
        status: gate.status,
        timestamp: gate.timestamp,
        components: is_verbose.then_some(gate.components),
        error: gate.error.filter(|_| is_verbose),
        details: is_told.then_some(gate.details),
    };
    (code(gate.status != Status::Healthy), Json(ready))
}

fn code(is_bad: bool) -> StatusCode {
    if is_bad { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }
}
