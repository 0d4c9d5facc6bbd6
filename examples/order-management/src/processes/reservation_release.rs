//! `reservationReleaseOnOrderCancel`: OrderCancelled → ReleaseReservation.
//!
//! It remembers which reservations orders hold and which orders were cancelled, so that it releases what is held when an
//! order is cancelled, and what is reserved only after that.

use super::wanted::want;
use crate::inventory::{InventoryEvent, ReservationCommand};
use crate::orders::OrderEvent;
use crate::projections::by_tag;
use mainstay::Handle;
use mainstay::events::Event;
use mainstay::flows::commands::{Command, decode};
use mainstay::flows::projections::{Category, Kind, Model, Projection};
use mainstay::store::{Result, Tx, params};

/// The process manager's name.
pub const RESERVATION_RELEASE: &str = "reservationReleaseOnOrderCancel";

pub(super) const TABLES: [&str; 2] = [
    "CREATE TABLE release_held (
    order_id TEXT COLLATE \"binary\" NOT NULL,
    reservation_id TEXT COLLATE \"binary\" NOT NULL,
    PRIMARY KEY (order_id, reservation_id))",
    "CREATE TABLE release_cancelled (order_id TEXT COLLATE \"binary\" NOT NULL PRIMARY KEY)",
];

const HOLD: &str =
    "INSERT INTO release_held (order_id, reservation_id) VALUES ($1, $2) ON CONFLICT DO NOTHING";
const HELD: &str = "SELECT reservation_id FROM release_held WHERE order_id = $1 ORDER BY reservation_id";
const LET_GO: &str = "DELETE FROM release_held WHERE order_id = $1 AND reservation_id = $2";
const CANCEL: &str = "INSERT INTO release_cancelled (order_id) VALUES ($1) ON CONFLICT DO NOTHING";
const IS_CANCELLED: &str = "SELECT order_id FROM release_cancelled WHERE order_id = $1";

/// Events of one order are taken in order, whichever context they are of.
pub(super) fn projection(handle: &Handle) -> Projection {
    let handle = handle.clone();
    Projection::new(RESERVATION_RELEASE, Category::Logic)
        .description("Releases what is held for cancelled orders")
        .kind(Kind::CrossContext)
        .on(["OrderCancelled", "StockReserved", "ReservationReleased", "ReservationExpired"])
        .partitioned(2, by_tag("order"))
        .each(move |tx: Tx, _: Model, event: Event| {
            let handle = handle.clone();
            async move { apply(&handle, &tx, &event).await }
        })
}

async fn apply(handle: &Handle, tx: &Tx, event: &Event) -> Result<()> {
    if event.event_type() == "OrderCancelled" {
        return cancelled(handle, tx, event).await;
    }
    match decode(event)? {
        InventoryEvent::StockReserved { reservation_id, order_id, .. } => {
            tx.execute(HOLD, params![&order_id, &reservation_id]).await?;
            match tx.query_optional(IS_CANCELLED, params![order_id]).await? {
                Some(_) => release(handle, tx, event, reservation_id),
                None => Ok(()),
            }
        }
        InventoryEvent::ReservationReleased { reservation_id, order_id, .. }
        | InventoryEvent::ReservationExpired { reservation_id, order_id, .. } => {
            tx.execute(LET_GO, params![order_id, reservation_id]).await.map(drop)
        }
        _ => Ok(()),
    }
}

async fn cancelled(handle: &Handle, tx: &Tx, event: &Event) -> Result<()> {
    let order: OrderEvent = decode(event)?;
    tx.execute(CANCEL, params![order.order_id()]).await?;
    for row in tx.query(HELD, params![order.order_id()]).await? {
        release(handle, tx, event, row.get(0)?)?;
    }
    Ok(())
}

fn release(handle: &Handle, tx: &Tx, event: &Event, reservation_id: String) -> Result<()> {
    let key = reservation_id.clone();
    let command = ReservationCommand::ReleaseReservation {
        reservation_id,
        reason: "the order was cancelled".to_owned(),
    };
    want(handle, tx, (RESERVATION_RELEASE, event, &key), Command::of(&command)?)
}
