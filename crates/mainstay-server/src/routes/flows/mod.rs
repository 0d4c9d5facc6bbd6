//! `/v1/commands`, `/v1/publications` and `/v1/intents`, and below `/admin` projections, replays, poison events, their letters and
//! traces: the offices.
//!
//! - `commands`: what somebody wants to happen, and what came of it
//! - `projections`: how read models are doing, and what is done about it
//! - `publications`: events for other contexts, and those that did not come there
//! - `replays`: filling read models anew
//! - `failures`: events that read models could not take
//! - `traces`: what belongs together
//! - `intents`: long operations between two events
//! - `problem`: what the offices say, as a problem document
//! - `schema`: how the API's description shows what they take and give

mod commands;
mod failures;
mod intents;
mod problem;
mod projections;
mod publications;
mod replays;
pub(super) mod schema;
mod traces;

pub(crate) use failures::failure_cursor;

use crate::{App, Permission, Principal, Problem, Role, Routes};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use mainstay_flows::projections::Projections;
use utoipa_axum::routes;

pub(super) fn routes() -> Routes {
    use Permission::{Admin, Operator, Reader};
    Routes::default()
        .add(Operator, routes!(commands::dispatch))
        .add(Reader, routes!(commands::get))
        .add(Reader, routes!(projections::list))
        .add(Reader, routes!(projections::get))
        .add(Operator, routes!(projections::pause))
        .add(Operator, routes!(projections::resume))
        .add(Operator, routes!(projections::recover))
        .add(Reader, routes!(projections::checkpoints))
        .add(Admin, routes!(projections::set_checkpoint))
        .add(Operator, routes!(replays::trigger))
        .add(Operator, routes!(replays::trigger_all))
        .add(Reader, routes!(replays::list))
        .add(Reader, routes!(replays::get))
        .add(Operator.revoking(), routes!(replays::cancel))
        .add(Operator, routes!(replays::pause))
        .add(Operator, routes!(replays::resume))
        .add(Reader, routes!(failures::poison_events))
        .add(Reader, routes!(failures::poison_stats))
        .add(Operator, routes!(failures::unquarantine))
        .add(Operator, routes!(failures::ignore_poison))
        .add(Reader, routes!(failures::letters))
        .add(Reader, routes!(failures::letter_stats))
        .add(Reader, routes!(failures::letter))
        .add(Operator, routes!(failures::retry_letter))
        .add(Operator, routes!(failures::run_letter))
        .add(Operator, routes!(failures::prepare_letter))
        .add(Operator, routes!(failures::complete_letter))
        .add(Operator, routes!(failures::ignore_letter))
        .add(Operator.or(Role::Publisher), routes!(publications::publish))
        .add(Reader, routes!(publications::status))
        .add(Reader, routes!(publications::list))
        .add(Reader, routes!(publications::letters))
        .add(Reader, routes!(publications::letter_stats))
        .add(Reader, routes!(publications::letter))
        .add(Operator, routes!(publications::retry_letter))
        .add(Operator, routes!(publications::ignore_letter))
        .add(Reader, routes!(traces::get))
        .add(Operator, routes!(intents::record))
        .add(Operator, routes!(intents::complete))
        .add(Reader, routes!(intents::orphans))
        .add(Reader, routes!(intents::list))
        .add(Reader, routes!(intents::get))
        .add(Operator, routes!(intents::abandon))
}

/// The read models, for whoever may see all of them: they belong to no tenant.
struct Models(Projections);

impl FromRequestParts<App> for Models {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        Principal::from_request_parts(parts, app).await?.unconfined("A projection")?;
        Ok(Self(app.projections().clone()))
    }
}
