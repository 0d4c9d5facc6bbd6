//! The provider that moves the money, and what is said between us.

use mainstay::core::failure::Failure;
use mainstay::core::retry::RetryPolicy;
use mainstay::flows::{Error, Result};
use mainstay::guards::circuits::Settings;
use mainstay::work::egress::Egress;
use mainstay::work::http::{HttpConfig, HttpFunction, Secret};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// A provider that takes longer is not well.
const TIMEOUT_MS: u64 = 2_000;
/// Longest wait before it is asked again.
const MAX_WAIT_MS: u64 = 60_000;

/// What the provider is asked to charge. It knows a payment by its id, however often it is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Charge {
    /// The payment.
    pub payment_id: String,
    /// For which order.
    pub order_id: String,
    /// How much.
    pub amount_cents: i64,
}

/// What the provider is asked to give back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refund {
    /// The payment.
    pub payment_id: String,
    /// How much.
    pub amount_cents: i64,
}

/// What the provider says. That it does not want to is an answer, too, and nothing to be tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "camelCase")]
pub enum Said {
    /// It is done.
    Done {
        /// What the provider calls it.
        receipt: String,
    },
    /// It is not, and will not be.
    Declined {
        /// Why.
        reason: String,
    },
}

/// Where the provider is, and how much is made of it when it is not well.
#[derive(Clone)]
pub struct PaymentProvider {
    pub(crate) charges: HttpFunction,
    pub(crate) refunds: HttpFunction,
    pub(crate) circuit: Settings,
    pub(crate) retry: RetryPolicy,
}

impl PaymentProvider {
    /// The provider whose endpoints are `charges` and `refunds` below a URL, which knows us by a secret. Only addresses that
    /// `egress` lets through are reached.
    pub fn at(url: &str, secret: Secret, egress: Egress) -> Result<Self> {
        let egress = Arc::new(egress);
        let endpoint = |name: &str| {
            let config = HttpConfig {
                timeout_ms: TIMEOUT_MS,
                secrets: vec![secret.clone()],
                ..HttpConfig::new(format!("{url}/{name}"))
            };
            HttpFunction::new(config, egress.clone()).map_err(|error| invalid("url", &error))
        };
        Ok(Self {
            charges: endpoint("charges")?,
            refunds: endpoint("refunds")?,
            circuit: Settings::default(),
            retry: RetryPolicy::default(),
        })
    }

    /// When calls are not made any more, and when it is seen whether they can be again.
    pub fn circuit(self, circuit: Settings) -> Self {
        Self { circuit, ..self }
    }

    /// How often a call is made, first after this wait and then after twice as much each time; then it is a dead letter.
    pub fn attempts(self, most: u32, first_wait: Duration) -> Result<Self> {
        let retry = RetryPolicy::new(most, first_wait.as_millis() as u64, 2.0, MAX_WAIT_MS);
        Ok(Self { retry: retry.map_err(|error| invalid("retry", &error))?, ..self })
    }
}

fn invalid(field: &str, error: &dyn std::error::Error) -> Error {
    Error::Invalid { field: field.to_owned(), reason: error.to_string() }
}

/// What the provider said, out of what its endpoint answered.
pub(crate) fn said(answer: &str) -> std::result::Result<Said, Failure> {
    serde_json::from_str(answer)
        .map_err(|error| Failure::permanent(format!("the provider does not say what is agreed: {error}")))
}
