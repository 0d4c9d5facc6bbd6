//! Commands: what somebody wants to happen, decided once.
//!
//! - [`Command`]: what is asked for; [`Issued`]: the same with all its ids
//! - [`Commands`]: who decides about which command, and what stands before it
//! - [`Decider`]: the pure way to decide, on a state that is folded from the log; [`Handling`]: the other way, with a
//!   transaction in hand
//! - [`pipeline`] and [`middleware`]: what a command passes before it is decided, in the order of their numbers
//! - [`Dispatcher`]: decides in one transaction, and tells what came of it
//! - [`Figures`]: how long that takes
//! - [`ConflictRetry`]: what becomes of a decision that somebody else's has overtaken
//!
//! Behind deciders: `boundary`, which events a decision rests on; `fold`, the state that they make; `codec`, between an
//! author's events and those of the log, on `variant`, how serde sees an enum; `upcast`, data of older versions, brought up
//! to date as they are read; `snapshots`, states of long histories, kept.
//!
//! - `span`: what is told of every decision to whoever listens
//! - [`testing`]: what authors test with

mod batch;
mod boundary;
mod codec;
mod command;
mod decider;
mod dispatch;
mod figures;
mod fold;
mod given;
mod handlers;
mod handling;
pub mod middleware;
mod outcome;
pub mod pipeline;
mod record;
mod retry;
mod schema;
mod seated;
mod snapshots;
mod span;
pub mod testing;
mod upcast;
mod variant;

pub use boundary::Boundary;
pub(crate) use codec::decode_data;
pub use codec::{DomainEvent, Unreadable, decode, encode};
pub use command::{Command, Issued};
pub use decider::{Decided, Decider, Decision, Moment, Rejection};
pub use dispatch::Dispatcher;
pub use figures::Figures;
pub use fold::{Considered, Folded, decide_in, fold_in};
pub use handlers::Commands;
pub use handling::Handling;
pub use outcome::{CommandResult, Deferred, Dispatched, Outcome};
pub use record::{CommandStatus, State};
pub use retry::{ConflictRetry, Ended, RETRY_POOL};
pub use schema::COMPONENT;
pub use snapshots::{MAX_SNAPSHOTS, Snapshots};
pub use upcast::Upcasters;

/// Longest payload, and longest result.
pub const MAX_VALUE_BYTES: usize = 64 << 10;
/// Longest name of a command's type.
pub const MAX_NAME_BYTES: usize = 128;
/// Longest id of a command, a correlation, a cause, a user or a tenant.
pub const MAX_ID_BYTES: usize = 256;
