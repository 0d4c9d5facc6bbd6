//! Reservations.

use mainstay::flows::commands::testing::Given;
use order_management::inventory::{InventoryEvent, Quantity, Shortage};
use order_management::inventory::{MAX_PRODUCTS, MAX_QUANTITY, RESERVATION_TTL_MS};
use order_management::inventory::{ReservationCommand, ReservationStatus, Reservations};

const NOW_MS: i64 = 1_000;

fn r1() -> String {
    "r-1".to_owned()
}

fn o1() -> String {
    "o-1".to_owned()
}

fn items(items: &[(&str, i64)]) -> Vec<Quantity> {
    items.iter().map(|&(id, quantity)| Quantity { product_id: id.to_owned(), quantity }).collect()
}

/// A product of which there are some.
fn stocked(product: &str, quantity: i64) -> [InventoryEvent; 2] {
    let product_id = product.to_owned();
    let created = InventoryEvent::ProductCreated {
        product_id: product_id.clone(),
        sku: String::new(),
        unit_price_cents: 1,
    };
    [created, InventoryEvent::StockAdded { product_id, quantity }]
}

fn reserved(what: &[(&str, i64)]) -> InventoryEvent {
    let (reservation_id, order_id, expires_at) = (r1(), o1(), NOW_MS + RESERVATION_TTL_MS);
    InventoryEvent::StockReserved { reservation_id, order_id, items: items(what), expires_at }
}

fn confirmed() -> InventoryEvent {
    InventoryEvent::ReservationConfirmed { reservation_id: r1(), order_id: o1() }
}

fn released() -> InventoryEvent {
    let (items, reason) = (items(&[("lamp", 2)]), "cancelled".to_owned());
    InventoryEvent::ReservationReleased { reservation_id: r1(), order_id: o1(), items, reason }
}

fn expired() -> InventoryEvent {
    InventoryEvent::ReservationExpired { reservation_id: r1(), order_id: o1(), items: items(&[("lamp", 2)]) }
}

fn reserve(what: &[(&str, i64)]) -> ReservationCommand {
    ReservationCommand::ReserveStock { reservation_id: r1(), order_id: o1(), items: items(what) }
}

fn confirm() -> ReservationCommand {
    ReservationCommand::ConfirmReservation { reservation_id: r1() }
}

fn release() -> ReservationCommand {
    ReservationCommand::ReleaseReservation { reservation_id: r1(), reason: "cancelled".to_owned() }
}

fn expire() -> ReservationCommand {
    ReservationCommand::ExpireReservation { reservation_id: r1() }
}

/// Five lamps and one bulb.
fn shop() -> Given<Reservations> {
    Given::decider(Reservations).events(stocked("lamp", 5)).events(stocked("bulb", 1)).at(NOW_MS)
}

/// Two of the lamps are reserved.
fn held() -> Given<Reservations> {
    shop().events([reserved(&[("lamp", 2)])])
}

#[test]
fn several_products_are_reserved_together() {
    let both = [("lamp", 5), ("bulb", 1)];
    shop().when(reserve(&both)).then_events([reserved(&both)]).then_state(|stock| {
        let held = |id: &str| (stock.products[id].available, stock.products[id].reserved);
        assert_eq!((held("lamp"), held("bulb")), ((0, 5), (0, 1)));
    });
}

#[test]
fn of_several_products_all_are_reserved_or_none() {
    let shortages = vec![Shortage { product_id: "bulb".to_owned(), requested: 2, available: 1 }];
    let failed = InventoryEvent::ReservationFailed { reservation_id: r1(), order_id: o1(), shortages };
    let tried = shop().when(reserve(&[("lamp", 1), ("bulb", 2)]));
    tried.then_failed("INSUFFICIENT_STOCK", [failed.clone()]).then_state(|stock| {
        assert_eq!((stock.products["lamp"].available, stock.reservations.len()), (5, 0));
    });
    // With less of it, the same reservation can be made after all.
    shop().events([failed]).when(reserve(&[("bulb", 1)])).then_events([reserved(&[("bulb", 1)])]);
}

#[test]
fn what_makes_no_sense_is_rejected() {
    shop().when(reserve(&[])).then_rejected("EMPTY_RESERVATION");
    shop().when(reserve(&[("lamp", 1), ("lamp", 2)])).then_rejected("DUPLICATE_PRODUCT_IDS");
    shop().when(reserve(&[("lamp", 0)])).then_rejected("INVALID_QUANTITY");
    shop().when(reserve(&[("lamp", MAX_QUANTITY + 1)])).then_rejected("INVALID_QUANTITY");
    shop().when(reserve(&[("sofa", 1)])).then_rejected("PRODUCT_NOT_FOUND");
    held().when(reserve(&[("bulb", 1)])).then_rejected("RESERVATION_ALREADY_EXISTS");
    let names: Vec<String> = (0..=MAX_PRODUCTS).map(|number| format!("p-{number}")).collect();
    let many: Vec<(&str, i64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    shop().when(reserve(&many)).then_rejected("TOO_MANY_PRODUCTS");
    shop().when(reserve(&many[..MAX_PRODUCTS])).then_rejected("PRODUCT_NOT_FOUND");
}

#[test]
fn a_reservation_that_does_not_exist_is_not_found() {
    for command in [confirm(), release(), expire()] {
        shop().when(command).then_rejected("RESERVATION_NOT_FOUND");
    }
}

#[test]
fn a_reservation_is_confirmed_within_its_hour() {
    held().when(confirm()).then_events([confirmed()]);
    let last = NOW_MS + RESERVATION_TTL_MS - 1;
    held().at(last).when(confirm()).then_events([confirmed()]);
    held().at(last + 1).when(confirm()).then_rejected("RESERVATION_EXPIRED");
}

#[test]
fn a_reservation_expires_after_its_hour() {
    let end = NOW_MS + RESERVATION_TTL_MS;
    held().at(end - 1).when(expire()).then_rejected("RESERVATION_NOT_EXPIRED");
    held().at(end).when(expire()).then_events([expired()]).then_state(|stock| {
        assert_eq!(stock.reservations["r-1"].status, ReservationStatus::Expired);
    });
    held().events([confirmed()]).at(end).when(expire()).then_rejected("RESERVATION_NOT_PENDING");
}

#[test]
fn a_reservation_is_released_whether_confirmed_or_not_and_once() {
    held().when(release()).then_events([released()]);
    held().events([confirmed()]).when(release()).then_events([released()]);
    for over in [released(), expired()] {
        for command in [confirm(), release(), expire()] {
            held().events([over.clone()]).when(command).then_rejected("RESERVATION_NOT_PENDING");
        }
    }
}

#[test]
fn what_is_given_up_can_be_had_again() {
    let again = |over: InventoryEvent| {
        let other = ReservationCommand::ReserveStock {
            reservation_id: "r-2".to_owned(),
            order_id: "o-2".to_owned(),
            items: items(&[("lamp", 5)]),
        };
        held().events([over]).when(other)
    };
    again(released()).then_state(|stock| assert_eq!(stock.products["lamp"].reserved, 5));
    again(expired()).then_state(|stock| assert_eq!(stock.products["lamp"].reserved, 5));
    again(confirmed()).then(|decided| assert!(decided.as_ref().unwrap().events().len() == 1)).then_state(
        |stock| {
            assert_eq!(stock.products["lamp"].reserved, 2, "what is confirmed stays away");
        },
    );
}
