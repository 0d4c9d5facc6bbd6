//! The store's behaviour, on every kind of store.

#![allow(clippy::unwrap_used, reason = "clippy knows test functions, but not the functions that they call")]

mod dialect;
mod lend;
mod migrations;
mod opening;
mod outages;
mod transactions;
