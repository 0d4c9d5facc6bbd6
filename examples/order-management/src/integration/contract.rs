//! The public event. Others build on it, so it says what they need and nothing that may change: no prices of lines, no
//! address of the customer.

use crate::orders::OrderEvent;
use mainstay::flows::delivery::publications::PublicEvent;
use serde::{Deserialize, Serialize};

/// An order was placed. It is ours to deliver; whether it can be is decided later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrderPlaced {
    /// The order.
    pub order_id: String,
    /// Who ordered.
    pub customer_id: String,
    /// What.
    pub items: Vec<Item>,
    /// What it costs.
    pub total_cents: i64,
}

/// How many of a product.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    /// What.
    pub product_id: String,
    /// How many.
    pub quantity: i64,
}

impl OrderPlaced {
    /// Its type for others.
    pub const TYPE: &str = "OrderPlacedIntegration";
    /// The version of its shape for others, whatever that of our own event is.
    pub const VERSION: u32 = 1;

    /// What others see of a submitted order.
    pub(super) fn translate(event: &PublicEvent) -> Result<PublicEvent, String> {
        let OrderEvent::OrderSubmitted { order_id, customer, items, total_cents } = event.decode()? else {
            return Err(format!("{} is no business of others", event.event_type));
        };
        let items =
            items.into_iter().map(|line| Item { product_id: line.product_id, quantity: line.quantity });
        let placed = Self { order_id, customer_id: customer.id, items: items.collect(), total_cents };
        Ok(PublicEvent { schema_version: Self::VERSION, ..event.with(Self::TYPE, &placed)? })
    }
}
