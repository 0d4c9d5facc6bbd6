//! The inbox of dead letters: everything that failed for good, whatever it was, and what is done about it.
//!
//! Letters of all [kinds](Kind) are rows of one table, which [`crate::inbox`] owns; each kind has a [`Source`] that keeps
//! the rest. Here they are looked at, tried again, ignored and purged, one by one or by the hundred thousand. A bulk
//! operation is an [`Operation`]: a row that says who wanted what, what it would touch, how far it is and what came of it.
//!
//! - `opened`: the inbox of a store
//! - `look`: lists, counts, groups, and one letter with its history
//! - `acts`: actions, which sources carry out
//! - `single`: what is done about one letter
//! - `operations`: what is done about many
//! - `upkeep`: what is done by itself

mod acts;
mod look;
mod opened;
mod operations;
mod schema;
mod single;
mod upkeep;

pub use crate::inbox::{Attempt, Counted, Filter, Group, Groups, Kind, Listed, Page, Source, Status};
pub use acts::Action;
pub use look::{Detail, Stats};
pub use opened::{DeadLetters, Sources};
pub use operations::{CHUNK, Failed, Operation, OperationStatus, PREVIEW_LASTS, RETENTION};
pub use schema::COMPONENT;
pub use upkeep::{Again, Tended, Upkeep};

/// The pool of what is done about many letters: one node at a time, so that it slows nobody down.
pub const POOL: &str = "deadLetterPool";
/// Most rows of one page.
pub const MAX_PAGE: usize = crate::MAX_PAGE;
