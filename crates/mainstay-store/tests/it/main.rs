//! The store's behaviour, on every kind of store.

#![allow(clippy::unwrap_used, reason = "clippy knows test functions, but not the functions that they call")]

mod crash;
mod dialect;
mod groups;
mod log_growth;
mod tls;
mod disk_faults;
mod pairs;
mod power_loss;
mod transactions;
