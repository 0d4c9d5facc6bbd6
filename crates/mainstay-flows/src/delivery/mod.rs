//! What leaves a bounded context, and what comes in from others.
//!
//! - [`publications`]: events for other contexts, each tracked until it was delivered or is a dead letter
//! - [`inbox`]: events of other contexts, each taken once

pub mod inbox;
pub mod publications;
