//! Orders.

use mainstay::flows::commands::testing::Given;
use order_management::orders::{Customer, Line, MAX_ITEMS, MAX_PRICE_CENTS, MAX_QUANTITY};
use order_management::orders::{OrderCommand, OrderEvent, Orders, Status};
use serde_json::json;

fn o1() -> String {
    "o-1".to_owned()
}

fn line(product: &str, quantity: i64, unit_price_cents: i64) -> Line {
    Line { product_id: product.to_owned(), quantity, unit_price_cents }
}

fn customer() -> Customer {
    Customer { id: "c-1".to_owned(), name: Some("Ada".to_owned()), email: None }
}

fn created() -> OrderEvent {
    OrderEvent::OrderCreated { order_id: o1(), customer_id: "c-1".to_owned() }
}

fn added(item: Line) -> OrderEvent {
    OrderEvent::OrderItemAdded { order_id: o1(), item }
}

fn submitted() -> OrderEvent {
    let items = vec![line("lamp", 2, 500)];
    OrderEvent::OrderSubmitted { order_id: o1(), customer: customer(), items, total_cents: 1_000 }
}

fn confirmed() -> OrderEvent {
    OrderEvent::OrderConfirmed { order_id: o1() }
}

fn cancelled() -> OrderEvent {
    OrderEvent::OrderCancelled { order_id: o1(), reason: "changed my mind".to_owned() }
}

fn create() -> OrderCommand {
    OrderCommand::CreateOrder { order_id: o1(), customer_id: "c-1".to_owned() }
}

fn add(product: &str, quantity: i64, unit_price_cents: i64) -> OrderCommand {
    OrderCommand::AddOrderItem { order_id: o1(), product_id: product.to_owned(), quantity, unit_price_cents }
}

fn remove(product: &str) -> OrderCommand {
    OrderCommand::RemoveOrderItem { order_id: o1(), product_id: product.to_owned() }
}

fn submit() -> OrderCommand {
    OrderCommand::SubmitOrder { order_id: o1(), customer: customer() }
}

fn confirm() -> OrderCommand {
    OrderCommand::ConfirmOrder { order_id: o1() }
}

fn cancel() -> OrderCommand {
    OrderCommand::CancelOrder { order_id: o1(), reason: "changed my mind".to_owned() }
}

fn given(events: impl IntoIterator<Item = OrderEvent>) -> Given<Orders> {
    Given::decider(Orders).events(events)
}

/// A draft with two lamps.
fn draft() -> Given<Orders> {
    given([created(), added(line("lamp", 2, 500))])
}

#[test]
fn an_order_goes_from_draft_to_submitted_to_confirmed() {
    given([])
        .when(create())
        .then_events([created()])
        .then_state(|order| assert_eq!(order.status, Status::Draft));
    given([created()]).when(add("lamp", 2, 500)).then_events([added(line("lamp", 2, 500))]);
    draft().when(submit()).then_events([submitted()]).then_state(|order| {
        assert_eq!((order.status, order.total_cents()), (Status::Submitted, 1_000));
    });
    draft().events([submitted()]).when(confirm()).then_events([confirmed()]);
}

#[test]
fn an_order_is_cancelled_from_every_status_once() {
    draft().when(cancel()).then_events([cancelled()]);
    draft().events([submitted()]).when(cancel()).then_events([cancelled()]);
    draft().events([submitted(), confirmed()]).when(cancel()).then_events([cancelled()]);
    draft().events([cancelled()]).when(cancel()).then_rejected("ORDER_ALREADY_CANCELLED");
}

#[test]
fn what_does_not_exist_is_not_found_and_what_exists_is_not_created() {
    for command in [add("lamp", 1, 1), remove("lamp"), submit(), confirm(), cancel()] {
        given([]).when(command).then_rejected("ORDER_NOT_FOUND");
    }
    given([created()]).when(create()).then_rejected("ORDER_ALREADY_EXISTS");
    given([created(), cancelled()]).when(create()).then_rejected("ORDER_ALREADY_EXISTS");
    // What happened to another order does not count.
    let other = OrderEvent::OrderCreated { order_id: "o-2".to_owned(), customer_id: "c-1".to_owned() };
    given([other]).when(create()).then_events([created()]);
}

#[test]
fn only_a_draft_is_changed_or_submitted() {
    for after in [vec![submitted()], vec![submitted(), confirmed()], vec![cancelled()]] {
        for command in [add("lamp", 1, 1), remove("lamp"), submit()] {
            draft().events(after.clone()).when(command).then_rejected("ORDER_NOT_IN_DRAFT");
        }
    }
}

#[test]
fn only_a_submitted_order_is_confirmed() {
    draft().when(confirm()).then_rejected("ORDER_NOT_SUBMITTED");
    draft().events([submitted(), confirmed()]).when(confirm()).then_rejected("ORDER_NOT_SUBMITTED");
    draft().events([submitted(), cancelled()]).when(confirm()).then_rejected("ORDER_NOT_SUBMITTED");
}

#[test]
fn an_empty_order_is_not_submitted() {
    given([created()]).when(submit()).then_rejected("ORDER_HAS_NO_ITEMS");
    let removed = OrderEvent::OrderItemRemoved { order_id: o1(), product_id: "lamp".to_owned() };
    draft().when(remove("lamp")).then_events([removed.clone()]);
    draft().events([removed]).when(submit()).then_rejected("ORDER_HAS_NO_ITEMS");
    draft().when(remove("bulb")).then_rejected("ITEM_NOT_FOUND");
}

#[test]
fn quantities_and_prices_have_limits() {
    for quantity in [0, -1, MAX_QUANTITY + 1, i64::MIN, i64::MAX] {
        given([created()]).when(add("lamp", quantity, 1)).then_rejected("INVALID_QUANTITY");
    }
    draft().when(add("lamp", MAX_QUANTITY - 1, 1)).then_rejected("INVALID_QUANTITY");
    draft().when(add("lamp", MAX_QUANTITY - 2, 1)).then_state(|order| {
        assert_eq!(order.items, [line("lamp", MAX_QUANTITY, 1)], "more of the same, at the new price");
    });
    for price in [-1, MAX_PRICE_CENTS + 1] {
        given([created()]).when(add("lamp", 1, price)).then_rejected("INVALID_PRICE");
    }
    given([created()]).when(add("gift", 1, 0)).then_events([added(line("gift", 1, 0))]);
}

#[test]
fn an_order_has_a_hundred_items_at_most() {
    let full =
        (0..MAX_ITEMS).map(|number| added(line(&format!("p-{number}"), MAX_QUANTITY - 1, MAX_PRICE_CENTS)));
    let full = || given([created()]).events(full.clone());
    full().when(add("one-more", 1, 1)).then_rejected("ORDER_TOO_MANY_ITEMS");
    full().when(add("p-7", 1, MAX_PRICE_CENTS)).then_state(|order| assert_eq!(order.items.len(), MAX_ITEMS));
    full().when(submit()).then_state(|order| assert!(order.total_cents() > 0));
}

#[test]
fn what_was_submitted_before_customers_were_noted_is_still_read() {
    let data = json!({"orderId": "o-1", "customerId": "c-1", "items": [], "totalCents": 0});
    let old = || draft().recorded("OrderSubmitted", 1, &data);
    old().when(confirm()).then_events([confirmed()]);
    old().when(submit()).then_rejected("ORDER_NOT_IN_DRAFT");
}

#[test]
fn commands_are_read_as_they_are_on_the_wire() {
    let text = r#"{"AddOrderItem":{"orderId":"o-1","productId":"lamp","quantity":2,"unitPriceCents":500}}"#;
    assert_eq!(serde_json::from_str::<OrderCommand>(text).unwrap(), add("lamp", 2, 500));
}
