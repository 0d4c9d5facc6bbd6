//! The store's behaviour, on every kind of store.

#![allow(clippy::unwrap_used, reason = "clippy knows test functions, but not the functions that they call")]

mod backup;
mod crash;
mod dialect;
mod disk_faults;
mod groups;
mod lend;
mod limits;
mod migrations;
mod notes;
mod opening;
mod outages;
mod pairs;
mod power_loss;
mod reads;
mod riding;
mod searches;
mod sql_text;
mod time_and_wakeups;
mod tls;
mod transactions;
