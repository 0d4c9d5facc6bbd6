//! What there is, as far as a decision's boundary shows it.

use super::event::{InventoryEvent, Quantity};
use std::collections::BTreeMap;

/// Products and reservations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stock {
    /// The products, by id.
    pub products: BTreeMap<String, Product>,
    /// The reservations, by id.
    pub reservations: BTreeMap<String, Reservation>,
}

/// A product.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Product {
    /// What it is called on its shelf.
    pub sku: String,
    /// What one costs.
    pub unit_price_cents: i64,
    /// How many can be had.
    pub available: i64,
    /// How many are held for orders.
    pub reserved: i64,
}

/// A reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// How far it has come.
    pub status: ReservationStatus,
    /// For which order it is.
    pub order_id: String,
    /// What it holds.
    pub items: Vec<Quantity>,
    /// When it expires unless it is confirmed.
    pub expires_at: i64,
}

/// How far a reservation has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReservationStatus {
    /// It waits to be confirmed.
    Pending,
    /// It holds for good.
    Confirmed,
    /// It was given up.
    Released,
    /// Nobody confirmed it in time.
    Expired,
}

impl Stock {
    pub(super) fn evolve(&mut self, event: InventoryEvent) {
        match event {
            InventoryEvent::ProductCreated { product_id, sku, unit_price_cents } => {
                let product = Product { sku, unit_price_cents, available: 0, reserved: 0 };
                self.products.insert(product_id, product);
            }
            InventoryEvent::StockAdded { product_id, quantity } => {
                self.change(&product_id, |product| product.available += quantity);
            }
            InventoryEvent::StockReserved { reservation_id, order_id, items, expires_at } => {
                self.hold(&items, 1);
                let status = ReservationStatus::Pending;
                self.reservations.insert(reservation_id, Reservation { status, order_id, items, expires_at });
            }
            InventoryEvent::ReservationFailed { .. } => {}
            InventoryEvent::ReservationConfirmed { reservation_id, .. } => {
                self.settle(&reservation_id, ReservationStatus::Confirmed);
            }
            InventoryEvent::ReservationReleased { reservation_id, items, .. } => {
                self.hold(&items, -1);
                self.settle(&reservation_id, ReservationStatus::Released);
            }
            InventoryEvent::ReservationExpired { reservation_id, items, .. } => {
                self.hold(&items, -1);
                self.settle(&reservation_id, ReservationStatus::Expired);
            }
        }
    }

    /// Holds pieces, or lets them go.
    fn hold(&mut self, items: &[Quantity], sign: i64) {
        for item in items {
            self.change(&item.product_id, |product| {
                product.available -= sign * item.quantity;
                product.reserved += sign * item.quantity;
            });
        }
    }

    /// A product that is outside of the boundary is nobody's business here.
    fn change(&mut self, product_id: &str, change: impl FnOnce(&mut Product)) {
        if let Some(product) = self.products.get_mut(product_id) {
            change(product);
        }
    }

    fn settle(&mut self, reservation_id: &str, status: ReservationStatus) {
        if let Some(reservation) = self.reservations.get_mut(reservation_id) {
            reservation.status = status;
        }
    }
}
