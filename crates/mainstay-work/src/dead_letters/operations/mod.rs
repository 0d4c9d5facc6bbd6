//! What is done about many letters: preview, run, progress, cancel.
//!
//! | status | means | what leads on |
//! |---|---|---|
//! | previewed | it is known what it would touch | run, cancel; it expires |
//! | running | a chain of items of work does it, a chunk of letters in a transaction each | its end, cancel |
//! | done | all of it was done, or could not be | |
//! | cancelled | somebody has stopped it; what was done stays | |
//! | failed | a chunk could not be done for good | |
//!
//! An operation touches letters up to the highest number that there was when it was previewed, each once: what comes later or
//! fails again is left alone. A chunk's letters are looked for on a snapshot; what is done about them, where the operation is
//! and the item that goes on are one transaction, so that a crash loses and doubles nothing.
//!
//! - `row`: the table
//! - `control`: what an operator does
//! - `survey`: what it would touch
//! - `chunk`: one chunk

mod chunk;
mod control;
pub(super) mod row;
mod survey;

pub use chunk::CHUNK;
pub(super) use chunk::functions;
pub use control::{PREVIEW_LASTS, RETENTION};
pub use row::{Failed, Operation, OperationStatus};
