//! The part of the demo about guards: a shop that is asked for too much, and a service that is not well.
//!
//! - `facts`: what came out
//! - `chapters`: the experiments
//! - `story`: the telling

mod chapters;
mod facts;
mod story;

pub(super) use chapters::play;
pub(crate) use facts::Facts;
#[cfg(test)]
pub(super) use facts::{Outage, Rush};
pub(super) use story::chapters as tell;
