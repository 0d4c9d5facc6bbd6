//! Keeping the log: what an operator does with it as a whole, while it is in use.
//!
//! - `report`: what was found
//! - `walk`: the log and its index, page by page on snapshots
//! - `verify`: is everything as it was written?
//! - `order`, `scopes`: parts of that, what must follow on what
//! - `repair`: makes the index agree with the log again
//! - `erase`: takes away what events say, and leaves that they happened
//! - `epoch`: a log that was restored says so

mod epoch;
mod erase;
mod order;
mod repair;
mod report;
mod scopes;
mod verify;
mod walk;

pub use epoch::{Restored, restore, restore_with};
pub use erase::{Erased, Erasure};
pub use repair::Repaired;
pub use report::{Damage, Problem, Progress, Report, Stage};
