//! Delivery: what leaves a bounded context, what comes in from others and from the outside world, what goes on for long, and
//! that nothing of it is lost.
//!
//! - [`outbox`]: an action's end becomes an event, in the commit that ends the action
//! - [`appends`]: an event that is appended later, as work, and tried again until it is in
//! - [`intents`]: what was begun is completed, abandoned or listed
//! - [`publications`]: events for other contexts, each tracked until it was delivered or is a dead letter
//! - [`inbox`]: events of other contexts, each taken once
//! - [`Retries`]: how often and how fast, which whoever opens one of them must say

pub mod appends;
pub mod inbox;
pub mod intents;
pub mod outbox;
pub mod publications;
mod retries;

pub use retries::Retries;
