//! What other contexts hear of orders.
//!
//! - `contract`: the public event, and how it is made of one of our own
//! - `targets`: who hears of it, and how: inventory in the same store, notifications by signed webhook
//!
//! A projection publishes every submitted order, once for each target. What becomes of it is tracked:
//! `mainstay().publisher().status(event_id)` has a row for each target.

mod contract;
mod targets;

pub use contract::{Item, OrderPlaced};
pub(crate) use targets::targets;
pub use targets::{INVENTORY, NOTIFICATIONS, ORDER_INTEGRATION, notifications_at};
