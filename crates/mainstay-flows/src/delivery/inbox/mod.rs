//! Events of other contexts, as they come over HTTP: verified, and given to a handler once.
//!
//! - [`Inbox`]: who may send, and what was received
//! - [`Received`]: an event whose sender is known
//! - [`Receiver`]: an inbox with its handler, as a service of tower: `Router::route_service("/events", receiver)`
//! - `Incoming`: the event as an extractor of axum, for handlers with a state of their own (feature `axum`)
//!
//! A sender sends again until it hears that an event came, so that an event may come often. Its key is written in the
//! transaction of the handler: both are there, or neither. The key is part of what is signed; somebody who sends a
//! stranger's request again, as it was or under another key, changes nothing.

mod claim;
#[cfg(feature = "axum")]
mod incoming;
mod receive;
mod receiver;
mod wire;

pub use claim::COMPONENT;
#[cfg(feature = "axum")]
pub use incoming::{Incoming, Refused};
pub use receive::{Inbox, Received, Reception};
pub use receiver::Receiver;

/// Longest body that is read.
pub const MAX_BODY_BYTES: usize = 256 << 10;
/// Longest key.
pub const MAX_KEY_BYTES: usize = 512;
