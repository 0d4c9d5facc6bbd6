//! The testkit's own tests: a tool that finds faults must be seen to find them.

#![allow(clippy::unwrap_used, reason = "clippy knows test functions, but not the functions that they call")]

mod crash;
mod disk;
mod history;
mod postgres;
mod proxy;
mod redis;
