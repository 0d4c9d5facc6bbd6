//! Delivery: what comes back from the outside world, what goes on for long, and that nothing of it is lost.
//!
//! - [`outbox`]: an action's end becomes an event, in the commit that ends the action
//! - [`appends`]: an event that is appended later, as work, and tried again until it is in
//! - [`intents`]: what was begun is completed, abandoned or listed
//! - [`Retries`]: how often and how fast, which whoever opens one of them must say

pub mod appends;
pub mod intents;
pub mod outbox;
mod retries;

pub use retries::Retries;
