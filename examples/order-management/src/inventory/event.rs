//! What can happen to stock.

use mainstay::flows::commands::DomainEvent;
use serde::{Deserialize, Serialize};

/// An event of the inventory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all_fields = "camelCase")]
pub enum InventoryEvent {
    /// There is a new product.
    ProductCreated {
        /// The product.
        product_id: String,
        /// What it is called on its shelf.
        sku: String,
        /// What one costs.
        unit_price_cents: i64,
    },
    /// There is more of it.
    StockAdded {
        /// The product.
        product_id: String,
        /// How many more.
        quantity: i64,
    },
    /// Some are held for an order.
    StockReserved {
        /// The reservation.
        reservation_id: String,
        /// For which order.
        order_id: String,
        /// What, and how many.
        items: Vec<Quantity>,
        /// When it expires unless it is confirmed, in milliseconds since the epoch.
        expires_at: i64,
    },
    /// There were not enough.
    ReservationFailed {
        /// The reservation that was wanted.
        reservation_id: String,
        /// For which order.
        order_id: String,
        /// Of what there were not.
        shortages: Vec<Shortage>,
    },
    /// They are held for good.
    ReservationConfirmed {
        /// The reservation.
        reservation_id: String,
        /// For which order.
        order_id: String,
    },
    /// They are free again.
    ReservationReleased {
        /// The reservation.
        reservation_id: String,
        /// For which order they were.
        order_id: String,
        /// What, and how many.
        items: Vec<Quantity>,
        /// Why.
        reason: String,
    },
    /// They are free again because nobody confirmed.
    ReservationExpired {
        /// The reservation.
        reservation_id: String,
        /// For which order they were.
        order_id: String,
        /// What, and how many.
        items: Vec<Quantity>,
    },
}

/// How many of a product.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Quantity {
    /// The product.
    pub product_id: String,
    /// How many.
    pub quantity: i64,
}

/// Of what there was not enough.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shortage {
    /// The product.
    pub product_id: String,
    /// How many were wanted.
    pub requested: i64,
    /// How many there were.
    pub available: i64,
}

impl DomainEvent for InventoryEvent {
    /// A reservation has the tags of its products, because it changes what there is of them. That it is confirmed does not.
    fn tags(&self) -> Vec<String> {
        let product = |id: &String| format!("product:{id}");
        match self {
            Self::ProductCreated { product_id, .. } | Self::StockAdded { product_id, .. } => {
                vec![product(product_id)]
            }
            Self::StockReserved { reservation_id, order_id, items, .. }
            | Self::ReservationReleased { reservation_id, order_id, items, .. }
            | Self::ReservationExpired { reservation_id, order_id, items } => {
                let products = items.iter().map(|item| product(&item.product_id));
                of(reservation_id, order_id).into_iter().chain(products).collect()
            }
            Self::ReservationFailed { reservation_id, order_id, .. }
            | Self::ReservationConfirmed { reservation_id, order_id } => {
                of(reservation_id, order_id).to_vec()
            }
        }
    }
}

fn of(reservation_id: &str, order_id: &str) -> [String; 2] {
    [format!("reservation:{reservation_id}"), format!("order:{order_id}")]
}
