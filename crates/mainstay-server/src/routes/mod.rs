//! The routes: one file per resource, each with a function `routes()` that lists its handlers and their permissions.
//!
//! - `audit`: who did what
//! - `config`: how this process was started
//! - `dead_letters`: everything that failed for good
//! - `errors`: a page for every error code
//! - `events`: the log
//! - `flows`: commands
//! - `guards`: rate limits and circuits
//! - `health`: whether the server lives, and whether it can work
//! - `metrics`: figures for Prometheus
//! - `openapi`: the description of all of these
//! - `system`: how everything is, on one page
//! - `tokens`: who may do what
//! - `work`: the workshop
//!
//! A further resource is a further file and a line in [`all`].

#![allow(unused_qualifications, reason = "what utoipa makes of the parameters of a query qualifies its type")]

mod audit;
mod config;
mod dead_letters;
mod errors;
mod events;
mod flows;
mod guards;
mod health;
mod metrics;
mod openapi;
mod system;
mod tokens;
mod work;

pub(crate) use flows::failure_cursor;
pub(crate) use work::{LOOKED_AT, item_cursor, work_at};

pub use tokens::{Created, NewToken, RotateToken, Rotated, SignedOut, TokenList};

use crate::{Answer, Problem, Routes};

/// Every route of the server.
pub(crate) fn all() -> Routes {
    audit::routes()
        .and(config::routes())
        .and(dead_letters::routes())
        .and(errors::routes())
        .and(events::routes())
        .and(flows::routes())
        .and(guards::routes())
        .and(health::routes())
        .and(metrics::routes())
        .and(openapi::routes())
        .and(system::routes())
        .and(tokens::routes())
        .and(work::routes())
}

/// Most rows of a page, unless the client says otherwise (item 268).
const USUAL_PAGE: usize = 50;
/// Most rows of a page.
const MAX_PAGE: usize = 1_000;

/// How many rows a page may have.
fn limit(asked: Option<usize>) -> Answer<usize> {
    let limit = asked.unwrap_or(USUAL_PAGE);
    if (1..=MAX_PAGE).contains(&limit) {
        return Ok(limit);
    }
    Err(Problem::invalid_parameter("limit", "must be a number from 1 to 1000"))
}
