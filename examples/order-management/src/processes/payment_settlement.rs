//! `paymentSettlement`: PaymentRequested → the provider charges → CompletePayment or DeclinePayment; the same for refunds.
//!
//! The provider is called by work, behind a circuit. The end of the call and the command that records it are one transaction, so
//! nothing that the provider has said is lost. A call that fails for good is a dead letter; the payment waits until somebody
//! lets it be tried again, and the provider knows it by its id.

use super::wanted::{Cause, want_because};
use crate::payments::{CHARGE, Charge, POOL, PaymentCommand, PaymentEvent, REFUND, Refund, Said, said};
use mainstay::Handle;
use mainstay::core::failure::Failure;
use mainstay::core::retry::RetryPolicy;
use mainstay::events::Event;
use mainstay::flows::commands::{Command, decode};
use mainstay::flows::projections::{By, Category, Kind, Model, Projection};
use mainstay::store::{Error, Result, Tx};
use mainstay::work::{Call, Functions, NewWork, OnComplete, WorkResult};
use serde::{Deserialize, Serialize};

/// The process manager's name.
pub const PAYMENT_SETTLEMENT: &str = "paymentSettlement";

/// The mutation that is told what the provider has said.
const SETTLED: &str = "payments.settled";

/// What is kept beside a call of the provider.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Settling {
    payment_id: String,
    is_refund: bool,
    cause: Cause,
}

pub(super) fn projection(handle: &Handle) -> Projection {
    let handle = handle.clone();
    Projection::new(PAYMENT_SETTLEMENT, Category::Logic)
        .description("Lets the provider charge what is to be paid")
        .kind(Kind::Secondary)
        .on(["PaymentRequested", "RefundRequested"])
        .partitioned(2, By::Stream)
        .each(move |tx: Tx, _: Model, event: Event| {
            let handle = handle.clone();
            async move { apply(&handle, &tx, &event) }
        })
}

fn apply(handle: &Handle, tx: &Tx, event: &Event) -> Result<()> {
    let (item, payment_id, is_refund) = match decode(event)? {
        PaymentEvent::PaymentRequested { payment_id, order_id, amount_cents } => {
            let charge = Charge { payment_id: payment_id.clone(), order_id, amount_cents };
            (NewWork::new(POOL, CHARGE, &charge)?, payment_id, false)
        }
        PaymentEvent::RefundRequested { payment_id, amount_cents, .. } => {
            let refund = Refund { payment_id: payment_id.clone(), amount_cents };
            (NewWork::new(POOL, REFUND, &refund)?, payment_id, true)
        }
        _ => return Ok(()),
    };
    let item = item.key(&payment_id).correlated(event.correlation_id());
    let settling = Settling { payment_id, is_refund, cause: Cause::of(event) };
    let item = item.on_complete(SETTLED, &settling)?;
    let item = if let Some(trace) = event.trace() { item.trace(trace) } else { item };
    Ok(handle.enqueue_in(tx, [item])?)
}

/// Adds what is told how calls of the provider end.
pub(super) fn functions(functions: Functions, handle: &Handle) -> Functions {
    let handle = handle.clone();
    functions.on_complete(
        SETTLED,
        RetryPolicy::default(),
        move |tx: Tx, call: Call, told: OnComplete<Settling>| {
            let handle = handle.clone();
            async move { settle(&handle, &tx, call, told) }
        },
    )
}

fn settle(handle: &Handle, tx: &Tx, call: Call, told: OnComplete<Settling>) -> Result<()> {
    // What failed is a dead letter, and what was cancelled is somebody's decision: the payment waits.
    let (Some(settling), WorkResult::Success { return_value }) = (told.context, told.result) else {
        return Ok(());
    };
    let Settling { payment_id, is_refund, cause } = settling;
    let key = payment_id.clone();
    let command = match (said(return_value.get()).map_err(Error::application)?, is_refund) {
        (Said::Done { receipt }, false) => PaymentCommand::CompletePayment { payment_id, receipt },
        (Said::Done { receipt }, true) => PaymentCommand::CompleteRefund { payment_id, receipt },
        (Said::Declined { reason }, false) => PaymentCommand::DeclinePayment { payment_id, reason },
        (Said::Declined { reason }, true) => {
            let refused = format!("the provider does not give {payment_id} back: {reason}");
            return Err(Error::application(Failure::permanent(refused)));
        }
    };
    want_because(handle, tx, (PAYMENT_SETTLEMENT, &cause, &key), call.trace, Command::of(&command)?)
}
