//! The deciders on a log: what holds whatever is sent.

use mainstay::flows::commands::testing::Bench;
use mainstay::flows::commands::{Decider, Decision};
use order_management::inventory::{InventoryEvent, MAX_PRODUCTS, Product, ProductCommand, Products};
use order_management::inventory::{Quantity, ReservationCommand, Reservations, Stock};
use order_management::orders::{Customer, OrderCommand, OrderEvent, Orders};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

const PRODUCTS: [&str; 3] = ["lamp", "bulb", "sofa"];

#[derive(Debug, Clone)]
enum Step {
    Product(ProductCommand),
    Reservation(ReservationCommand),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let product = prop::sample::select(&PRODUCTS[..]).prop_map(str::to_owned);
    let id = (0..6_u8).prop_map(|number| format!("r-{number}"));
    let items = prop::collection::vec((product.clone(), 0..8_i64), 0..4).prop_map(|items| {
        items.into_iter().map(|(product_id, quantity)| Quantity { product_id, quantity }).collect::<Vec<_>>()
    });
    let step = prop_oneof![
        1 => product.clone().prop_map(|product_id| Step::Product(ProductCommand::CreateProduct {
            product_id,
            sku: "s".to_owned(),
            unit_price_cents: 1,
        })),
        1 => (product, 0..10_i64).prop_map(|(product_id, quantity)| Step::Product(ProductCommand::AddStock {
            product_id,
            quantity
        })),
        3 => (id.clone(), items).prop_map(|(reservation_id, items)| {
            let order_id = reservation_id.clone();
            Step::Reservation(ReservationCommand::ReserveStock { reservation_id, order_id, items })
        }),
        1 => id.clone().prop_map(|reservation_id| Step::Reservation(ReservationCommand::ConfirmReservation {
            reservation_id
        })),
        1 => id.clone().prop_map(|reservation_id| Step::Reservation(ReservationCommand::ReleaseReservation {
            reservation_id,
            reason: String::new(),
        })),
        1 => id.prop_map(|reservation_id| Step::Reservation(ReservationCommand::ExpireReservation {
            reservation_id
        })),
        1 => (0..90_u64).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..40)
}

async fn run(steps: Vec<Step>) -> Vec<InventoryEvent> {
    let bench = Bench::open().await.unwrap();
    // Little of everything but the sofa, so that there soon is not enough.
    for product_id in ["lamp", "bulb"].map(str::to_owned) {
        let sku = String::new();
        let created =
            InventoryEvent::ProductCreated { product_id: product_id.clone(), sku, unit_price_cents: 1 };
        bench.given([created, InventoryEvent::StockAdded { product_id, quantity: 9 }]).await.unwrap();
    }
    for step in steps {
        // That something is rejected is fine here.
        match step {
            Step::Product(command) => drop(bench.when(Products, command).await.unwrap()),
            Step::Reservation(command) => drop(bench.when(Reservations, command).await.unwrap()),
            Step::Wait(minutes) => bench.advance(Duration::from_secs(60 * minutes)),
        }
    }
    bench.events().await.unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Nothing is sold twice and nothing gets lost, at any time.
    #[test]
    fn stock_is_conserved_and_never_below_nothing(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut stock = Stock::default();
        let mut added = BTreeMap::<String, i64>::new();
        for event in runtime.block_on(run(steps)) {
            if let InventoryEvent::StockAdded { product_id, quantity } = &event {
                *added.entry(product_id.clone()).or_default() += quantity;
            }
            Reservations.evolve(&mut stock, event);
            for (id, &Product { available, reserved, .. }) in &stock.products {
                prop_assert!(available >= 0 && reserved >= 0, "{id}: {available} and {reserved}");
                prop_assert_eq!(available + reserved, added.get(id).copied().unwrap_or(0));
            }
        }
    }
}

#[tokio::test]
async fn an_order_is_submitted_reserved_and_confirmed() {
    let bench = Bench::open().await.unwrap();
    let (id, product_id) = (|| "o-1".to_owned(), || "lamp".to_owned());
    let create =
        ProductCommand::CreateProduct { product_id: product_id(), sku: "L".to_owned(), unit_price_cents: 5 };
    bench.when(Products, create).await.unwrap().unwrap();
    let add = ProductCommand::AddStock { product_id: product_id(), quantity: 2 };
    bench.when(Products, add).await.unwrap().unwrap();

    let customer = Customer { id: "c-1".to_owned(), name: None, email: None };
    for command in [
        OrderCommand::CreateOrder { order_id: id(), customer_id: "c-1".to_owned() },
        OrderCommand::AddOrderItem {
            order_id: id(),
            product_id: product_id(),
            quantity: 2,
            unit_price_cents: 5,
        },
        OrderCommand::SubmitOrder { order_id: id(), customer },
    ] {
        bench.when(Orders, command).await.unwrap().unwrap();
    }
    let reserve = |reservation: &str| ReservationCommand::ReserveStock {
        reservation_id: reservation.to_owned(),
        order_id: id(),
        items: vec![Quantity { product_id: product_id(), quantity: 2 }],
    };
    bench.when(Reservations, reserve("r-1")).await.unwrap().unwrap();
    let late = bench.when(Reservations, reserve("r-2")).await.unwrap().unwrap();
    assert!(matches!(late, Decision::Failed { reason, .. } if reason == "INSUFFICIENT_STOCK"));
    let confirm = ReservationCommand::ConfirmReservation { reservation_id: "r-1".to_owned() };
    bench.when(Reservations, confirm).await.unwrap().unwrap();
    bench.when(Orders, OrderCommand::ConfirmOrder { order_id: id() }).await.unwrap().unwrap();

    // Orders and reservations share the tag of the order, and neither decider minds the other's events.
    let orders: Vec<OrderEvent> = bench.events().await.unwrap();
    assert_eq!(orders.last(), Some(&OrderEvent::OrderConfirmed { order_id: id() }));
    assert_eq!(bench.log().stream_version("Order", "o-1").await.unwrap(), 4);
}

#[tokio::test]
async fn the_largest_reservation_fits_into_the_log() {
    let bench = Bench::open().await.unwrap();
    let ids: Vec<String> = (0..MAX_PRODUCTS).map(|number| format!("p-{number}")).collect();
    for product_id in ids.iter().cloned() {
        let created = InventoryEvent::ProductCreated {
            product_id: product_id.clone(),
            sku: String::new(),
            unit_price_cents: 1,
        };
        bench.given([created, InventoryEvent::StockAdded { product_id, quantity: 1 }]).await.unwrap();
    }
    let reserve = |reservation_id: &str| ReservationCommand::ReserveStock {
        reservation_id: reservation_id.to_owned(),
        order_id: "o-1".to_owned(),
        items: ids.iter().cloned().map(|product_id| Quantity { product_id, quantity: 1 }).collect(),
    };
    bench.when(Reservations, reserve("r-1")).await.unwrap().unwrap();
    let Decision::Failed { events, .. } = bench.when(Reservations, reserve("r-2")).await.unwrap().unwrap()
    else {
        panic!("everything is reserved");
    };
    let [InventoryEvent::ReservationFailed { shortages, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(shortages.len(), MAX_PRODUCTS);
}
