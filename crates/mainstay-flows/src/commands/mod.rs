//! Commands: what somebody wants to happen, decided once.
//!
//! - [`Command`]: what is asked for; [`Issued`]: the same with all its ids
//! - [`Commands`]: which handler decides about which command, and what stands before it
//! - [`pipeline`] and [`middleware`]: what a command passes before it is decided, in the order of their numbers
//! - [`Dispatcher`]: decides in one transaction, and tells what came of it
//! - [`ConflictRetry`]: what becomes of a decision that somebody else's has overtaken

mod command;
mod decision;
mod dispatch;
mod handlers;
mod handling;
pub mod middleware;
mod outcome;
pub mod pipeline;
mod record;
mod retry;
mod schema;

pub use command::{Command, Issued};
pub use decision::Decision;
pub use dispatch::Dispatcher;
pub use handlers::Commands;
pub use handling::Handling;
pub use outcome::{CommandResult, Deferred, Dispatched, Outcome};
pub use record::{CommandStatus, State};
pub use retry::{ConflictRetry, Ended, RETRY_POOL};
pub use schema::COMPONENT;

/// Longest payload, and longest result.
pub const MAX_VALUE_BYTES: usize = 64 << 10;
/// Longest name of a command's type.
pub const MAX_NAME_BYTES: usize = 128;
/// Longest id of a command, a correlation, a cause, a user or a tenant.
pub const MAX_ID_BYTES: usize = 256;
