//! `/admin/audit`: who did what.

use super::limit;
use crate::access::Principal;
use crate::app::App;
use crate::audit::{Audit, Entry, Filter, Head, Outcome};
use crate::{Answer, Json, Permission, Query, Routes};
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;
use utoipa_axum::routes;

pub(super) fn routes() -> Routes {
    Routes::default().add(Permission::Admin, routes!(list)).add(Permission::Admin, routes!(head))
}

/// The shapes of the audit, for the description.
#[allow(dead_code, reason = "only described")]
mod schema {
    use utoipa::ToSchema;

    #[derive(ToSchema)]
    #[schema(rename_all = "lowercase")]
    pub(super) enum AuditOutcome {
        Done,
        Refused,
        Failed,
    }

    #[derive(ToSchema)]
    #[schema(rename_all = "camelCase")]
    pub(super) struct AuditEntry {
        /// Its number, from 1.
        number: u64,
        /// When, by the database's clock, in milliseconds since the epoch.
        timestamp: i64,
        /// The method and the path of the route.
        action: String,
        /// What the call was given, without secrets.
        args: serde_json::Value,
        /// The id of the token; `nobody` for one who was not known.
        user_id: String,
        role: Option<String>,
        tenant_id: Option<String>,
        outcome: AuditOutcome,
        /// The code of what was wrong.
        code: Option<String>,
        trace_id: Option<String>,
        /// SHA-256 of this entry and of the hash of the one before.
        hash: String,
    }

    #[derive(ToSchema)]
    pub(super) struct AuditEntries {
        entries: Vec<AuditEntry>,
        /// The `before`, or `after`, of the next page.
        next: Option<u64>,
    }

    #[derive(ToSchema)]
    pub(super) struct AuditHead {
        /// The number of the last entry; 0 when there is none.
        number: u64,
        hash: String,
    }
}

/// Which entries are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Parameters {
    /// Of this token.
    user_id: Option<String>,
    /// Of this outcome.
    #[param(value_type = Option<schema::AuditOutcome>)]
    outcome: Option<Outcome>,
    /// Before the entry of this number.
    before: Option<u64>,
    /// After the entry of this number, and the oldest first; 0 begins with the first of all.
    after: Option<u64>,
    /// At most so many entries.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// A page of entries.
#[derive(Debug, Serialize)]
struct Entries {
    entries: Vec<Entry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

/// Who did what, the newest first
#[utoipa::path(get, path = "/admin/audit", operation_id = "listAudit", tag = "operate", params(Parameters),
    responses((status = 200, body = schema::AuditEntries)))]
async fn list(
    State(app): State<App>,
    principal: Principal,
    Query(asked): Query<Parameters>,
) -> Answer<Json<Entries>> {
    let limit = limit(asked.limit)?;
    let Parameters { user_id, outcome, before, after, .. } = asked;
    // Numbers beyond what the database has mean the same as the last of them.
    let bounded = |number: u64| number.min(i64::MAX as u64);
    let (before, after) = (before.map(bounded), after.map(bounded));
    let filter = Filter { user_id, outcome, tenant_id: principal.tenant, before, after };
    let entries = Audit::new(app.store().clone()).list(filter, limit).await?;
    let next = entries.last().filter(|_| entries.len() == limit).map(|last| last.number);
    Ok(Json(Entries { entries, next }))
}

/// The last entry's number and hash, to be kept elsewhere
#[utoipa::path(get, path = "/admin/audit/head", operation_id = "auditHead", tag = "operate",
    responses((status = 200, body = schema::AuditHead)))]
async fn head(State(app): State<App>, principal: Principal) -> Answer<Json<Head>> {
    principal.unconfined("The chain of the audit")?;
    Ok(Json(Audit::new(app.store().clone()).head().await?))
}
