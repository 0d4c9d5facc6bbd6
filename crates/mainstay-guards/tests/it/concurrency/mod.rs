//! Concurrency limits.

mod contract;
mod memory;
mod redis;
mod store;
