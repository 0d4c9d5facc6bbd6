//! The behaviour of the workshop, alike on every kind of store.
#![allow(clippy::unwrap_used, reason = "clippy knows test functions, but not the functions that they call")]

mod asking;
mod bench_of_tools;
mod circuits;
mod containment;
mod crash;
mod crons;
mod disk;
mod full;
mod http;
mod ledger;
mod listing;
mod names;
mod nodes;
mod outages;
mod platform;
mod pools;
mod pull_workers;
mod reserved;
mod running;
mod telling;
mod time;
