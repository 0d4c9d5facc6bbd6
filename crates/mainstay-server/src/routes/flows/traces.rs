//! `/admin/traces/{correlationId}`.

use super::Models;
use crate::{Answer, App, Json, Path};
use axum::extract::State;
use mainstay_api::EventFlow;
use mainstay_flows::event_flow;

/// Follow what belongs together, from the command through events to read models
#[utoipa::path(get, path = "/admin/traces/{correlationId}", operation_id = "getTrace", tag = "traces",
    params(("correlationId" = String, Path, description = "What belongs together")),
    responses((status = 200, body = EventFlow)))]
pub(super) async fn get(
    State(app): State<App>,
    Models(models): Models,
    Path(correlation_id): Path<String>,
) -> Answer<Json<EventFlow>> {
    Ok(Json(event_flow(app.log(), app.commands(), &models, &correlation_id).await?))
}
