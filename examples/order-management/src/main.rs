//! A short story of two orders, on stores that are gone afterwards.

use anyhow::Context;
use mainstay::events::{Event, Selection};
use mainstay::flows::commands::Outcome;
use mainstay::flows::projections::replay::Rebuild;
use mainstay::store::Options;
use mainstay::work::egress::Egress;
use mainstay::work::http::Secret;
use order_management::OrderManagement;
use order_management::integration::notifications_at;
use order_management::inventory::{ProductCommand, Quantity, ReservationCommand};
use order_management::notifications::NotificationService;
use order_management::orders::{Customer, OrderCommand};
use order_management::projections::{ORDER_SUMMARY, PRODUCT_CATALOG, catalog, summary};
use serde::Serialize;
use std::time::Duration;
use tokio::net::TcpListener;

const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = |name: &str| Options::new(format!("sqlite:{}", folder.path().join(name).display()));
    let secret = Secret::new("a long one in earnest, known to both").context("it is empty")?;
    let notifications = NotificationService::open(file("notifications.db"), [secret.clone()]).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/events", listener.local_addr()?);
    let serving = tokio::spawn(axum::serve(listener, notifications.router()).into_future());
    // Addresses of this machine are not reached unless it is said that they may be.
    let webhook = notifications_at(&url, secret, Egress::new(&["127.0.0.1".to_owned()])?)?;
    let app = OrderManagement::open_beside(file("shop.db"), Some(webhook)).await?;
    let lamp = || "lamp".to_owned();
    let create =
        ProductCommand::CreateProduct { product_id: lamp(), sku: "L-1".into(), unit_price_cents: 4_500 };
    tell(&app, "a lamp is on the shelf", &create).await?;
    tell(&app, "three of them", &ProductCommand::AddStock { product_id: lamp(), quantity: 3 }).await?;

    for (order_id, quantity) in [("o-1", 2), ("o-2", 2)] {
        submit(&app, order_id, quantity).await?;
        let items = vec![Quantity { product_id: lamp(), quantity }];
        let (reservation_id, order_id) = (format!("r-{order_id}"), order_id.to_owned());
        let reserve = ReservationCommand::ReserveStock { reservation_id, order_id, items };
        tell(&app, "lamps are reserved", &reserve).await?;
    }
    let confirm = ReservationCommand::ConfirmReservation { reservation_id: "r-o-1".into() };
    tell(&app, "they are kept for o-1", &confirm).await?;
    tell(&app, "o-1 is accepted", &OrderCommand::ConfirmOrder { order_id: "o-1".into() }).await?;
    let told = follow(&app, "NotificationRequested").await?;
    println!("{:<24} {}", "its customer is told", told.data().unwrap_or_default());

    let cancel = OrderCommand::CancelOrder { order_id: "o-1".into(), reason: "too dark".into() };
    tell(&app, "o-1 is cancelled", &cancel).await?;
    let released = follow(&app, "ReservationReleased").await?;
    println!("{:<24} {}", "so its lamps are free", released.data().unwrap_or_default());

    let rebuild = app.mainstay().projections().trigger_rebuild(Rebuild::of(PRODUCT_CATALOG)).await?;
    // Whoever asks for the catalogue meanwhile is answered from the one before.
    app.mainstay().projections().wait_for_rebuild(&rebuild.replay_id, PATIENCE).await?;
    app.wait_for(PRODUCT_CATALOG, PATIENCE).await?;
    app.wait_for(ORDER_SUMMARY, PATIENCE).await?;
    println!("{:<24} {:?}", "the catalogue, rebuilt", catalog(app.store(), "lamp").await?);
    println!("{:<24} {:?}", "the first order", summary(app.store(), "o-1").await?);
    let submitted = follow(&app, "OrderSubmitted").await?;
    for publication in app.published(submitted.id(), PATIENCE).await? {
        println!("{:<24} {:?}", format!("{} heard of it", publication.target_context), publication.status);
    }
    println!("{:<24} {:?}", "so ada is told", notifications.mails("o-1").await?);
    app.stop(PATIENCE).await?;
    serving.abort();
    notifications.stop().await;
    Ok(())
}

/// Drafts an order and submits it.
async fn submit(app: &OrderManagement, order_id: &str, quantity: i64) -> anyhow::Result<()> {
    let (id, customer_id) = (|| order_id.to_owned(), "ada".to_owned());
    app.dispatch(&OrderCommand::CreateOrder { order_id: id(), customer_id: customer_id.clone() }).await?;
    let (product_id, unit_price_cents) = ("lamp".to_owned(), 4_500);
    let add = OrderCommand::AddOrderItem { order_id: id(), product_id, quantity, unit_price_cents };
    app.dispatch(&add).await?;
    let customer = Customer { id: customer_id, name: Some("Ada".to_owned()), email: None };
    tell(app, &format!("{order_id} is submitted"), &OrderCommand::SubmitOrder { order_id: id(), customer })
        .await
}

/// Dispatches a command, and prints what came of it.
async fn tell(app: &OrderManagement, what: &str, command: &impl Serialize) -> anyhow::Result<()> {
    let dispatched = app.dispatch(command).await?;
    let answer = match &dispatched.outcome {
        Outcome::Success { events, .. } => {
            let positions: Vec<String> = events.iter().map(|event| event.position.to_string()).collect();
            format!("event {}", positions.join(", "))
        }
        Outcome::Rejected { code, .. } => code.clone(),
        Outcome::Failed { reason, .. } => reason.clone(),
        Outcome::Deferred(deferred) => format!("tried again in {} ms", deferred.scheduled_after_ms),
    };
    println!("{what:<24} {answer}");
    Ok(())
}

/// Waits for the first event of a type.
async fn follow(app: &OrderManagement, event_type: &str) -> anyhow::Result<Event> {
    let log = app.mainstay().log();
    loop {
        let page = log.read(&Selection::all().of_type(event_type)?, 1).await?;
        if let Some(event) = page.events.into_iter().next() {
            return Ok(event);
        }
        log.wait_for(page.head + 1, PATIENCE).await?;
    }
}
