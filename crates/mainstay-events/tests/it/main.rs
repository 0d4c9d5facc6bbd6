//! How the log behaves, on every kind of store.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod append;
mod conditions;
mod dcb;
mod idempotency;
mod keeping;
mod reading;
mod support;
mod transactions;
