//! Replay: filling a read model anew (items 192 to 213).
//!
//! A replay is a row, and a chunk of it is an item of work: one transaction that holds the row, applies events as if they
//! were live, moves the row on and enqueues the next chunk. Whoever runs a chunk twice finds the row elsewhere and does
//! nothing.
//!
//! | from | what | to |
//! |---|---|---|
//! | – | trigger | running, or completed when there is nothing to do |
//! | running | last chunk | completed |
//! | running | pause | paused |
//! | running, paused | cancel | cancelled |
//! | running | a chunk's attempts are used up | failed |
//! | paused | trigger without a start, resume | running |
//! | failed | trigger without a start | running |
//!
//! *In place*, a projection is `rebuilding`: its lanes are held and move with the replay, so that the read model and the
//! checkpoints always fit, wherever it is stopped. *Beside*, the next generation of managed tables is filled while the
//! lanes go on with the one that readers see; the switch is one transaction that holds the lanes.
//!
//! - `row`: the table
//! - `trigger`, `control`: what an operator does
//! - `chunk`: one chunk
//! - `switch`: the end of a replay, in place or beside
//! - `progress`: how far it is

mod chunk;
mod control;
mod progress;
mod row;
mod switch;
mod trigger;

pub use chunk::CHUNK_BUDGET;
pub(crate) use chunk::functions;
pub use control::Cancelled;
pub use progress::Progress;
pub use row::{Replay, ReplayStatus};
pub use trigger::{Rebuild, Triggered};
