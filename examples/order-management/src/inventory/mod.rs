//! Inventory: products have stock, of which orders reserve some.
//!
//! A reservation is `pending → confirmed | released | expired`, and `confirmed → released`. It covers several products or
//! none: its decision rests on the events of all of them at once, and of no other.
//!
//! - `event`: what can happen
//! - `stock`: what there is
//! - `products`: decides about products
//! - `reservations`: decides about reservations
//! - `demand`: what placed orders want

mod demand;
mod event;
mod products;
mod reservations;
mod stock;

pub(crate) use demand::note_demand;
pub use demand::{COMPONENT, demand};
pub use event::{InventoryEvent, Quantity, Shortage};
pub use products::{ProductCommand, Products};
pub use reservations::{ReservationCommand, Reservations};
pub use stock::{Product, Reservation, ReservationStatus, Stock};

/// How long a reservation waits to be confirmed.
pub const RESERVATION_TTL_MS: i64 = 60 * 60 * 1_000;
/// Most pieces that are added or reserved at once.
pub const MAX_QUANTITY: i64 = 1_000_000;
/// Most products of one reservation: an event has 64 tags, of which one is its reservation's and one its order's.
pub const MAX_PRODUCTS: usize = 62;
/// Highest price of a piece.
pub const MAX_PRICE_CENTS: i64 = 1_000_000_000;
