//! Projections: read models that follow the log, each event exactly once.
//!
//! A [`Projection`] is a definition: what it is called, which events it takes, and one handler that writes to tables of
//! the author's in a transaction. Its checkpoint is set in the same transaction, so an event's effect is there once,
//! however often it is tried and on however many nodes.
//!
//! - `definition`, `lanes`, `tables`, `registry`: what an author says
//! - `lifecycle`, `checkpoints`, `marks`, `status`: how a projection is doing
//! - `projector`, `apply`, `watcher`, `running`: following the log; `span`, what is told of that
//! - `wait`, `trace`: what is in a read model
//! - [`failures`]: events that a handler cannot take
//! - [`replay`]: filling a read model anew

mod apply;
mod checkpoints;
mod definition;
pub mod failures;
mod lanes;
mod lifecycle;
mod marks;
mod opened;
mod projector;
mod registry;
pub mod replay;
mod running;
mod schema;
mod span;
mod status;
mod tables;
mod trace;
mod wait;
mod watcher;

pub use checkpoints::Checkpoint;
pub use definition::{Category, Complexity, Kind, Projection};
pub use failures::{Aside, Poison, Quarantined};
pub use lanes::By;
pub use lifecycle::{Lifecycle, Move};
pub use opened::Projections;
pub use registry::Registry;
pub use running::Projecting;
pub use schema::COMPONENT;
pub use status::Status;
pub use tables::Model;

/// Longest name of a projection.
pub const MAX_NAME_BYTES: usize = 64;
/// Most lanes of a projection.
pub const MAX_LANES: u32 = 64;
/// Most events of one chunk.
pub const MAX_CHUNK: u32 = 5_000;
/// Most rows of one page of letters, poison events or replays.
pub const MAX_PAGE: usize = 1_000;

/// What is woken when projections were paused, resumed, moved or rebuilt.
pub(crate) fn changes_topic() -> mainstay_store::Topic {
    mainstay_store::Topic::new("mainstay.projections").expect("a constant that fits")
}
