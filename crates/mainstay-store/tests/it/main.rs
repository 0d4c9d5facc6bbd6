//! The store's behaviour, on every kind of store.

#![allow(clippy::unwrap_used, reason = "clippy knows test functions, but not the functions that they call")]

mod crash;
mod dialect;
mod disk_faults;
mod groups;
mod lend;
mod migrations;
mod opening;
mod outages;
mod pairs;
mod power_loss;
mod reads;
mod tls;
mod transactions;
