//! `/admin/replays`, and how one is begun.

use super::Models;
use super::schema::replays as schema;
use crate::routes::limit;
use crate::{Answer, Json, Path, Query};
use mainstay_flows::projections::replay::{Cancelled, Progress, Rebuild, Triggered};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// How a read model is filled anew.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NewReplay {
    /// Begins after this position. Without it, the latest replay that failed or was paused goes on, or a new one begins at 0.
    from_global_position: Option<u64>,
    /// Events of one chunk, instead of what the projection's complexity says.
    #[schema(minimum = 1, maximum = 5000)]
    chunk_size: Option<u32>,
}

/// How all read models are filled anew.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NewReplays {
    /// Events of one chunk, instead of what the projections' complexity says.
    #[schema(minimum = 1, maximum = 5000)]
    chunk_size: Option<u32>,
}

/// Which replays are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// Those that have ended instead, the last end first.
    #[serde(default)]
    #[param(required = false)]
    ended: bool,
    /// At most so many that have ended.
    #[param(minimum = 1, maximum = 1000, default = 50)]
    limit: Option<usize>,
}

/// Replays.
#[derive(Debug, Serialize)]
pub(super) struct Listed {
    replays: Vec<Progress>,
}

/// What came of beginning all.
#[derive(Debug, Serialize)]
pub(super) struct All {
    replays: Vec<Begun>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Begun {
    projection_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    replay_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_events: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Fill a read model anew
#[utoipa::path(post, path = "/admin/projections/{name}/replays", operation_id = "triggerReplay", tag = "replays",
    params(("name" = String, Path, description = "The projection")), request_body = NewReplay,
    responses((status = 200, body = schema::Triggered)))]
pub(super) async fn trigger(
    Models(models): Models,
    Path(name): Path<String>,
    Json(asked): Json<NewReplay>,
) -> Answer<Json<Triggered>> {
    let rebuild = Rebuild::of(name);
    let rebuild = asked.from_global_position.into_iter().fold(rebuild, Rebuild::from);
    let rebuild = asked.chunk_size.into_iter().fold(rebuild, Rebuild::chunk_size);
    Ok(Json(models.trigger_rebuild(rebuild).await?))
}

/// Fill all read models anew that can be, in the order of the registry
#[utoipa::path(post, path = "/admin/replays", operation_id = "triggerReplays", tag = "replays",
    request_body = NewReplays, responses((status = 200, body = schema::TriggeredAll)))]
pub(super) async fn trigger_all(Models(models): Models, Json(asked): Json<NewReplays>) -> Answer<Json<All>> {
    let all = models.rebuild_all(asked.chunk_size).await;
    let begun = |(projection_name, answer): (String, mainstay_flows::Result<Triggered>)| match answer {
        Ok(Triggered { replay_id, total_events }) => Begun {
            projection_name,
            replay_id: Some(replay_id),
            total_events: Some(total_events),
            code: None,
            error: None,
        },
        Err(error) => Begun {
            projection_name,
            replay_id: None,
            total_events: None,
            code: Some(error.code()),
            error: Some(error.to_string()),
        },
    };
    Ok(Json(All { replays: all.into_iter().map(begun).collect() }))
}

/// List replays that run or are paused, or those that have ended
///
/// The last hundred of each projection are kept.
#[utoipa::path(get, path = "/admin/replays", operation_id = "listReplays", tag = "replays", params(Wanted),
    responses((status = 200, body = schema::Replays)))]
pub(super) async fn list(Models(models): Models, Query(wanted): Query<Wanted>) -> Answer<Json<Listed>> {
    let limit = limit(wanted.limit)?;
    let replays = match wanted.ended {
        true => models.ended_rebuilds(limit).await?,
        false => models.active_rebuilds().await?,
    };
    Ok(Json(Listed { replays }))
}

/// Look how far a replay is
#[utoipa::path(get, path = "/admin/replays/{replayId}", operation_id = "getReplay", tag = "replays",
    params(("replayId" = String, Path, description = "The replay")),
    responses((status = 200, body = schema::Replay)))]
pub(super) async fn get(Models(models): Models, Path(replay_id): Path<String>) -> Answer<Json<Progress>> {
    Ok(Json(models.rebuild_status(&replay_id).await?))
}

/// End a replay; the chunk that is under way may end
#[utoipa::path(post, path = "/admin/replays/{replayId}/cancel", operation_id = "cancelReplay", tag = "replays",
    params(("replayId" = String, Path, description = "The replay")),
    responses((status = 200, body = schema::Cancelled)))]
pub(super) async fn cancel(Models(models): Models, Path(replay_id): Path<String>) -> Answer<Json<Cancelled>> {
    Ok(Json(models.cancel_rebuild(&replay_id).await?))
}

/// Stop a replay for a while
#[utoipa::path(post, path = "/admin/replays/{replayId}/pause", operation_id = "pauseReplay", tag = "replays",
    params(("replayId" = String, Path, description = "The replay")),
    responses((status = 200, body = schema::Replay)))]
pub(super) async fn pause(Models(models): Models, Path(replay_id): Path<String>) -> Answer<Json<Progress>> {
    models.pause_rebuild(&replay_id).await?;
    Ok(Json(models.rebuild_status(&replay_id).await?))
}

/// Let a replay go on that was paused
#[utoipa::path(post, path = "/admin/replays/{replayId}/resume", operation_id = "resumeReplay", tag = "replays",
    params(("replayId" = String, Path, description = "The replay")),
    responses((status = 200, body = schema::Replay)))]
pub(super) async fn resume(Models(models): Models, Path(replay_id): Path<String>) -> Answer<Json<Progress>> {
    models.resume_rebuild(&replay_id).await?;
    Ok(Json(models.rebuild_status(&replay_id).await?))
}
