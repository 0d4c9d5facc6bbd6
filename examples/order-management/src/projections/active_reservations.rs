//! `activeReservations`: what is held for orders, and until when. The expiry of reservations rests on it.

use super::{LANES, by_tag};
use crate::inventory::InventoryEvent;
use mainstay::events::Event;
use mainstay::flows::commands::decode;
use mainstay::flows::projections::{Category, Kind, Model, Projection};
use mainstay::store::{Result, Store, Tx, params};

/// The projection's name.
pub const ACTIVE_RESERVATIONS: &str = "activeReservations";

const CREATE: &str = "CREATE TABLE {table} (
    reservation_id TEXT COLLATE \"binary\" NOT NULL PRIMARY KEY,
    order_id TEXT COLLATE \"binary\" NOT NULL,
    status TEXT NOT NULL,
    pieces BIGINT NOT NULL,
    expires_at BIGINT NOT NULL)";
const BY_EXPIRY: &str = "CREATE INDEX {table}_by_expiry ON {table} (status, expires_at)";

pub(super) fn projection() -> Projection {
    Projection::new(ACTIVE_RESERVATIONS, Category::Logic)
        .description("Reservations that hold something")
        .kind(Kind::Secondary)
        .on(["StockReserved", "ReservationConfirmed", "ReservationReleased", "ReservationExpired"])
        .partitioned(LANES, by_tag("reservation"))
        .table("active_reservations", &[CREATE, BY_EXPIRY])
        .each(apply)
}

async fn apply(tx: Tx, model: Model, event: Event) -> Result<()> {
    let table = model.table("active_reservations")?;
    match decode::<InventoryEvent>(&event)? {
        InventoryEvent::StockReserved { reservation_id, order_id, items, expires_at } => {
            let pieces: i64 = items.iter().map(|item| item.quantity).sum();
            let sql = format!(
                "INSERT INTO {table} (reservation_id, order_id, status, pieces, expires_at) \
                 VALUES ($1, $2, 'pending', $3, $4)"
            );
            tx.execute(&sql, params![reservation_id, order_id, pieces, expires_at]).await.map(drop)
        }
        InventoryEvent::ReservationConfirmed { reservation_id, .. } => {
            let sql = format!("UPDATE {table} SET status = 'confirmed' WHERE reservation_id = $1");
            tx.execute(&sql, params![reservation_id]).await.map(drop)
        }
        InventoryEvent::ReservationReleased { reservation_id, .. }
        | InventoryEvent::ReservationExpired { reservation_id, .. } => {
            let sql = format!("DELETE FROM {table} WHERE reservation_id = $1");
            tx.execute(&sql, params![reservation_id]).await.map(drop)
        }
        InventoryEvent::ProductCreated { .. }
        | InventoryEvent::StockAdded { .. }
        | InventoryEvent::ReservationFailed { .. } => Ok(()),
    }
}

/// Reservations that nobody confirmed until `now_ms`, the longest over first.
pub async fn expired(store: &Store, now_ms: i64, limit: i64) -> Result<Vec<String>> {
    let read = async |tx: Tx, (now_ms, limit): (i64, i64)| {
        let sql = "SELECT reservation_id FROM active_reservations \
                   WHERE status = 'pending' AND expires_at <= $1 ORDER BY expires_at, reservation_id LIMIT $2";
        let rows = tx.query(sql, params![now_ms, limit]).await?;
        rows.iter().map(|row| row.get(0)).collect()
    };
    store.read_with((now_ms, limit), read).await
}
