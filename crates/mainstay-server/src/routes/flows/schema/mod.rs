//! How the API's description shows what the offices take and give: a file for each file of routes.

#![allow(dead_code, reason = "only their descriptions are used")]

pub(in crate::routes) mod commands;
pub(in crate::routes) mod failures;
pub(in crate::routes) mod intents;
pub(in crate::routes) mod projections;
pub(in crate::routes) mod publications;
pub(in crate::routes) mod replays;
