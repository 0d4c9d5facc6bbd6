//! The server as its clients meet it, over real connections.

#![allow(clippy::unwrap_used, reason = "clippy knows test functions, but not the functions that they call")]

mod access;
mod admin_work;
mod asking;
mod audit;
mod bounds;
mod client;
mod commands;
mod connections;
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
mod masked;
mod matrix;
mod metrics;
mod one_trace;
mod openapi;
mod problems;
mod projections;
mod publications;
mod pull;
mod reserved;
mod roles;
mod running;
mod scopes;
mod search;
mod shutdown;
mod surface;
mod tenants;
mod test_routes;
mod tls;
mod tokens;
mod trace;
mod work;
