//! The behaviour of the guards.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

mod circuits;
mod concurrency;
mod limits;
mod once;
mod retry;
