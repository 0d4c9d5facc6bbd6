//! The behaviour of the offices, alike on every kind of store.
#![allow(clippy::unwrap_used, reason = "clippy knows test functions, but not the functions that they call")]

mod causes;
mod commands;
mod dead_letters;
mod deciders;
mod delivery;
mod projections;
mod replay;
mod whole;
