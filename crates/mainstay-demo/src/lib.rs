//! What `mainstay demo` does: a shop at work, whose provider of payments is not always well.
//!
//! - `schedule`: when the provider is well, slow and down
//! - `provider`: the provider, a process of its own with its own books
//! - `traffic`: customers
//! - `operator`: somebody who minds the shop
//! - `stage`: all of it, and the server with its console
//! - `tally`, `look`, `health`: what can be seen of it
//! - `changes`: what has changed between two looks, in words
//! - `play`: lets it run, and tells what happens
//! - `screen`, `tour`: how a person is told
//! - `proof`: what is claimed, held against the log and the books
//! - `experiments`: what `mainstay demo --facts` does instead

mod changes;
mod error;
pub mod experiments;
mod health;
mod look;
mod operator;
mod play;
mod proof;
mod provider;
mod schedule;
mod screen;
mod stage;
mod tally;
mod tour;
mod traffic;

pub use error::{Error, Failure, Result};
pub use play::{Plan, Until, play};
pub use proof::Facts;
pub use provider::provide;
pub use screen::Kind as ScreenKind;
