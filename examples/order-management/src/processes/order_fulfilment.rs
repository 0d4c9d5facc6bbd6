//! `orderFulfilment`: from a submitted order to one that is paid and confirmed, or cancelled.
//!
//! | when | then |
//! |---|---|
//! | OrderSubmitted | ReserveStock |
//! | StockReserved | RequestPayment |
//! | ReservationFailed | CancelOrder |
//! | PaymentCompleted | ConfirmOrder, ConfirmReservation |
//! | PaymentDeclined | CancelOrder, whereupon what is held is released |
//! | OrderCancelled, and it is paid | RequestRefund |
//! | PaymentCompleted, and the order was cancelled meanwhile | RequestRefund |

use super::wanted::want;
use crate::inventory::{InventoryEvent, Quantity, ReservationCommand};
use crate::orders::{OrderCommand, OrderEvent};
use crate::payments::{PaymentCommand, PaymentEvent};
use crate::projections::by_tag;
use mainstay::Handle;
use mainstay::events::Event;
use mainstay::flows::commands::{Command, decode};
use mainstay::flows::projections::{Category, Kind, Model, Projection};
use mainstay::store::{Result, Tx, params};
use serde::Serialize;

/// The process manager's name.
pub const ORDER_FULFILMENT: &str = "orderFulfilment";

/// What it knows of an order that was submitted.
pub(super) const TABLE: &str = "CREATE TABLE fulfilment (
    order_id TEXT COLLATE \"binary\" NOT NULL PRIMARY KEY,
    total_cents BIGINT NOT NULL,
    is_paid BIGINT NOT NULL,
    is_cancelled BIGINT NOT NULL)";

const BEGIN: &str = "INSERT INTO fulfilment (order_id, total_cents, is_paid, is_cancelled) \
                     VALUES ($1, $2, 0, 0) ON CONFLICT DO NOTHING";
const FIND: &str = "SELECT total_cents, is_paid, is_cancelled FROM fulfilment WHERE order_id = $1";
const PAID: &str = "UPDATE fulfilment SET is_paid = 1 WHERE order_id = $1";
const CANCELLED: &str = "UPDATE fulfilment SET is_cancelled = 1 WHERE order_id = $1";

/// Events of one order are taken in order, whichever context they are of.
pub(super) fn projection(handle: &Handle) -> Projection {
    let handle = handle.clone();
    Projection::new(ORDER_FULFILMENT, Category::Logic)
        .description("Reserves for submitted orders, lets them be paid, and confirms or cancels them")
        .kind(Kind::CrossContext)
        .on(["OrderSubmitted", "OrderCancelled"])
        .on(["StockReserved", "ReservationFailed"])
        .on(["PaymentCompleted", "PaymentDeclined"])
        .partitioned(2, by_tag("order"))
        .each(move |tx: Tx, _: Model, event: Event| {
            let step = Step { handle: handle.clone(), tx, event };
            async move { step.take().await }
        })
}

/// One event of an order.
struct Step {
    handle: Handle,
    tx: Tx,
    event: Event,
}

/// What is known of an order.
struct Known {
    total_cents: i64,
    is_paid: bool,
    is_cancelled: bool,
}

impl Step {
    async fn take(&self) -> Result<()> {
        match self.event.event_type() {
            "OrderSubmitted" | "OrderCancelled" => self.of_order(decode(&self.event)?).await,
            "StockReserved" | "ReservationFailed" => self.of_stock(decode(&self.event)?).await,
            _ => self.of_payment(decode(&self.event)?).await,
        }
    }

    async fn of_order(&self, event: OrderEvent) -> Result<()> {
        match event {
            OrderEvent::OrderSubmitted { order_id, items, total_cents, .. } => {
                self.tx.execute(BEGIN, params![&order_id, total_cents]).await?;
                let items = items
                    .into_iter()
                    .map(|line| Quantity { product_id: line.product_id, quantity: line.quantity });
                let (reservation_id, items) = (reservation_of(&order_id), items.collect());
                self.want(
                    &reservation_id.clone(),
                    &ReservationCommand::ReserveStock { reservation_id, order_id, items },
                )
            }
            OrderEvent::OrderCancelled { order_id, .. } => {
                self.tx.execute(CANCELLED, params![&order_id]).await?;
                match self.known(&order_id).await? {
                    Some(Known { is_paid: true, .. }) => self.refund(&order_id),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    async fn of_stock(&self, event: InventoryEvent) -> Result<()> {
        match event {
            InventoryEvent::StockReserved { order_id, .. } => match self.known(&order_id).await? {
                Some(Known { total_cents: amount_cents, is_cancelled: false, .. }) => {
                    let payment_id = payment_of(&order_id);
                    self.want(
                        &payment_id.clone(),
                        &PaymentCommand::RequestPayment { payment_id, order_id, amount_cents },
                    )
                }
                // Somebody has reserved by hand, or for an order that nobody has submitted or wants any more.
                _ => Ok(()),
            },
            InventoryEvent::ReservationFailed { order_id, .. } => {
                self.cancel(order_id, "not enough in stock")
            }
            _ => Ok(()),
        }
    }

    async fn of_payment(&self, event: PaymentEvent) -> Result<()> {
        match event {
            PaymentEvent::PaymentCompleted { order_id, .. } => {
                self.tx.execute(PAID, params![&order_id]).await?;
                match self.known(&order_id).await? {
                    Some(Known { is_cancelled: true, .. }) => self.refund(&order_id),
                    _ => {
                        let reservation_id = reservation_of(&order_id);
                        self.want(&order_id.clone(), &OrderCommand::ConfirmOrder { order_id })?;
                        self.want(
                            &reservation_id.clone(),
                            &ReservationCommand::ConfirmReservation { reservation_id },
                        )
                    }
                }
            }
            PaymentEvent::PaymentDeclined { order_id, reason, .. } => {
                self.cancel(order_id, &format!("the payment was declined: {reason}"))
            }
            _ => Ok(()),
        }
    }

    async fn known(&self, order_id: &str) -> Result<Option<Known>> {
        let Some(row) = self.tx.query_optional(FIND, params![order_id]).await? else { return Ok(None) };
        let is = |column: usize| row.get::<i64>(column).map(|flag| flag != 0);
        Ok(Some(Known { total_cents: row.get(0)?, is_paid: is(1)?, is_cancelled: is(2)? }))
    }

    fn cancel(&self, order_id: String, reason: &str) -> Result<()> {
        self.want(&order_id.clone(), &OrderCommand::CancelOrder { order_id, reason: reason.to_owned() })
    }

    fn refund(&self, order_id: &str) -> Result<()> {
        let (payment_id, reason) = (payment_of(order_id), "the order was cancelled".to_owned());
        self.want(&payment_id.clone(), &PaymentCommand::RequestRefund { payment_id, reason })
    }

    fn want(&self, key: &str, command: &impl Serialize) -> Result<()> {
        want(&self.handle, &self.tx, (ORDER_FULFILMENT, &self.event, key), Command::of(command)?)
    }
}

fn reservation_of(order_id: &str) -> String {
    format!("r-{order_id}")
}

fn payment_of(order_id: &str) -> String {
    format!("p-{order_id}")
}
