//! Events that a handler cannot take.
//!
//! Failures are counted for each (event, projection) in the database. An event that has failed often enough is passed
//! over, so that later ones go on: with [`Poison`] it is *quarantined*, without it becomes a *dead letter*. Both can be
//! tried again or left for good.
//!
//! - `record`: the table, and what a failure leads to
//! - `key`: the key of an event's rows
//! - `poison`: quarantined events
//! - `letters`: dead letters of projections
//! - `listing`: rows of both in the inbox
//! - `many`: what is done about many of them at once
//! - `count`: how much of both lies aside
//! - `payload`: what their events say
//! - `by_hand`: seeing to a letter outside of Mainstay
//! - `retry`: trying one event again, as work
//! - `source`: failed events as dead letters

mod by_hand;
mod count;
mod key;
mod letters;
mod listing;
mod many;
mod payload;
mod poison;
mod record;
pub(crate) mod retry;
mod source;

pub use count::Aside;
pub use letters::{Letter, LetterFilter, LetterStats, LetterStatus};
pub use payload::MAX_PAYLOADS_BYTES;
pub use poison::{Poison, PoisonEvent, PoisonStats, PoisonStatus, Quarantined};
pub(crate) use record::{
    Verdict, begin_anew, between, forget_generation, leave_out, missing, passed, record, take_over,
};
