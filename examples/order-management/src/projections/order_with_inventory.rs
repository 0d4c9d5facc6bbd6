//! `orderWithInventory`: an order and what is held for it, of both contexts, for other systems.

use super::{LANES, by_tag};
use crate::inventory::InventoryEvent;
use crate::orders::OrderEvent;
use mainstay::core::failure::Failure;
use mainstay::events::Event;
use mainstay::flows::commands::decode;
use mainstay::flows::projections::{Category, Complexity, Kind, Model, Poison, Projection};
use mainstay::store::{Error, Result, Store, Tx, Value, params};

/// The projection's name.
pub const ORDER_WITH_INVENTORY: &str = "orderWithInventory";

const CREATE: &str = "CREATE TABLE {table} (
    order_id TEXT COLLATE \"binary\" NOT NULL PRIMARY KEY,
    customer_id TEXT NOT NULL,
    order_status TEXT NOT NULL,
    total_cents BIGINT NOT NULL,
    reservation_id TEXT,
    reservation_status TEXT)";

pub(super) fn projection() -> Projection {
    Projection::new(ORDER_WITH_INVENTORY, Category::Integration)
        .description("Orders, and what is held for them")
        .kind(Kind::CrossContext)
        .complexity(Complexity::Complex)
        .on(["OrderCreated", "OrderSubmitted", "OrderConfirmed", "OrderCancelled"])
        .on([
            "StockReserved",
            "ReservationFailed",
            "ReservationConfirmed",
            "ReservationReleased",
            "ReservationExpired",
        ])
        .partitioned(LANES, by_tag("order"))
        .poison(Poison::new(3, true))
        .table("order_with_inventory", &[CREATE])
        .each(apply)
}

async fn apply(tx: Tx, model: Model, event: Event) -> Result<()> {
    let table = model.table("order_with_inventory")?;
    match event.event_type().starts_with("Order") {
        true => apply_order(&tx, table, decode(&event)?).await,
        false => apply_inventory(&tx, table, decode(&event)?).await,
    }
}

async fn apply_order(tx: &Tx, table: &str, event: OrderEvent) -> Result<()> {
    match event {
        OrderEvent::OrderCreated { order_id, customer_id } => {
            let sql = format!(
                "INSERT INTO {table} (order_id, customer_id, order_status, total_cents) \
                 VALUES ($1, $2, 'draft', 0)"
            );
            tx.execute(&sql, params![order_id, customer_id]).await.map(drop)
        }
        OrderEvent::OrderSubmitted { order_id, total_cents, .. } => {
            let set = "order_status = 'submitted', total_cents = $2";
            update(tx, table, &order_id, set, &[total_cents.into()]).await
        }
        OrderEvent::OrderConfirmed { order_id } => {
            update(tx, table, &order_id, "order_status = 'confirmed'", &[]).await
        }
        OrderEvent::OrderCancelled { order_id, .. } => {
            update(tx, table, &order_id, "order_status = 'cancelled'", &[]).await
        }
        OrderEvent::OrderItemAdded { .. } | OrderEvent::OrderItemRemoved { .. } => Ok(()),
    }
}

async fn apply_inventory(tx: &Tx, table: &str, event: InventoryEvent) -> Result<()> {
    let (reservation_id, order_id, status) = match event {
        InventoryEvent::StockReserved { reservation_id, order_id, .. } => {
            (reservation_id, order_id, "pending")
        }
        InventoryEvent::ReservationFailed { reservation_id, order_id, .. } => {
            (reservation_id, order_id, "failed")
        }
        InventoryEvent::ReservationConfirmed { reservation_id, order_id } => {
            (reservation_id, order_id, "confirmed")
        }
        InventoryEvent::ReservationReleased { reservation_id, order_id, .. } => {
            (reservation_id, order_id, "released")
        }
        InventoryEvent::ReservationExpired { reservation_id, order_id, .. } => {
            (reservation_id, order_id, "expired")
        }
        InventoryEvent::ProductCreated { .. } | InventoryEvent::StockAdded { .. } => return Ok(()),
    };
    let set = "reservation_id = $2, reservation_status = $3";
    update(tx, table, &order_id, set, &[reservation_id.into(), status.into()]).await
}

/// Changes the row of an order. The inventory takes reservations for any order; what is held for one that does not exist
/// cannot be told to anybody, so such an event is put aside.
async fn update(tx: &Tx, table: &str, order_id: &str, set: &str, values: &[Value]) -> Result<()> {
    let sql = format!("UPDATE {table} SET {set} WHERE order_id = $1");
    let params: Vec<Value> = [order_id.into()].into_iter().chain(values.iter().cloned()).collect();
    match tx.execute(&sql, &params).await? {
        0 => Err(Error::application(Failure::retryable(format!("there is no order {order_id}")))),
        _ => Ok(()),
    }
}

/// A row of `order_with_inventory`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderWithInventory {
    /// The order.
    pub order_id: String,
    /// How far it has come.
    pub order_status: String,
    /// What it costs.
    pub total_cents: i64,
    /// The latest reservation for it.
    pub reservation_id: Option<String>,
    /// How far that has come.
    pub reservation_status: Option<String>,
}

/// An order, and what is held for it.
pub async fn order_with_inventory(store: &Store, order_id: &str) -> Result<Option<OrderWithInventory>> {
    let read = async |tx: Tx, order_id: String| {
        let sql = "SELECT order_id, order_status, total_cents, reservation_id, reservation_status \
                   FROM order_with_inventory WHERE order_id = $1";
        let Some(row) = tx.query_optional(sql, params![order_id]).await? else { return Ok(None) };
        Ok(Some(OrderWithInventory {
            order_id: row.get(0)?,
            order_status: row.get(1)?,
            total_cents: row.get(2)?,
            reservation_id: row.get(3)?,
            reservation_status: row.get(4)?,
        }))
    };
    store.read_with(order_id.to_owned(), read).await
}
