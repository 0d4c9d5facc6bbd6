//! An application on Mainstay: orders, and the stock that they need.
//!
//! - [`orders`]: an order is drafted, submitted and confirmed, or cancelled
//! - [`inventory`]: products have stock, of which orders reserve some of several products or of none
//! - [`notifications`]: what customers are told
//! - [`payments`]: what an order costs, and the provider that moves the money
//! - [`projections`]: what is read
//! - [`processes`]: what follows from what has happened
//! - [`integration`]: what other contexts hear of orders
//!
//! What is decided is pure: deciders, events and states. [`OrderManagement`] opens everything on a store.

mod app;
pub mod integration;
pub mod inventory;
pub mod notifications;
pub mod orders;
pub mod payments;
pub mod processes;
pub mod projections;

pub use app::{Neighbours, OrderManagement};
