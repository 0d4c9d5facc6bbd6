//! What can happen to a payment.

use mainstay::flows::commands::DomainEvent;
use serde::{Deserialize, Serialize};

/// An event of a payment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all_fields = "camelCase")]
pub enum PaymentEvent {
    /// The provider is to charge it.
    PaymentRequested {
        /// The payment.
        payment_id: String,
        /// For which order.
        order_id: String,
        /// How much.
        amount_cents: i64,
    },
    /// The provider has charged it.
    PaymentCompleted {
        /// The payment.
        payment_id: String,
        /// For which order.
        order_id: String,
        /// How much.
        amount_cents: i64,
        /// What the provider calls it.
        receipt: String,
    },
    /// The provider does not want to.
    PaymentDeclined {
        /// The payment.
        payment_id: String,
        /// For which order.
        order_id: String,
        /// Why.
        reason: String,
    },
    /// The provider is to give it back.
    RefundRequested {
        /// The payment.
        payment_id: String,
        /// For which order it was.
        order_id: String,
        /// How much.
        amount_cents: i64,
        /// Why.
        reason: String,
    },
    /// The provider has given it back.
    PaymentRefunded {
        /// The payment.
        payment_id: String,
        /// For which order it was.
        order_id: String,
        /// What the provider calls it.
        receipt: String,
    },
}

impl PaymentEvent {
    fn ids(&self) -> (&str, &str) {
        match self {
            Self::PaymentRequested { payment_id, order_id, .. }
            | Self::PaymentCompleted { payment_id, order_id, .. }
            | Self::PaymentDeclined { payment_id, order_id, .. }
            | Self::RefundRequested { payment_id, order_id, .. }
            | Self::PaymentRefunded { payment_id, order_id, .. } => (payment_id, order_id),
        }
    }
}

impl DomainEvent for PaymentEvent {
    fn tags(&self) -> Vec<String> {
        let (payment_id, order_id) = self.ids();
        vec![format!("payment:{payment_id}"), format!("order:{order_id}")]
    }

    fn stream(&self) -> Option<(String, String)> {
        Some(("Payment".to_owned(), self.ids().0.to_owned()))
    }
}
