//! The part of the demo about work: what has to be done about an order.
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
pub(super) use facts::{Attempt, Letter, Parcels, Payment};
pub(super) use story::chapters as tell;
