//! The behaviour of the guards.
#![allow(clippy::unwrap_used, reason = "clippy knows test functions, but not the functions that they call")]

mod circuits;
mod concurrency;
mod limits;
mod once;
mod retry;
