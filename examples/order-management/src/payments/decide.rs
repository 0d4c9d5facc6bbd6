//! What is decided about payments.

use super::MAX_AMOUNT_CENTS;
use super::event::PaymentEvent;
use mainstay::flows::commands::{Boundary, Decided, Decider, Decision, Moment, Rejection};
use serde::{Deserialize, Serialize};

/// A command about a payment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all_fields = "camelCase")]
pub enum PaymentCommand {
    /// Charge an order.
    RequestPayment {
        /// The payment.
        payment_id: String,
        /// For which order.
        order_id: String,
        /// How much.
        amount_cents: i64,
    },
    /// Note that the provider has charged it.
    CompletePayment {
        /// The payment.
        payment_id: String,
        /// What the provider calls it.
        receipt: String,
    },
    /// Note that the provider does not want to.
    DeclinePayment {
        /// The payment.
        payment_id: String,
        /// Why.
        reason: String,
    },
    /// Give it back.
    RequestRefund {
        /// The payment.
        payment_id: String,
        /// Why.
        reason: String,
    },
    /// Note that the provider has given it back.
    CompleteRefund {
        /// The payment.
        payment_id: String,
        /// What the provider calls it.
        receipt: String,
    },
}

impl PaymentCommand {
    /// The payment that it is about.
    pub fn payment_id(&self) -> &str {
        match self {
            Self::RequestPayment { payment_id, .. }
            | Self::CompletePayment { payment_id, .. }
            | Self::DeclinePayment { payment_id, .. }
            | Self::RequestRefund { payment_id, .. }
            | Self::CompleteRefund { payment_id, .. } => payment_id,
        }
    }
}

/// How far a payment has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PaymentStatus {
    /// It does not exist.
    #[default]
    Missing,
    /// The provider has not answered yet.
    Requested,
    /// It was charged.
    Completed,
    /// It was not, and will not be.
    Declined,
    /// It was charged, and is to be given back.
    Refunding,
    /// It was given back.
    Refunded,
}

/// A payment, as far as decisions need it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Payment {
    /// How far it has come.
    pub status: PaymentStatus,
    /// For which order it is.
    pub order_id: String,
    /// How much.
    pub amount_cents: i64,
}

/// Decides about one payment at a time.
#[derive(Debug, Clone, Copy)]
pub struct Payments;

impl Decider for Payments {
    type Command = PaymentCommand;
    type Event = PaymentEvent;
    type State = Payment;
    type Data = ();

    fn boundary(&self, command: &PaymentCommand) -> Boundary {
        Boundary::tag(format!("payment:{}", command.payment_id()))
    }

    fn evolve(&self, payment: &mut Payment, event: PaymentEvent) {
        payment.status = match event {
            PaymentEvent::PaymentRequested { order_id, amount_cents, .. } => {
                (payment.order_id, payment.amount_cents) = (order_id, amount_cents);
                PaymentStatus::Requested
            }
            PaymentEvent::PaymentCompleted { .. } => PaymentStatus::Completed,
            PaymentEvent::PaymentDeclined { .. } => PaymentStatus::Declined,
            PaymentEvent::RefundRequested { .. } => PaymentStatus::Refunding,
            PaymentEvent::PaymentRefunded { .. } => PaymentStatus::Refunded,
        };
    }

    fn decide(&self, payment: &Payment, command: &PaymentCommand, _: &Moment) -> Decided<PaymentEvent, ()> {
        let (order_id, amount_cents) = (payment.order_id.clone(), payment.amount_cents);
        let event = match command.clone() {
            PaymentCommand::RequestPayment { payment_id, order_id, amount_cents } => {
                if payment.status != PaymentStatus::Missing {
                    return Err(Rejection::new("PAYMENT_ALREADY_REQUESTED", "a payment is asked for once"));
                }
                if !(0..=MAX_AMOUNT_CENTS).contains(&amount_cents) {
                    let reason = format!("an amount is 0 to {MAX_AMOUNT_CENTS} cents");
                    return Err(Rejection::new("INVALID_AMOUNT", reason));
                }
                PaymentEvent::PaymentRequested { payment_id, order_id, amount_cents }
            }
            PaymentCommand::CompletePayment { payment_id, receipt } => {
                expect(payment, PaymentStatus::Requested)?;
                PaymentEvent::PaymentCompleted { payment_id, order_id, amount_cents, receipt }
            }
            PaymentCommand::DeclinePayment { payment_id, reason } => {
                expect(payment, PaymentStatus::Requested)?;
                PaymentEvent::PaymentDeclined { payment_id, order_id, reason }
            }
            PaymentCommand::RequestRefund { payment_id, reason } => {
                expect(payment, PaymentStatus::Completed)?;
                PaymentEvent::RefundRequested { payment_id, order_id, amount_cents, reason }
            }
            PaymentCommand::CompleteRefund { payment_id, receipt } => {
                expect(payment, PaymentStatus::Refunding)?;
                PaymentEvent::PaymentRefunded { payment_id, order_id, receipt }
            }
        };
        Ok(Decision::success((), [event]))
    }
}

/// What the provider has said twice changes nothing the second time.
fn expect(payment: &Payment, expected: PaymentStatus) -> Result<(), Rejection> {
    let (found, code) = match (payment.status, expected) {
        (found, expected) if found == expected => return Ok(()),
        (PaymentStatus::Missing, _) => {
            return Err(Rejection::new("PAYMENT_NOT_FOUND", "there is no such payment"));
        }
        (found, PaymentStatus::Requested) => (found, "PAYMENT_ALREADY_SETTLED"),
        (found, PaymentStatus::Completed) => (found, "PAYMENT_NOT_COMPLETED"),
        (found, _) => (found, "REFUND_NOT_REQUESTED"),
    };
    Err(Rejection::new(code, format!("it is {found:?}")))
}
