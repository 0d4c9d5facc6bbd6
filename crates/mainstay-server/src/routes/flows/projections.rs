//! `/admin/projections` and `/admin/checkpoints`.

use super::Models;
use super::schema::projections as schema;
use crate::{Answer, Json, Path};
use mainstay_flows::projections::{Checkpoint, Status};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// All projections of this process.
#[derive(Debug, Serialize)]
pub(super) struct List {
    projections: Vec<Status>,
}

/// All checkpoints.
#[derive(Debug, Serialize)]
pub(super) struct Checkpoints {
    checkpoints: Vec<Checkpoint>,
}

/// Where a checkpoint is set.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SetCheckpoint {
    /// Everything up to here counts as applied; at most the log's last position.
    position: u64,
}

/// List the read models, in the order of rebuilds, with their lag
#[utoipa::path(get, path = "/admin/projections", operation_id = "listProjections", tag = "projections",
    responses((status = 200, body = schema::Projections)))]
pub(super) async fn list(Models(models): Models) -> Answer<Json<List>> {
    Ok(Json(List { projections: models.list().await? }))
}

/// Look at a read model
#[utoipa::path(get, path = "/admin/projections/{name}", operation_id = "getProjection", tag = "projections",
    params(("name" = String, Path, description = "The projection")),
    responses((status = 200, body = schema::Projection)))]
pub(super) async fn get(Models(models): Models, Path(name): Path<String>) -> Answer<Json<Status>> {
    Ok(Json(models.status(&name).await?))
}

/// Stop a read model for a while
#[utoipa::path(post, path = "/admin/projections/{name}/pause", operation_id = "pauseProjection", tag = "projections",
    params(("name" = String, Path, description = "The projection")),
    responses((status = 200, body = schema::Projection)))]
pub(super) async fn pause(Models(models): Models, Path(name): Path<String>) -> Answer<Json<Status>> {
    models.pause(&name).await?;
    Ok(Json(models.status(&name).await?))
}

/// Let a read model that was stopped go on
#[utoipa::path(post, path = "/admin/projections/{name}/resume", operation_id = "resumeProjection", tag = "projections",
    params(("name" = String, Path, description = "The projection")),
    responses((status = 200, body = schema::Projection)))]
pub(super) async fn resume(Models(models): Models, Path(name): Path<String>) -> Answer<Json<Status>> {
    models.resume(&name).await?;
    Ok(Json(models.status(&name).await?))
}

/// Let a read model that could not go on try again
#[utoipa::path(post, path = "/admin/projections/{name}/recover", operation_id = "recoverProjection",
    tag = "projections", params(("name" = String, Path, description = "The projection")),
    responses((status = 200, body = schema::Projection)))]
pub(super) async fn recover(Models(models): Models, Path(name): Path<String>) -> Answer<Json<Status>> {
    models.recover(&name).await?;
    Ok(Json(models.status(&name).await?))
}

/// List where every lane of every read model is
#[utoipa::path(get, path = "/admin/checkpoints", operation_id = "listCheckpoints", tag = "projections",
    responses((status = 200, body = schema::Checkpoints)))]
pub(super) async fn checkpoints(Models(models): Models) -> Answer<Json<Checkpoints>> {
    Ok(Json(Checkpoints { checkpoints: models.checkpoints().await? }))
}

/// Set where a lane of a read model is
///
/// What lies before is not applied, and what lies after is, once more if it was applied already.
#[utoipa::path(put, path = "/admin/checkpoints/{projection}/{partition}", operation_id = "setCheckpoint",
    tag = "projections", params(("projection" = String, Path, description = "The projection"),
        ("partition" = u32, Path, description = "The lane, from 0")),
    request_body = SetCheckpoint, responses((status = 200, body = schema::Checkpoints)))]
pub(super) async fn set_checkpoint(
    Models(models): Models,
    Path((projection, partition)): Path<(String, u32)>,
    Json(asked): Json<SetCheckpoint>,
) -> Answer<Json<Checkpoints>> {
    models.set_checkpoint(&projection, partition, asked.position).await?;
    let mut checkpoints = models.checkpoints().await?;
    checkpoints.retain(|checkpoint| checkpoint.projection == projection);
    Ok(Json(Checkpoints { checkpoints }))
}
