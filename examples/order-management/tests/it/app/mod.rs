//! The application, on every kind of store.

mod expiry;
mod fold;
mod fulfilment;
mod integration;
mod poison;
mod rebuild;
mod story;

use mainstay::events::{Event, Selection};
use mainstay::flows::commands::{Dispatched, Outcome};
use mainstay_testkit::stores::Place;
use order_management::OrderManagement;
use order_management::inventory::{ProductCommand, Quantity, ReservationCommand};
use order_management::orders::{Customer, OrderCommand};
use serde::Serialize;
use std::time::Duration;

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The application with some things to do to it.
struct Shop(OrderManagement);

impl Shop {
    async fn open(place: &Place) -> Self {
        Self(OrderManagement::open(place.options()).await.unwrap())
    }

    async fn close(self) {
        self.0.stop(PATIENCE).await.unwrap();
    }

    async fn send(&self, command: &impl Serialize) -> Dispatched {
        self.0.dispatch(command).await.unwrap()
    }

    /// Sends a command that must succeed.
    async fn done(&self, command: &impl Serialize) {
        let Dispatched { outcome, .. } = self.send(command).await;
        assert!(matches!(outcome, Outcome::Success { .. }), "{outcome:?}");
    }

    async fn stock(&self, product: &str, quantity: i64) {
        let (product_id, sku) = (product.to_owned(), product.to_uppercase());
        self.done(&ProductCommand::CreateProduct { product_id, sku, unit_price_cents: 500 }).await;
        self.done(&ProductCommand::AddStock { product_id: product.to_owned(), quantity }).await;
    }

    async fn create(&self, order: &str) {
        let customer_id = "ada".to_owned();
        self.done(&OrderCommand::CreateOrder { order_id: order.to_owned(), customer_id }).await;
    }

    /// Drafts an order of one product, and submits it.
    async fn submit(&self, order: &str, product: &str, quantity: i64) {
        let order_id = || order.to_owned();
        self.create(order).await;
        let (product_id, unit_price_cents) = (product.to_owned(), 500);
        self.done(&OrderCommand::AddOrderItem {
            order_id: order_id(),
            product_id,
            quantity,
            unit_price_cents,
        })
        .await;
        let customer = Customer { id: "ada".to_owned(), name: Some("Ada".to_owned()), email: None };
        self.done(&OrderCommand::SubmitOrder { order_id: order_id(), customer }).await;
    }

    /// Reserves some of a product for an order; the reservation is `r-` and the order.
    async fn reserve(&self, order: &str, product: &str, quantity: i64) -> Outcome {
        let items = vec![Quantity { product_id: product.to_owned(), quantity }];
        let (reservation_id, order_id) = (format!("r-{order}"), order.to_owned());
        self.send(&ReservationCommand::ReserveStock { reservation_id, order_id, items }).await.outcome
    }

    async fn confirm_reservation(&self, order: &str) {
        let reservation_id = format!("r-{order}");
        self.done(&ReservationCommand::ConfirmReservation { reservation_id }).await;
    }

    async fn confirm(&self, order: &str) {
        self.done(&OrderCommand::ConfirmOrder { order_id: order.to_owned() }).await;
    }

    async fn cancel(&self, order: &str) {
        let reason = "changed my mind".to_owned();
        self.done(&OrderCommand::CancelOrder { order_id: order.to_owned(), reason }).await;
    }

    /// Waits until there are so many events of a type.
    async fn happened(&self, event_type: &str, times: usize) -> Vec<Event> {
        let log = self.0.mainstay().log();
        loop {
            let page = log.read(&Selection::all().of_type(event_type).unwrap(), 1_000).await.unwrap();
            if page.events.len() >= times {
                return page.events;
            }
            log.wait_for(page.head + 1, PATIENCE).await.unwrap();
        }
    }

    /// Waits until a projection shows all of the log.
    async fn shows(&self, projection: &str) {
        self.0.wait_for(projection, PATIENCE).await.unwrap();
    }
}
