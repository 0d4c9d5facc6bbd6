//! The domain: every decision, and every code with which a command is rejected.
#![allow(clippy::unwrap_used, reason = "clippy knows test functions, but not the functions that they call")]

mod orders;
mod products;
mod reservations;
mod together;
