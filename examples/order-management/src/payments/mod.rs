//! Payments: what an order costs is charged once, and given back when the order is not to be delivered after all.
//!
//! A payment is `requested → completed | declined`, and `completed → refunding → refunded`. Who moves the money is a provider
//! elsewhere, which may be slow, away or of another opinion; what it has said is recorded here.
//!
//! - `event`: what can happen
//! - `decide`: decides about payments
//! - `provider`: where the provider is, and what is said between us

mod decide;
mod event;
mod provider;

pub use decide::{Payment, PaymentCommand, PaymentStatus, Payments};
pub use event::PaymentEvent;
pub(crate) use provider::said;
pub use provider::{Charge, PaymentProvider, Refund, Said};

/// The pool in which the provider is called.
pub const POOL: &str = "payments";
/// The circuit before the provider.
pub const CIRCUIT: &str = "payments";
/// The function that charges.
pub const CHARGE: &str = "payments.charge";
/// The function that gives back.
pub const REFUND: &str = "payments.refund";
/// Highest amount of a payment.
pub const MAX_AMOUNT_CENTS: i64 = 1_000_000_000_000;
