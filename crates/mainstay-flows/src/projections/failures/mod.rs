//! Events that a handler cannot take.
//!
//! Failures are counted for each (event, projection) in the database. An event that has failed often enough is passed
//! over, so that later ones go on: with [`Poison`] it is *quarantined*, without it becomes a *dead letter*. Both can be
//! tried again or left for good.
//!
//! - `record`: the table, and what a failure leads to
//! - `poison`: quarantined events
//! - `letters`: dead letters of projections
//! - `retry`: trying one event again, as work

mod letters;
mod poison;
mod record;
pub(crate) mod retry;

pub use letters::{Letter, LetterFilter, LetterStats, LetterStatus};
pub use poison::{Poison, PoisonEvent, PoisonStats, PoisonStatus, Quarantined};
pub(crate) use record::{
    Verdict, begin_anew, between, forget_generation, leave_out, passed, record, take_over,
};
