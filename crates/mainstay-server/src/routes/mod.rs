//! The routes: one file per resource, each with a function `routes()` that lists its handlers and their permissions.
//!
//! - `events`: the log
//! - `health`: whether the server lives, and whether it can work
//! - `metrics`: figures for Prometheus
//! - `openapi`: the description of all of these
//! - `tokens`: who may do what
//! - `work`: the workshop
//!
//! A further resource is a further file and a line in [`all`].

#![allow(unused_qualifications, reason = "what utoipa makes of the parameters of a query qualifies its type")]

mod events;
mod health;
mod metrics;
mod openapi;
mod tokens;
mod work;

pub use tokens::{Created, NewToken, TokenList};

use crate::Routes;

/// Every route of the server.
pub(crate) fn all() -> Routes {
    events::routes()
        .and(health::routes())
        .and(metrics::routes())
        .and(openapi::routes())
        .and(tokens::routes())
        .and(work::routes())
}
