//! The part of the demo about the log: a shop with three lamps.
//!
//! - `facts`: what came out
//! - `chapters`: the experiments
//! - `story`: the telling

mod chapters;
mod facts;
mod story;

pub(super) use chapters::play;
pub(super) use facts::Facts;
#[cfg(test)]
pub(super) use facts::{Done, LastLamp, Payment, RowAndEvent, Seen};
pub(super) use story::chapters as tell;
