//! What tests of Mainstay stand on: real servers, every kind of store, virtual time, and things that fail on purpose.
//!
//! Used from tests only. Nothing here is compiled into a release.

pub mod crash;
pub mod disk;
pub mod history;
pub mod postgres;
pub mod proxy;
pub mod redis;
mod shim;
pub mod stores;
pub mod time;
