//! `/v1/commands`: the offices.
//!
//! - `commands`: what somebody wants to happen, and what came of it
//! - `problem`: what the offices say, as a problem document
//! - `schema`: how the API's description shows what they take and give

mod commands;
mod problem;
mod schema;

use crate::{Permission, Routes};
use utoipa_axum::routes;

pub(super) fn routes() -> Routes {
    Routes::default()
        .add(Permission::Operator, routes!(commands::dispatch))
        .add(Permission::Reader, routes!(commands::get))
}
