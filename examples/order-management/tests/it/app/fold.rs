//! What read models must show, by the states of the domain instead of SQL.

use mainstay::events::{Log, Selection};
use mainstay::flows::commands::{Decider, decode};
use mainstay::store::{Store, Tx};
use order_management::inventory::{InventoryEvent, ReservationStatus, Reservations, Stock};
use order_management::orders::{Order, OrderEvent, Orders, Status};
use std::collections::BTreeMap;

/// The rows of each table, as text.
pub(super) type Models = BTreeMap<&'static str, Vec<String>>;

/// A column of text for each row, in order.
const TABLES: [(&str, &str); 5] = [
    ("order_summary", "customer_id || ' ' || status || ' ' || item_count || ' ' || total_cents"),
    ("stock_availability", "available || ' ' || reserved"),
    ("active_reservations", "order_id || ' ' || status || ' ' || pieces"),
    (
        "customer_cancellations",
        "customer_id || ' ' || CASE WHEN cancelled_at IS NULL THEN 'kept' ELSE 'cancelled' END",
    ),
    (
        "order_with_inventory",
        "order_status || ' ' || total_cents || ' ' || coalesce(reservation_status, 'none')",
    ),
];

/// What the read models show.
pub(super) async fn read(store: &Store) -> Models {
    let read = async |tx: Tx| {
        let mut models = Models::new();
        for (table, columns) in TABLES {
            let key = match table {
                "stock_availability" => "product_id",
                "active_reservations" => "reservation_id",
                _ => "order_id",
            };
            let sql = format!("SELECT {key} || ' ' || {columns} FROM {table} ORDER BY {key}");
            let rows = tx.query(&sql, &[]).await?;
            let rows = rows.iter().map(|row| row.get(0)).collect::<mainstay::store::Result<_>>()?;
            models.insert(table, rows);
        }
        Ok(models)
    };
    store.read(read).await.unwrap()
}

/// What they must show: a fold of the whole log.
pub(super) async fn of(log: &Log) -> Models {
    let (mut orders, mut stock) = (BTreeMap::<String, (Order, i64)>::new(), Stock::default());
    let mut latest = BTreeMap::<String, &'static str>::new();
    let mut after = Some(0);
    while let Some(from) = after {
        let page = log.read(&Selection::all().after(from), 1_000).await.unwrap();
        after = page.next;
        for event in &page.events {
            if let Ok(event) = decode::<OrderEvent>(event) {
                let (order, submitted) = orders.entry(event.order_id().to_owned()).or_default();
                if let OrderEvent::OrderSubmitted { total_cents, .. } = &event {
                    *submitted = *total_cents;
                }
                Orders.evolve(order, event);
            } else if let Ok(event) = decode::<InventoryEvent>(event) {
                latest.extend(reservation(&event));
                Reservations.evolve(&mut stock, event);
            }
        }
    }
    let by_order = |row: &dyn Fn(&str, &(Order, i64)) -> String| -> Vec<String> {
        orders.iter().map(|(id, order)| row(id, order)).collect()
    };
    let summary = |id: &str, (order, _): &(Order, i64)| {
        let (customer, items) = (&order.customer_id, order.items.len());
        format!("{id} {customer} {} {items} {}", status(order), order.total_cents())
    };
    let cancellations = |id: &str, (order, _): &(Order, i64)| {
        let is_cancelled = order.status == Status::Cancelled;
        format!("{id} {} {}", order.customer_id, if is_cancelled { "cancelled" } else { "kept" })
    };
    let whole = |id: &str, (order, total): &(Order, i64)| {
        format!("{id} {} {total} {}", status(order), latest.get(id).unwrap_or(&"none"))
    };
    let held = stock.reservations.iter().filter_map(|(id, reservation)| {
        let status = match reservation.status {
            ReservationStatus::Pending => "pending",
            ReservationStatus::Confirmed => "confirmed",
            ReservationStatus::Released | ReservationStatus::Expired => return None,
        };
        let pieces: i64 = reservation.items.iter().map(|item| item.quantity).sum();
        Some(format!("{id} {} {status} {pieces}", reservation.order_id))
    });
    let products = stock.products.iter();
    BTreeMap::from([
        ("order_summary", by_order(&summary)),
        (
            "stock_availability",
            products.map(|(id, p)| format!("{id} {} {}", p.available, p.reserved)).collect(),
        ),
        ("active_reservations", held.collect()),
        ("customer_cancellations", by_order(&cancellations)),
        ("order_with_inventory", by_order(&whole)),
    ])
}

fn status(order: &Order) -> &'static str {
    match order.status {
        Status::Missing => "missing",
        Status::Draft => "draft",
        Status::Submitted => "submitted",
        Status::Confirmed => "confirmed",
        Status::Cancelled => "cancelled",
    }
}

/// How far the latest reservation of an order has come.
fn reservation(event: &InventoryEvent) -> Option<(String, &'static str)> {
    let (order_id, status) = match event {
        InventoryEvent::StockReserved { order_id, .. } => (order_id, "pending"),
        InventoryEvent::ReservationFailed { order_id, .. } => (order_id, "failed"),
        InventoryEvent::ReservationConfirmed { order_id, .. } => (order_id, "confirmed"),
        InventoryEvent::ReservationReleased { order_id, .. } => (order_id, "released"),
        InventoryEvent::ReservationExpired { order_id, .. } => (order_id, "expired"),
        InventoryEvent::ProductCreated { .. } | InventoryEvent::StockAdded { .. } => return None,
    };
    Some((order_id.clone(), status))
}
