//! Circuits: calls to a service that is not well are not made, on any node, until one call has shown that it is well again.
//!
//! - `circuit`: the handle that callers go through; `local`: what is known here
//! - `circuits`: all circuits of a store; `operators`, `runs` and `timer`: what operators, durable runs and the clock do to them
//! - `shared`: what all of these have in common; `interest`: whether anybody asks
//! - `change`: what is written in a transaction, and who is told of it
//! - `keeper`: tells the database what was heard here, and hears from it what others told
//! - `record`: the table
//! - `history`: what circuits have been through
//! - `layer`: a tower service behind a circuit
//!
//! # What holds
//! - A circuit is one for all nodes, and survives them. Its changes are transactions, judged by the database's clock.
//! - Whether a closed circuit lets a call through is known without asking anybody: an atomic that is read. Another node's
//!   change is known here when the database has told, which it does at once, and after [`STALE`] at the latest while it can
//!   be reached. Where nobody asks and all are closed, it is looked for what was not told only now and then.
//! - One probe is out at a time, over all nodes. It is a lease: one that is lost makes room for another.
//! - A success that changes nothing writes nothing. What does change something is written in the background, everything
//!   that was heard meanwhile in one transaction.
//! - While the database is away, what was known last counts, and so do this node's own calls: they open a circuit here at
//!   once, and everywhere when the database is back. Nobody makes a probe meanwhile: what is open stays open. Nobody waits
//!   for the database longer than [`CLAIM_LIMIT`].

mod change;
mod circuit;
#[expect(clippy::module_inception, reason = "the file of the type it is named after")]
mod circuits;
mod figures;
mod history;
mod interest;
mod keeper;
mod layer;
mod local;
mod operators;
mod record;
mod runs;
mod schema;
mod shared;
mod timer;

pub use circuit::Circuit;
pub use circuits::Circuits;
pub use figures::Figures;
pub use history::{Change, MAX_CHANGES};
pub use layer::{CircuitLayer, Guarded};
pub use mainstay_core::circuit::{
    Admission, Answer, Ended, Forced, Gate, Permit, Rate, Rejected, Settings, SettingsError, Slow, Span,
    State, Trip,
};
pub use operators::Force;
pub use record::Status;
pub use runs::RunEnded;
pub use schema::COMPONENT;
pub use timer::Timer;

use circuits::check_name;
use std::time::Duration;

/// How long another node's change may go unnoticed while the database can be reached and somebody asks.
pub const STALE: Duration = Duration::from_secs(1);
/// How long a call that may be the probe waits for the database.
pub const CLAIM_LIMIT: Duration = Duration::from_secs(2);
/// Most circuits of a store that callers name, and as many that a program names: those that it declares, and those that it
/// tells how its own calls ended.
pub const MAX_CIRCUITS: usize = 10_000;
/// Longest name of a circuit.
pub const MAX_NAME_BYTES: usize = 128;
/// Longest name of who forces a circuit, and longest reason.
pub const MAX_REASON_BYTES: usize = 1_024;

/// The entry in the register of codes for calls that a circuit refused.
pub fn open_code() -> &'static mainstay_core::codes::ErrorCode {
    &crate::error::CIRCUIT_OPEN
}
