//! A tower layer: a service of HTTP behind rate limits.
//!
//! - `rule`: one limit, and whose budget a request takes from
//! - `rules`: all limits of a layer, and what they say to a request
//! - `fields`: what clients are told of their budgets
//! - `refusal`: what a request is answered that is not let through
//! - `service`: the layer, its service and its future

mod fields;
mod refusal;
mod rule;
mod rules;
mod service;

pub use fields::fields;
pub use rule::Rule;
pub use rules::{MAX_RULES, WhenAway};
pub use service::{Limited, Limiting, RateLimitLayer};
