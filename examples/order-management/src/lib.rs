//! An application on Mainstay: orders, and the stock that they need.
//!
//! - [`orders`]: an order is drafted, submitted and confirmed, or cancelled
//! - [`inventory`]: products have stock, of which orders reserve some of several products or of none
//!
//! All of it is pure: deciders, events and states. Whoever runs it registers the deciders and opens a store.

pub mod inventory;
pub mod orders;
