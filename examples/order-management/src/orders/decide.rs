//! What is decided about orders.

use super::command::OrderCommand;
use super::event::{Line, OrderEvent};
use super::order::{Order, Status};
use super::{MAX_ITEMS, MAX_PRICE_CENTS, MAX_QUANTITY};
use mainstay::flows::commands::{Boundary, Decided, Decider, Decision, Moment, Rejection};

/// Decides about one order at a time.
#[derive(Debug, Clone, Copy)]
pub struct Orders;

impl Decider for Orders {
    type Command = OrderCommand;
    type Event = OrderEvent;
    type State = Order;
    type Data = ();

    fn boundary(&self, command: &OrderCommand) -> Boundary {
        Boundary::tag(format!("order:{}", command.order_id()))
    }

    fn evolve(&self, order: &mut Order, event: OrderEvent) {
        order.evolve(event);
    }

    fn decide(&self, order: &Order, command: &OrderCommand, _: &Moment) -> Decided<OrderEvent, ()> {
        let order_id = command.order_id().to_owned();
        let event = match command {
            OrderCommand::CreateOrder { customer_id, .. } => {
                if order.status != Status::Missing {
                    return Err(Rejection::new("ORDER_ALREADY_EXISTS", "an order is created once"));
                }
                OrderEvent::OrderCreated { order_id, customer_id: customer_id.clone() }
            }
            OrderCommand::AddOrderItem { product_id, quantity, unit_price_cents, .. } => {
                in_draft(order)?;
                let (quantity, unit_price_cents) = (*quantity, *unit_price_cents);
                let item = Line { product_id: product_id.clone(), quantity, unit_price_cents };
                has_room(order, &item)?;
                OrderEvent::OrderItemAdded { order_id, item }
            }
            OrderCommand::RemoveOrderItem { product_id, .. } => {
                in_draft(order)?;
                if order.quantity_of(product_id) == 0 {
                    return Err(Rejection::new("ITEM_NOT_FOUND", "the order has nothing of this product"));
                }
                OrderEvent::OrderItemRemoved { order_id, product_id: product_id.clone() }
            }
            OrderCommand::SubmitOrder { customer, .. } => {
                in_draft(order)?;
                if order.items.is_empty() {
                    return Err(Rejection::new("ORDER_HAS_NO_ITEMS", "there is nothing to order"));
                }
                let (items, total_cents) = (order.items.clone(), order.total_cents());
                OrderEvent::OrderSubmitted { order_id, customer: customer.clone(), items, total_cents }
            }
            OrderCommand::ConfirmOrder { .. } => {
                exists(order)?;
                if order.status != Status::Submitted {
                    return Err(Rejection::new("ORDER_NOT_SUBMITTED", "only a submitted order is confirmed"));
                }
                OrderEvent::OrderConfirmed { order_id }
            }
            OrderCommand::CancelOrder { reason, .. } => {
                exists(order)?;
                if order.status == Status::Cancelled {
                    return Err(Rejection::new("ORDER_ALREADY_CANCELLED", "an order is cancelled once"));
                }
                OrderEvent::OrderCancelled { order_id, reason: reason.clone() }
            }
        };
        Ok(Decision::success((), [event]))
    }
}

fn exists(order: &Order) -> Result<(), Rejection> {
    if order.status == Status::Missing {
        return Err(Rejection::new("ORDER_NOT_FOUND", "there is no such order"));
    }
    Ok(())
}

fn in_draft(order: &Order) -> Result<(), Rejection> {
    exists(order)?;
    if order.status != Status::Draft {
        return Err(Rejection::new("ORDER_NOT_IN_DRAFT", "only a draft can be changed or submitted"));
    }
    Ok(())
}

fn has_room(order: &Order, item: &Line) -> Result<(), Rejection> {
    let present = order.quantity_of(&item.product_id);
    if item.quantity < 1 || item.quantity > MAX_QUANTITY - present {
        let reason = format!("a line has 1 to {MAX_QUANTITY} pieces");
        return Err(Rejection::new("INVALID_QUANTITY", reason));
    }
    if !(0..=MAX_PRICE_CENTS).contains(&item.unit_price_cents) {
        return Err(Rejection::new("INVALID_PRICE", format!("a price is 0 to {MAX_PRICE_CENTS} cents")));
    }
    if present == 0 && order.items.len() >= MAX_ITEMS {
        return Err(Rejection::new(
            "ORDER_TOO_MANY_ITEMS",
            format!("an order has at most {MAX_ITEMS} items"),
        ));
    }
    Ok(())
}
