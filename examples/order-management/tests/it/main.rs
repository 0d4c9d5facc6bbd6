//! The domain: every decision, and every code with which a command is rejected. And the application that runs it.
#![allow(clippy::unwrap_used, reason = "clippy knows test functions, but not the functions that they call")]

mod app;
mod notifications;
mod orders;
mod payments;
mod products;
mod reservations;
mod together;
