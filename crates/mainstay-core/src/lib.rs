//! The laws: what every other crate of Mainstay agrees on.
//!
//! Nothing here performs IO, reads a clock or draws randomness of its own; whoever needs the time or a
//! random number passes it in. That is what makes every rule testable at any instant and replayable from a seed.

pub mod addresses;
pub mod backoff;
pub mod circuit;
pub mod clock;
pub mod codes;
pub mod failpoints;
pub mod failure;
pub mod health;
pub mod ids;
pub mod json;
pub mod keys;
pub mod limits;
pub mod measure;
pub mod names;
pub mod query;
pub mod random;
pub mod retry;
pub mod schedule;
pub mod secrets;
pub mod trace;
