//! Payments.

use mainstay::flows::commands::testing::Given;
use order_management::payments::{MAX_AMOUNT_CENTS, PaymentCommand, PaymentEvent, Payments};

fn id() -> String {
    "p-1".to_owned()
}

fn order() -> String {
    "o-1".to_owned()
}

fn text() -> String {
    "ch-7".to_owned()
}

fn request(amount_cents: i64) -> PaymentCommand {
    PaymentCommand::RequestPayment { payment_id: id(), order_id: order(), amount_cents }
}

fn complete() -> PaymentCommand {
    PaymentCommand::CompletePayment { payment_id: id(), receipt: text() }
}

fn decline() -> PaymentCommand {
    PaymentCommand::DeclinePayment { payment_id: id(), reason: text() }
}

fn request_refund() -> PaymentCommand {
    PaymentCommand::RequestRefund { payment_id: id(), reason: text() }
}

fn complete_refund() -> PaymentCommand {
    PaymentCommand::CompleteRefund { payment_id: id(), receipt: text() }
}

fn requested() -> PaymentEvent {
    PaymentEvent::PaymentRequested { payment_id: id(), order_id: order(), amount_cents: 900 }
}

fn completed() -> PaymentEvent {
    PaymentEvent::PaymentCompleted { payment_id: id(), order_id: order(), amount_cents: 900, receipt: text() }
}

fn declined() -> PaymentEvent {
    PaymentEvent::PaymentDeclined { payment_id: id(), order_id: order(), reason: text() }
}

fn refunding() -> PaymentEvent {
    PaymentEvent::RefundRequested { payment_id: id(), order_id: order(), amount_cents: 900, reason: text() }
}

fn refunded() -> PaymentEvent {
    PaymentEvent::PaymentRefunded { payment_id: id(), order_id: order(), receipt: text() }
}

fn given(events: impl IntoIterator<Item = PaymentEvent>) -> Given<Payments> {
    Given::decider(Payments).events(events)
}

#[test]
fn a_payment_is_asked_for_once() {
    given([]).when(request(900)).then_events([requested()]);
    given([requested()]).when(request(900)).then_rejected("PAYMENT_ALREADY_REQUESTED");
    for amount in [-1, MAX_AMOUNT_CENTS + 1] {
        given([]).when(request(amount)).then_rejected("INVALID_AMOUNT");
    }
}

#[test]
fn a_payment_is_settled_once_whatever_the_provider_says_afterwards() {
    given([requested()]).when(complete()).then_events([completed()]);
    given([requested()]).when(decline()).then_events([declined()]);
    for settled in [completed(), declined()] {
        for late in [complete(), decline()] {
            given([requested(), settled.clone()]).when(late).then_rejected("PAYMENT_ALREADY_SETTLED");
        }
    }
    given([]).when(complete()).then_rejected("PAYMENT_NOT_FOUND");
}

#[test]
fn only_what_was_charged_is_given_back_and_once() {
    given([requested(), completed()]).when(request_refund()).then_events([refunding()]);
    given([requested()]).when(request_refund()).then_rejected("PAYMENT_NOT_COMPLETED");
    given([requested(), declined()]).when(request_refund()).then_rejected("PAYMENT_NOT_COMPLETED");
    given([requested(), completed(), refunding()]).when(complete_refund()).then_events([refunded()]);
    let all = [requested(), completed(), refunding(), refunded()];
    given(all.clone()).when(complete_refund()).then_rejected("REFUND_NOT_REQUESTED");
    given(all).when(request_refund()).then_rejected("PAYMENT_NOT_COMPLETED");
}
