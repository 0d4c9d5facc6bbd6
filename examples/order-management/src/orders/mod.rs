//! Orders: `draft → submitted → confirmed`, and from each of them `→ cancelled`.
//!
//! - `command`: what can be wanted of an order
//! - `event`: what can happen to it
//! - `order`: what it is
//! - `decide`: what is decided

mod command;
mod decide;
mod event;
mod order;

pub use command::OrderCommand;
pub use decide::Orders;
pub use event::{Customer, Line, OrderEvent};
pub use order::{Order, Status};

/// Most lines of an order.
pub const MAX_ITEMS: usize = 100;
/// Most pieces of one line.
pub const MAX_QUANTITY: i64 = 1_000_000;
/// Highest price of a piece.
pub const MAX_PRICE_CENTS: i64 = 1_000_000_000;
