//! Other contexts hear of orders: inventory in the same store, notifications by webhook.

use super::{PATIENCE, Shop};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use mainstay::flows::delivery::publications::{PublicEvent, Status};
use mainstay::work::egress::Egress;
use mainstay::work::http::Secret;
use mainstay_testkit::stores::{Place, for_each_store};
use order_management::OrderManagement;
use order_management::integration::{INVENTORY, NOTIFICATIONS, notifications_at};
use order_management::inventory::demand;
use order_management::notifications::NotificationService;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;

/// The service of notifications, at the end of a line on which answers get lost.
struct Notifications {
    service: NotificationService,
    url: String,
    requests: Arc<AtomicUsize>,
    serving: tokio::task::JoinHandle<std::io::Result<()>>,
    _place: Place,
}

impl Notifications {
    async fn start(place: &Place, lost_answers: usize) -> Self {
        let place = Place::new(place.kind());
        let service = NotificationService::open(place.options(), Secret::new("s")).await.unwrap();
        let requests = Arc::<AtomicUsize>::default();
        let counted = requests.clone();
        let router = service.router().layer(from_fn(move |request: Request, next: Next| {
            let is_lost = counted.fetch_add(1, Ordering::SeqCst) < lost_answers;
            async move {
                let answer = next.run(request).await;
                if is_lost { StatusCode::BAD_GATEWAY.into_response() } else { answer }
            }
        }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/events", listener.local_addr().unwrap());
        let serving = tokio::spawn(axum::serve(listener, router).into_future());
        Self { service, url, requests, serving, _place: place }
    }

    /// The shop beside it, which signs with a secret.
    async fn shop(&self, place: &Place, secret: &str) -> Shop {
        let egress = Egress::new(&["127.0.0.1".to_owned()]).unwrap();
        let webhook = notifications_at(&self.url, Secret::new(secret).unwrap(), egress).unwrap();
        Shop(OrderManagement::open_beside(place.options(), Some(webhook)).await.unwrap())
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    async fn close(self) {
        self.serving.abort();
        self.service.stop().await;
    }
}

/// Where the first submitted order stands with each target, and how often it was tried.
async fn published(shop: &Shop) -> Vec<(String, Status, u32)> {
    let submitted = &shop.happened("OrderSubmitted", 1).await[0];
    let all = shop.0.published(submitted.id(), PATIENCE).await.unwrap();
    all.into_iter().map(|one| (one.target_context, one.status, one.attempt_count)).collect()
}

#[test]
fn b_166_b_273_a_submitted_order_is_delivered_to_inventory_and_notifications() {
    for_each_store(async |place| {
        let notifications = Notifications::start(&place, 0).await;
        let shop = notifications.shop(&place, "s").await;
        shop.submit("o-1", "lamp", 2).await;
        shop.submit("o-2", "lamp", 3).await;
        for submitted in shop.happened("OrderSubmitted", 2).await {
            let all = shop.0.published(submitted.id(), PATIENCE).await.unwrap();
            let seen = all.iter().map(|one| (one.target_context.as_str(), one.status));
            assert!(seen.eq([(INVENTORY, Status::Delivered), (NOTIFICATIONS, Status::Delivered)]), "{all:?}");
            assert!(all.iter().all(|one| one.event_type == "OrderPlacedIntegration"), "{all:?}");
        }
        assert_eq!(demand(shop.0.store(), "lamp").await.unwrap(), 5);
        let mails = notifications.service.mails("o-2").await.unwrap();
        assert_eq!(mails, ["We have your order o-2 of 3 pieces."]);
        shop.close().await;
        notifications.close().await;
    });
}

#[test]
fn a_notification_is_written_once_although_the_webhook_is_delivered_twice() {
    for_each_store(async |place| {
        let notifications = Notifications::start(&place, 1).await;
        let shop = notifications.shop(&place, "s").await;
        shop.submit("o-1", "lamp", 2).await;
        let expected =
            [(INVENTORY.to_owned(), Status::Delivered, 1), (NOTIFICATIONS.to_owned(), Status::Delivered, 2)];
        assert_eq!(published(&shop).await, expected);
        assert_eq!(notifications.requests(), 2);
        assert_eq!(notifications.service.mails("o-1").await.unwrap().len(), 1);
        shop.close().await;
        notifications.close().await;
    });
}

#[test]
fn b_175_a_service_that_does_not_know_the_secret_takes_nothing_and_inventory_hears_of_it_all_the_same() {
    for_each_store(async |place| {
        let notifications = Notifications::start(&place, 0).await;
        let shop = notifications.shop(&place, "another").await;
        shop.submit("o-1", "lamp", 2).await;
        let expected =
            [(INVENTORY.to_owned(), Status::Delivered, 1), (NOTIFICATIONS.to_owned(), Status::Failed, 1)];
        assert_eq!(published(&shop).await, expected);
        assert_eq!(notifications.service.mails("o-1").await.unwrap().len(), 0);
        assert_eq!(demand(shop.0.store(), "lamp").await.unwrap(), 2);
        shop.close().await;
        notifications.close().await;
    });
}

#[test]
fn what_others_cannot_read_is_a_letter_and_the_first_version_of_an_order_can_be_read() {
    for_each_store(async |place| {
        let notifications = Notifications::start(&place, 0).await;
        let shop = notifications.shop(&place, "s").await;
        let publisher = shop.0.mainstay().publisher();
        let line = serde_json::json!([{ "productId": "lamp", "quantity": 4, "unitPriceCents": 1 }]);
        let first = serde_json::json!({
            "orderId": "o-1", "customerId": "ada", "items": line, "totalCents": 4,
        });
        for (id, data) in [("evt-1", &first), ("evt-2", &serde_json::json!({ "orderId": "o-2" }))] {
            let event = PublicEvent::new(id, "OrderSubmitted", data).unwrap();
            publisher.publish_event(event, "orders", [NOTIFICATIONS]).await.unwrap();
        }
        let statuses = async |id: &str| {
            let all = shop.0.published(id, PATIENCE).await.unwrap();
            all.into_iter().map(|one| (one.status, one.error)).next().unwrap()
        };
        assert_eq!(statuses("evt-1").await, (Status::Delivered, None));
        assert_eq!(notifications.service.mails("o-1").await.unwrap().len(), 1);
        let (status, error) = statuses("evt-2").await;
        assert_eq!(status, Status::Failed);
        assert!(error.as_ref().is_some_and(|error| error.contains("OrderSubmitted has data")), "{error:?}");
        assert_eq!(notifications.requests(), 1, "what cannot be translated is not sent");
        shop.close().await;
        notifications.close().await;
    });
}
