//! What is decided about reservations.

use super::event::{InventoryEvent, Quantity, Shortage};
use super::stock::{Reservation, ReservationStatus, Stock};
use super::{MAX_PRODUCTS, MAX_QUANTITY, RESERVATION_TTL_MS};
use mainstay::flows::commands::{Boundary, Decided, Decider, Decision, Moment, Rejection};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A command about a reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all_fields = "camelCase")]
pub enum ReservationCommand {
    /// Hold all of this for an order, or nothing.
    ReserveStock {
        /// The reservation.
        reservation_id: String,
        /// For which order.
        order_id: String,
        /// What, and how many.
        items: Vec<Quantity>,
    },
    /// Hold it for good.
    ConfirmReservation {
        /// The reservation.
        reservation_id: String,
    },
    /// Give it up.
    ReleaseReservation {
        /// The reservation.
        reservation_id: String,
        /// Why.
        reason: String,
    },
    /// Give it up because nobody confirmed it in time.
    ExpireReservation {
        /// The reservation.
        reservation_id: String,
    },
}

/// Decides about a reservation, on all of its products together.
#[derive(Debug, Clone, Copy)]
pub struct Reservations;

impl Decider for Reservations {
    type Command = ReservationCommand;
    type Event = InventoryEvent;
    type State = Stock;
    type Data = ();

    fn boundary(&self, command: &ReservationCommand) -> Boundary {
        let reservation = Boundary::tag(format!("reservation:{}", command.reservation_id()));
        match command {
            ReservationCommand::ReserveStock { items, .. } => {
                // More than are taken are refused anyway, whatever there is of them.
                let products = items.iter().take(MAX_PRODUCTS);
                reservation.or(Boundary::any_of(products.map(|item| format!("product:{}", item.product_id))))
            }
            _ => reservation,
        }
    }

    fn evolve(&self, stock: &mut Stock, event: InventoryEvent) {
        stock.evolve(event);
    }

    fn decide(
        &self,
        stock: &Stock,
        command: &ReservationCommand,
        moment: &Moment,
    ) -> Decided<InventoryEvent, ()> {
        let event = match command {
            ReservationCommand::ReserveStock { reservation_id, order_id, items } => {
                return reserve(stock, reservation_id, order_id, items, moment);
            }
            ReservationCommand::ConfirmReservation { reservation_id } => {
                let Reservation { order_id, expires_at, .. } = pending(stock, reservation_id)?;
                if moment.now_ms >= expires_at {
                    return Err(Rejection::new("RESERVATION_EXPIRED", "its time is over"));
                }
                InventoryEvent::ReservationConfirmed { reservation_id: reservation_id.clone(), order_id }
            }
            ReservationCommand::ReleaseReservation { reservation_id, reason } => {
                let Reservation { order_id, items, .. } = held(stock, reservation_id)?;
                let (reservation_id, reason) = (reservation_id.clone(), reason.clone());
                InventoryEvent::ReservationReleased { reservation_id, order_id, items, reason }
            }
            ReservationCommand::ExpireReservation { reservation_id } => {
                let Reservation { order_id, items, expires_at, .. } = pending(stock, reservation_id)?;
                if moment.now_ms < expires_at {
                    return Err(Rejection::new("RESERVATION_NOT_EXPIRED", "it still has time"));
                }
                InventoryEvent::ReservationExpired { reservation_id: reservation_id.clone(), order_id, items }
            }
        };
        Ok(Decision::success((), [event]))
    }
}

impl ReservationCommand {
    /// The reservation that it is about.
    pub fn reservation_id(&self) -> &str {
        match self {
            Self::ReserveStock { reservation_id, .. }
            | Self::ConfirmReservation { reservation_id }
            | Self::ReleaseReservation { reservation_id, .. }
            | Self::ExpireReservation { reservation_id } => reservation_id,
        }
    }
}

fn found(stock: &Stock, reservation_id: &str) -> Result<Reservation, Rejection> {
    let missing = || Rejection::new("RESERVATION_NOT_FOUND", "there is no such reservation");
    stock.reservations.get(reservation_id).cloned().ok_or_else(missing)
}

fn pending(stock: &Stock, reservation_id: &str) -> Result<Reservation, Rejection> {
    let reservation = found(stock, reservation_id)?;
    match reservation.status {
        ReservationStatus::Pending => Ok(reservation),
        other => Err(Rejection::new("RESERVATION_NOT_PENDING", format!("it is {other:?} already"))),
    }
}

/// A reservation that still holds something, confirmed or not.
fn held(stock: &Stock, reservation_id: &str) -> Result<Reservation, Rejection> {
    let reservation = found(stock, reservation_id)?;
    if reservation.status == ReservationStatus::Confirmed {
        Ok(reservation)
    } else {
        pending(stock, reservation_id)
    }
}

/// All of it, or nothing: then what there was not enough of is told.
fn reserve(
    stock: &Stock,
    reservation_id: &str,
    order_id: &str,
    items: &[Quantity],
    moment: &Moment,
) -> Decided<InventoryEvent, ()> {
    check(items)?;
    if stock.reservations.contains_key(reservation_id) {
        return Err(Rejection::new("RESERVATION_ALREADY_EXISTS", "a reservation is made once"));
    }
    let mut shortages = Vec::new();
    for Quantity { product_id, quantity } in items {
        let Some(product) = stock.products.get(product_id) else {
            return Err(Rejection::new("PRODUCT_NOT_FOUND", format!("there is no product {product_id}")));
        };
        if product.available < *quantity {
            let (product_id, requested) = (product_id.clone(), *quantity);
            shortages.push(Shortage { product_id, requested, available: product.available });
        }
    }
    let (reservation_id, order_id) = (reservation_id.to_owned(), order_id.to_owned());
    if !shortages.is_empty() {
        let failed = InventoryEvent::ReservationFailed { reservation_id, order_id, shortages };
        return Ok(Decision::failed("INSUFFICIENT_STOCK", [failed]));
    }
    let (items, expires_at) = (items.to_vec(), moment.now_ms + RESERVATION_TTL_MS);
    let reserved = InventoryEvent::StockReserved { reservation_id, order_id, items, expires_at };
    Ok(Decision::success((), [reserved]))
}

fn check(items: &[Quantity]) -> Result<(), Rejection> {
    if items.is_empty() {
        return Err(Rejection::new("EMPTY_RESERVATION", "there is nothing to reserve"));
    }
    if items.len() > MAX_PRODUCTS {
        let reason = format!("a reservation has at most {MAX_PRODUCTS} products");
        return Err(Rejection::new("TOO_MANY_PRODUCTS", reason));
    }
    let ids: BTreeSet<&str> = items.iter().map(|item| item.product_id.as_str()).collect();
    if ids.len() < items.len() {
        return Err(Rejection::new("DUPLICATE_PRODUCT_IDS", "a product is named once"));
    }
    if !items.iter().all(|item| (1..=MAX_QUANTITY).contains(&item.quantity)) {
        let reason = format!("1 to {MAX_QUANTITY} pieces of a product are reserved");
        return Err(Rejection::new("INVALID_QUANTITY", reason));
    }
    Ok(())
}
