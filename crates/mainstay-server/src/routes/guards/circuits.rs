//! `/v1/circuits` and `/admin/circuits`.

use super::{Deleted, Guards, Page, schema};
use crate::routes::limit;
use crate::{Answer, Json, Path, Problem, Query};
use mainstay_core::failure::Failure;
use mainstay_guards::circuits::{Change, Ended, Force, Settings, Status};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A page of circuits.
#[derive(Debug, Serialize)]
pub(super) struct Circuits {
    circuits: Vec<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A page of changes.
#[derive(Debug, Serialize)]
pub(super) struct Changes {
    changes: Vec<Change>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Whether a call may be made.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Asked {
    /// Whether it may.
    admitted: bool,
    /// It is the probe: its end is reported with this.
    #[serde(skip_serializing_if = "Option::is_none")]
    probe_run_id: Option<String>,
    /// When to ask again.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

/// How a call ended.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Report {
    /// How it ended.
    outcome: Outcome,
    /// How long it took.
    #[serde(default)]
    #[schema(minimum = 0, default = 0)]
    took_ms: u64,
    /// The `probeRunId` that it was admitted with.
    #[schema(max_length = 128)]
    probe_run_id: Option<String>,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = CallOutcome)]
enum Outcome {
    /// It was answered, also with an error that says nothing about the service's health.
    Success,
    /// The service failed.
    Failure,
    /// Nobody waited for its end.
    GivenUp,
}

/// What an operator decides.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ForceCircuit {
    /// Open lets no call through, closed every one.
    state: Side,
    /// Why.
    #[schema(min_length = 1, max_length = 1024)]
    reason: String,
    /// For so long; until it is released unless given.
    #[schema(minimum = 1)]
    for_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = CircuitSide)]
enum Side {
    Open,
    Closed,
}

/// Why something is done.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Reason {
    /// Why.
    #[schema(min_length = 1, max_length = 1024)]
    reason: String,
}

/// List the circuits that have ever counted something
#[utoipa::path(get, path = "/v1/circuits", operation_id = "listCircuits", tag = "circuits", params(Page),
    responses((status = 200, body = schema::Circuits)))]
pub(super) async fn list(
    Guards { circuits, .. }: Guards,
    Query(asked): Query<Page>,
) -> Answer<Json<Circuits>> {
    let limit = limit(asked.limit)?;
    let found = circuits.list(asked.cursor.as_deref(), limit).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|last| last.name.clone());
    Ok(Json(Circuits { circuits: found, next }))
}

/// Look at a circuit; one that nobody has heard of is closed
#[utoipa::path(get, path = "/v1/circuits/{name}", operation_id = "getCircuit", tag = "circuits",
    params(("name" = String, Path, description = "The circuit")), responses((status = 200, body = schema::Circuit)))]
pub(super) async fn get(Guards { circuits, .. }: Guards, Path(name): Path<String>) -> Answer<Json<Status>> {
    Ok(Json(circuits.status(&name).await?))
}

/// List the circuits that have ever counted something, as operators see them
#[utoipa::path(get, path = "/admin/circuits", operation_id = "listCircuitsForOperators", tag = "circuits",
    params(Page), responses((status = 200, body = schema::Circuits)))]
pub(super) async fn list_all(guards: Guards, asked: Query<Page>) -> Answer<Json<Circuits>> {
    list(guards, asked).await
}

/// List the changes of all circuits, the newest first
///
/// The last 200 of each are kept.
#[utoipa::path(get, path = "/admin/circuit-changes", operation_id = "listCircuitChanges", tag = "circuits",
    params(Page), responses((status = 200, body = schema::CircuitChanges)))]
pub(super) async fn changes(guards: Guards, Query(asked): Query<Page>) -> Answer<Json<Changes>> {
    changes_of(guards, None, asked).await
}

/// List the changes of a circuit, the newest first: from which state to which, when, and why
///
/// The last 200 are kept.
#[utoipa::path(get, path = "/admin/circuits/{name}/history", operation_id = "getCircuitHistory", tag = "circuits",
    params(("name" = String, Path, description = "The circuit"), Page),
    responses((status = 200, body = schema::CircuitChanges)))]
pub(super) async fn history(
    guards: Guards,
    Path(name): Path<String>,
    Query(asked): Query<Page>,
) -> Answer<Json<Changes>> {
    changes_of(guards, Some(&name), asked).await
}

async fn changes_of(
    Guards { circuits, .. }: Guards,
    name: Option<&str>,
    asked: Page,
) -> Answer<Json<Changes>> {
    let limit = limit(asked.limit)?;
    let before = asked.cursor.as_deref().map(|cursor| {
        let number = cursor.strip_prefix('c').and_then(|digits| i64::from_str_radix(digits, 16).ok());
        let number = number.filter(|number| *number > 0);
        number.ok_or_else(|| Problem::invalid_parameter("cursor", "is not the `next` of a page"))
    });
    let changes = circuits.changes(name, before.transpose()?, limit).await?;
    let next = changes.last().filter(|_| changes.len() == limit).map(|last| format!("c{:x}", last.number));
    Ok(Json(Changes { changes, next }))
}

/// Ask before a call that is made elsewhere
///
/// The decision is the answer. A call that is admitted is followed by a report of how it ended, unless it was no probe
/// and succeeded. A probe of which nothing is heard makes room for another after the circuit's `probeTimeoutMs`.
#[utoipa::path(post, path = "/v1/circuits/{name}/ask", operation_id = "askCircuit", tag = "circuits",
    params(("name" = String, Path, description = "The circuit")), responses((status = 200, body = Asked)))]
pub(super) async fn ask(Guards { circuits, .. }: Guards, Path(name): Path<String>) -> Answer<Json<Asked>> {
    Ok(Json(match circuits.circuit(&name)?.ask_for().await {
        Ok(probe) => Asked { admitted: true, probe_run_id: probe.map(Into::into), retry_after_ms: None },
        Err(rejected) => {
            Asked { admitted: false, probe_run_id: None, retry_after_ms: Some(rejected.retry_after_ms) }
        }
    }))
}

/// Tell how a call ended that was made elsewhere
///
/// A report that is sent twice counts twice. Calls of a circuit that goes by a share of its last calls are counted by
/// the node that is told.
#[utoipa::path(post, path = "/v1/circuits/{name}/report", operation_id = "reportToCircuit", tag = "circuits",
    params(("name" = String, Path, description = "The circuit")), request_body(content = Report),
    responses((status = 200, body = schema::Circuit)))]
pub(super) async fn report(
    Guards { circuits, .. }: Guards,
    Path(name): Path<String>,
    Json(report): Json<Report>,
) -> Answer<Json<Status>> {
    let failure = Failure::retryable("reported");
    let ended = match report.outcome {
        Outcome::Success => Ended::Success,
        Outcome::Failure => Ended::Failed(&failure),
        Outcome::GivenUp => Ended::GivenUp,
    };
    let circuit = circuits.circuit(&name)?;
    Ok(Json(circuit.report(ended, report.took_ms, report.probe_run_id.as_deref()).await?))
}

/// Set a circuit on all nodes
///
/// What is left out has its default. A circuit that mainstay.toml names is as the file has it again when a server with it
/// starts.
#[utoipa::path(put, path = "/admin/circuits/{name}", operation_id = "putCircuit", tag = "circuits",
    params(("name" = String, Path, description = "The circuit: 1 to 128 bytes without control characters")),
    request_body = schema::CircuitSettings, responses((status = 200, body = schema::Circuit)))]
pub(super) async fn put(
    Guards { circuits, principal, .. }: Guards,
    Path(name): Path<String>,
    Json(settings): Json<Settings>,
) -> Answer<Json<Status>> {
    let status = circuits.define(&name, settings).await?;
    tracing::warn!(circuit = name, by = principal.name(), "circuit set");
    Ok(Json(status))
}

/// Delete a circuit that is closed and not forced, with its history
///
/// A call that fails makes it anew, with the settings that services of this name usually have.
#[utoipa::path(delete, path = "/admin/circuits/{name}", operation_id = "deleteCircuit", tag = "circuits",
    params(("name" = String, Path, description = "The circuit")),
    responses((status = 200, body = schema::Deleted)))]
pub(super) async fn delete(
    Guards { circuits, principal, .. }: Guards,
    Path(name): Path<String>,
) -> Answer<Json<Deleted>> {
    circuits.delete(&name).await?;
    tracing::warn!(circuit = name, by = principal.name(), "circuit deleted");
    Ok(Json(Deleted { name }))
}

/// Let a circuit be open or closed on all nodes, whatever calls say
#[utoipa::path(post, path = "/admin/circuits/{name}/force", operation_id = "forceCircuit", tag = "circuits",
    params(("name" = String, Path, description = "The circuit")), request_body(content = ForceCircuit),
    responses((status = 200, body = schema::Circuit)))]
pub(super) async fn force(
    Guards { circuits, principal, .. }: Guards,
    Path(name): Path<String>,
    Json(asked): Json<ForceCircuit>,
) -> Answer<Json<Status>> {
    let ForceCircuit { state, reason, for_ms } = asked;
    let force = Force { is_open: state == Side::Open, actor: principal.name().to_owned(), reason, for_ms };
    Ok(Json(circuits.force(&name, force).await?))
}

/// Let calls decide again about a circuit that was forced
#[utoipa::path(post, path = "/admin/circuits/{name}/release", operation_id = "releaseCircuit", tag = "circuits",
    params(("name" = String, Path, description = "The circuit")), request_body(content = Reason),
    responses((status = 200, body = schema::Circuit)))]
pub(super) async fn release(
    Guards { circuits, principal, .. }: Guards,
    Path(name): Path<String>,
    Json(Reason { reason }): Json<Reason>,
) -> Answer<Json<Status>> {
    Ok(Json(circuits.release(&name, principal.name(), &reason).await?))
}

/// Let a circuit begin anew: closed, nothing counted, not forced
#[utoipa::path(post, path = "/admin/circuits/{name}/reset", operation_id = "resetCircuit", tag = "circuits",
    params(("name" = String, Path, description = "The circuit")), request_body(content = Reason),
    responses((status = 200, body = schema::Circuit)))]
pub(super) async fn reset(
    Guards { circuits, principal, .. }: Guards,
    Path(name): Path<String>,
    Json(Reason { reason }): Json<Reason>,
) -> Answer<Json<Status>> {
    Ok(Json(circuits.reset(&name, principal.name(), &reason).await?))
}
