//! The server as its clients meet it, over real connections.

#![allow(clippy::unwrap_used, reason = "clippy knows test functions, but not the functions that they call")]

mod access;
mod admin_work;
mod asking;
mod audit;
mod client;
mod commands;
mod console;
mod dead_letters;
mod events;
mod everybody;
mod exposition;
mod guards;
mod health;
mod intents;
mod limits;
mod logged;
mod metrics;
mod one_trace;
mod openapi;
mod problems;
mod projections;
mod publications;
mod pull;
mod running;
mod shutdown;
mod tenants;
mod test_routes;
mod tls;
mod tokens;
mod trace;
mod work;
