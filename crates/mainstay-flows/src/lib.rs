//! The offices: what an application author writes against. Commands come in, events go out, read models are kept.
//!
//! - [`commands`]: a command is decided and recorded in one transaction
//! - [`delivery`]: what comes back from the outside world, and what goes on for long
//! - [`projections`]: read models that follow the log, each event exactly once
//! - [`delivery`]: events that go to other contexts, and come from them
//! - [`event_flow`]: what belongs together, from the command to the read models
//!
//! # What holds
//! - A command is carried out once for its id: its events, the author's rows and the work that it starts are one
//!   transaction with the record of it.
//! - A read model and its checkpoint are one transaction.
//! - An event that was published is delivered to each of its targets, or is a dead letter.

mod attempts;
pub mod commands;
pub mod delivery;
mod error;
mod flow;
pub mod projections;
mod tenants;

pub use mainstay_work::dead_letters;
pub(crate) use mainstay_work::{completion, service};

pub use error::{CODES, Error, Result, rejected_code};
pub use flow::event_flow;
