//! `/admin/dead-letter-operations`: what is done about many letters. It is previewed, run, looked at and cancelled; what is
//! left of it is the record of who has done what.

use super::{Inbox, schema};
use crate::routes::limit;
use crate::{Answer, Json, Path, Principal, Problem, Query, Role, error};
use mainstay_flows::dead_letters::{Action, Filter, Operation, OperationStatus};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// What is to be done about which letters.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewDeadLetterOperation)]
pub(super) struct Wanted {
    /// What is to be done. To purge takes an admin.
    #[schema(value_type = schema::Action)]
    action: Action,
    /// About which letters. Without a status those that are pending; to purge, those that are resolved.
    #[serde(default)]
    #[schema(value_type = schema::Filter)]
    filter: Filter,
    /// About the oldest of these letters, at most so many; about all unless given.
    #[schema(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Which operations are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Parameters {
    /// Of this status.
    #[param(value_type = Option<schema::OperationStatus>)]
    status: Option<OperationStatus>,
    /// At most so many.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the page before.
    #[param(max_length = 256)]
    cursor: Option<String>,
}

/// A page of operations.
#[derive(Debug, Serialize)]
pub(super) struct Operations {
    operations: Vec<Operation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// What is purged cannot be brought back.
fn may(asks: &Principal, action: Action) -> Answer<()> {
    if action != Action::Purge || asks.role >= Role::Admin {
        return Ok(());
    }
    Err(Problem::new(&error::UNAUTHORIZED, format!("{} role required", Role::Admin)))
}

/// Preview what would be done about dead letters
///
/// Nothing is done yet. The answer says what would be touched, and can be run within an hour.
#[utoipa::path(post, path = "/admin/dead-letter-operations", operation_id = "previewDeadLetterOperation",
    tag = "dead letters", request_body = Wanted, responses((status = 200, body = schema::DeadLetterOperation)))]
pub(super) async fn preview(
    Inbox(inbox, asks): Inbox,
    Json(wanted): Json<Wanted>,
) -> Answer<Json<Operation>> {
    may(&asks, wanted.action)?;
    let Wanted { action, filter, limit: asked } = wanted;
    let most = asked.map(|asked| limit(Some(asked))).transpose();
    let most = most.map_err(|_| Problem::invalid_field("limit", "must be 1 to 1000"))?;
    Ok(Json(inbox.preview_some(action, filter, most, asks.name()).await?))
}

/// List what was done about dead letters, by whom and with which outcome, the newest first
#[utoipa::path(get, path = "/admin/dead-letter-operations", operation_id = "listDeadLetterOperations",
    tag = "dead letters", params(Parameters), responses((status = 200, body = schema::DeadLetterOperations)))]
pub(super) async fn list(
    Inbox(inbox, _): Inbox,
    Query(asked): Query<Parameters>,
) -> Answer<Json<Operations>> {
    let limit = limit(asked.limit)?;
    if asked.cursor.as_ref().is_some_and(|cursor| !cursor.starts_with("operation_") || cursor.len() > 64) {
        return Err(Problem::invalid_parameter("cursor", "is not the `next` of a page"));
    }
    let operations = inbox.operations(asked.status, asked.cursor, limit).await?;
    let last = operations.last().filter(|_| operations.len() == limit);
    let next = last.map(|last| last.operation_id.clone());
    Ok(Json(Operations { operations, next }))
}

/// See how far an operation on dead letters is
#[utoipa::path(get, path = "/admin/dead-letter-operations/{id}", operation_id = "getDeadLetterOperation",
    tag = "dead letters", params(("id" = String, Path, description = "The operation")),
    responses((status = 200, body = schema::DeadLetterOperation)))]
pub(super) async fn get(Inbox(inbox, _): Inbox, Path(id): Path<String>) -> Answer<Json<Operation>> {
    Ok(Json(inbox.operation(&id).await?))
}

/// Run an operation on dead letters that was previewed
#[utoipa::path(post, path = "/admin/dead-letter-operations/{id}/run", operation_id = "runDeadLetterOperation",
    tag = "dead letters", params(("id" = String, Path, description = "The operation")),
    responses((status = 200, body = schema::DeadLetterOperation)))]
pub(super) async fn run(Inbox(inbox, asks): Inbox, Path(id): Path<String>) -> Answer<Json<Operation>> {
    may(&asks, inbox.operation(&id).await?.action)?;
    Ok(Json(inbox.run_by(&id, asks.name()).await?))
}

/// Stop an operation on dead letters; what it has done stays
#[utoipa::path(post, path = "/admin/dead-letter-operations/{id}/cancel", operation_id = "cancelDeadLetterOperation",
    tag = "dead letters", params(("id" = String, Path, description = "The operation")),
    responses((status = 200, body = schema::DeadLetterOperation)))]
pub(super) async fn cancel(Inbox(inbox, asks): Inbox, Path(id): Path<String>) -> Answer<Json<Operation>> {
    Ok(Json(inbox.cancel_by(&id, asks.name()).await?))
}
