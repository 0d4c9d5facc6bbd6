//! `/v1/crons`: work that the clock enqueues.

use super::{Shop, schema};
use crate::masked::Masked;
use crate::{Answer, Json, Path};
use mainstay_work::{Cron, CronStatus, Error, Work};
use serde::Serialize;

/// Crons, by name.
#[derive(Debug, Serialize)]
pub(super) struct Crons {
    crons: Vec<CronStatus>,
}

/// A cron that is gone.
#[derive(Debug, Serialize)]
pub(super) struct Removed {
    name: String,
}

/// List the crons, and when they are due
#[utoipa::path(get, path = "/v1/crons", operation_id = "listCrons", tag = "work",
    responses((status = 200, body = schema::Crons)))]
pub(super) async fn list(Shop(work): Shop) -> Answer<Masked<Crons>> {
    Ok(Masked(Crons { crons: work.crons().await? }))
}

/// Look at a cron
#[utoipa::path(get, path = "/v1/crons/{name}", operation_id = "getCron", tag = "work",
    params(("name" = String, Path, description = "The cron")), responses((status = 200, body = schema::CronStatus)))]
pub(super) async fn get(Shop(work): Shop, Path(name): Path<String>) -> Answer<Masked<CronStatus>> {
    status(&work, name).await
}

/// Make a cron, or change it
///
/// Each tick enqueues the work once, over all nodes, with `{cron, scheduledAt}` as its context. One that is put as it is
/// already keeps its next tick.
#[utoipa::path(put, path = "/v1/crons/{name}", operation_id = "putCron", tag = "work",
    params(("name" = String, Path, description = "The cron: 1 to 128 letters, digits or . _ - : /")),
    request_body = schema::NewCron, responses((status = 200, body = schema::CronStatus)))]
pub(super) async fn put(
    Shop(work): Shop,
    Path(name): Path<String>,
    Json(cron): Json<Cron>,
) -> Answer<Masked<CronStatus>> {
    work.put_cron(Cron { name: name.clone(), ..cron }).await?;
    status(&work, name).await
}

/// Remove a cron; what it has enqueued stays
#[utoipa::path(delete, path = "/v1/crons/{name}", operation_id = "removeCron", tag = "work",
    params(("name" = String, Path, description = "The cron")), responses((status = 200, body = schema::CronRemoved)))]
pub(super) async fn remove(Shop(work): Shop, Path(name): Path<String>) -> Answer<Json<Removed>> {
    work.remove_cron(&name).await?;
    Ok(Json(Removed { name }))
}

/// Let a cron rest
#[utoipa::path(post, path = "/v1/crons/{name}/pause", operation_id = "pauseCron", tag = "work",
    params(("name" = String, Path, description = "The cron")), responses((status = 200, body = schema::CronStatus)))]
pub(super) async fn pause(Shop(work): Shop, Path(name): Path<String>) -> Answer<Masked<CronStatus>> {
    work.pause_cron(&name, true).await?;
    status(&work, name).await
}

/// Let a cron go on from its next tick
#[utoipa::path(post, path = "/v1/crons/{name}/resume", operation_id = "resumeCron", tag = "work",
    params(("name" = String, Path, description = "The cron")), responses((status = 200, body = schema::CronStatus)))]
pub(super) async fn resume(Shop(work): Shop, Path(name): Path<String>) -> Answer<Masked<CronStatus>> {
    work.pause_cron(&name, false).await?;
    status(&work, name).await
}

async fn status(work: &Work, name: String) -> Answer<Masked<CronStatus>> {
    let found = work.crons().await?.into_iter().find(|cron| cron.name == name);
    Ok(Masked(found.ok_or(Error::UnknownCron(name))?))
}
