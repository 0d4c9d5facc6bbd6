//! What an order is.

use super::event::{Line, OrderEvent};

/// How far an order has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Status {
    /// It does not exist.
    #[default]
    Missing,
    /// Its customer still works on it.
    Draft,
    /// It was ordered.
    Submitted,
    /// It was accepted.
    Confirmed,
    /// It was dropped.
    Cancelled,
}

/// An order, as far as decisions need it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Order {
    /// How far it has come.
    pub status: Status,
    /// Whose it is.
    pub customer_id: String,
    /// What is in it.
    pub items: Vec<Line>,
}

impl Order {
    /// How many of a product are in it.
    pub fn quantity_of(&self, product_id: &str) -> i64 {
        self.items.iter().filter(|line| line.product_id == product_id).map(|line| line.quantity).sum()
    }

    /// What it costs. The limits of a line keep it far from overflowing.
    pub fn total_cents(&self) -> i64 {
        self.items.iter().map(|line| line.quantity * line.unit_price_cents).sum()
    }

    pub(super) fn evolve(&mut self, event: OrderEvent) {
        match event {
            OrderEvent::OrderCreated { customer_id, .. } => {
                *self = Self { status: Status::Draft, customer_id, items: Vec::new() };
            }
            OrderEvent::OrderItemAdded { item, .. } => self.add(item),
            OrderEvent::OrderItemRemoved { product_id, .. } => {
                self.items.retain(|line| line.product_id != product_id);
            }
            OrderEvent::OrderSubmitted { .. } => self.status = Status::Submitted,
            OrderEvent::OrderConfirmed { .. } => self.status = Status::Confirmed,
            OrderEvent::OrderCancelled { .. } => self.status = Status::Cancelled,
        }
    }

    fn add(&mut self, item: Line) {
        match self.items.iter_mut().find(|line| line.product_id == item.product_id) {
            Some(line) => {
                line.quantity += item.quantity;
                line.unit_price_cents = item.unit_price_cents;
            }
            None => self.items.push(item),
        }
    }
}
