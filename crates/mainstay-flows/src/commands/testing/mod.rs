//! What authors test with: [`Given`] for a decider alone, [`Bench`] for deciders with a log.

#[cfg(feature = "sqlite")]
mod bench;

pub use super::given::{Given, Then};
#[cfg(feature = "sqlite")]
pub use bench::Bench;
