//! Notifications: what customers are to be told.
//!
//! - `decide`: each is asked for once; whoever sends them follows the events
//! - `service`: the service that sends them, a program of its own which hears of orders by webhook

mod decide;
mod service;

pub use decide::{NotificationCommand, NotificationEvent, Notifications};
pub use service::NotificationService;
