//! What can happen to an order.

use mainstay::flows::commands::{DomainEvent, Upcasters};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// An event of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all_fields = "camelCase")]
pub enum OrderEvent {
    /// It was begun.
    OrderCreated {
        /// The order.
        order_id: String,
        /// Whose it is.
        customer_id: String,
    },
    /// Something was put into it.
    OrderItemAdded {
        /// The order.
        order_id: String,
        /// What, and how many more.
        item: Line,
    },
    /// Something was taken out of it.
    OrderItemRemoved {
        /// The order.
        order_id: String,
        /// What.
        product_id: String,
    },
    /// It was ordered. Its first version did not say who the customer was at that time.
    OrderSubmitted {
        /// The order.
        order_id: String,
        /// Who ordered.
        customer: Customer,
        /// What.
        items: Vec<Line>,
        /// What it costs.
        total_cents: i64,
    },
    /// It was accepted.
    OrderConfirmed {
        /// The order.
        order_id: String,
    },
    /// It was dropped.
    OrderCancelled {
        /// The order.
        order_id: String,
        /// Why.
        reason: String,
    },
}

/// Something of which an order has some.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// What.
    pub product_id: String,
    /// How many.
    pub quantity: i64,
    /// What one costs.
    pub unit_price_cents: i64,
}

/// Who ordered, as they were when they did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Customer {
    /// Which customer.
    pub id: String,
    /// Their name, where it is known.
    pub name: Option<String>,
    /// Their address, where it is known.
    pub email: Option<String>,
}

impl OrderEvent {
    /// The order that it happened to.
    pub fn order_id(&self) -> &str {
        match self {
            Self::OrderCreated { order_id, .. }
            | Self::OrderItemAdded { order_id, .. }
            | Self::OrderItemRemoved { order_id, .. }
            | Self::OrderSubmitted { order_id, .. }
            | Self::OrderConfirmed { order_id }
            | Self::OrderCancelled { order_id, .. } => order_id,
        }
    }
}

impl DomainEvent for OrderEvent {
    fn tags(&self) -> Vec<String> {
        let mut tags = vec![format!("order:{}", self.order_id())];
        if let Self::OrderCreated { customer_id: id, .. }
        | Self::OrderSubmitted { customer: Customer { id, .. }, .. } = self
        {
            tags.push(format!("customer:{id}"));
        }
        tags
    }

    fn stream(&self) -> Option<(String, String)> {
        Some(("Order".to_owned(), self.order_id().to_owned()))
    }

    fn upcasters() -> &'static Upcasters {
        static UPCASTERS: LazyLock<Upcasters> = LazyLock::new(|| {
            Upcasters::new().on("OrderSubmitted", 1, |mut data: Value| {
                data["customer"] = json!({"id": data["customerId"]});
                data
            })
        });
        &UPCASTERS
    }
}
