//! Measuring Mainstay: a load generator, and what each verb of `mainstay bench` does with it.
//!
//! The options of each verb, and its report, are the CLI's.
//!
//! The same work done by peers, side by side, is in the workspace `bench/`, which uses this load generator.

pub mod disk;
mod error;
pub mod events;
pub mod limits;
pub mod load;
pub mod operate;
pub mod publications;
pub mod replay;
pub mod store;
pub mod table;
pub mod work;

pub use error::{Error, Failure, Result};
