//! What can be wanted of an order.

use super::event::Customer;
use serde::{Deserialize, Serialize};

/// A command about an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all_fields = "camelCase")]
pub enum OrderCommand {
    /// Begin one.
    CreateOrder {
        /// The order.
        order_id: String,
        /// Whose it is to be.
        customer_id: String,
    },
    /// Put something into the draft; more of it if it is there already.
    AddOrderItem {
        /// The order.
        order_id: String,
        /// What.
        product_id: String,
        /// How many.
        quantity: i64,
        /// What one costs.
        unit_price_cents: i64,
    },
    /// Take something out of the draft.
    RemoveOrderItem {
        /// The order.
        order_id: String,
        /// What.
        product_id: String,
    },
    /// Order it.
    SubmitOrder {
        /// The order.
        order_id: String,
        /// Who orders, as they are today.
        customer: Customer,
    },
    /// Accept it.
    ConfirmOrder {
        /// The order.
        order_id: String,
    },
    /// Drop it.
    CancelOrder {
        /// The order.
        order_id: String,
        /// Why.
        reason: String,
    },
}

impl OrderCommand {
    /// The order that it is about.
    pub fn order_id(&self) -> &str {
        match self {
            Self::CreateOrder { order_id, .. }
            | Self::AddOrderItem { order_id, .. }
            | Self::RemoveOrderItem { order_id, .. }
            | Self::SubmitOrder { order_id, .. }
            | Self::ConfirmOrder { order_id }
            | Self::CancelOrder { order_id, .. } => order_id,
        }
    }
}
