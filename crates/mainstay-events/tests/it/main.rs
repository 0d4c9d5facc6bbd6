//! How the log behaves, on every kind of store.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod append;
mod conditions;
mod crash;
mod dcb;
mod faults;
mod following;
mod groups;
mod history;
mod id_spaces;
mod idempotency;
mod keeping;
mod ledger;
mod nodes;
mod outages;
mod power_loss;
mod reading;
mod support;
mod transactions;
