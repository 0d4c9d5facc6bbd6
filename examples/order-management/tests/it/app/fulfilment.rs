//! Orders that fulfil themselves, beside a provider of payments that is not always well.

use super::{PATIENCE, Shop};
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use mainstay::flows::dead_letters::{Action, Filter};
use mainstay::guards::circuits::{Settings, State as Circuit, Trip};
use mainstay::work::egress::Egress;
use mainstay::work::http::Secret;
use mainstay_testkit::stores::{Place, for_each_store};
use order_management::payments::{CIRCUIT, PaymentProvider};
use order_management::projections::{ORDER_SUMMARY, PRODUCT_CATALOG, catalog, summary};
use order_management::{Neighbours, OrderManagement};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;

/// What the provider has done, and whether it is well.
#[derive(Default)]
struct Books {
    charged: BTreeMap<String, i64>,
    refunded: BTreeMap<String, i64>,
    calls: usize,
    /// So many calls fail from now on.
    failing: usize,
    /// So many answers get lost although it was charged.
    lost: usize,
}

/// A provider of payments at a port of its own.
struct Provider {
    books: Arc<Mutex<Books>>,
    url: String,
    serving: tokio::task::JoinHandle<std::io::Result<()>>,
}

type Answer = Result<String, StatusCode>;

async fn charge(State(books): State<Arc<Mutex<Books>>>, body: String) -> Answer {
    let call: Value = serde_json::from_str(&body).unwrap();
    let mut books = books.lock().unwrap();
    books.calls += 1;
    if books.failing > 0 {
        books.failing -= 1;
        return Err(StatusCode::SERVICE_UNAVAILABLE);
    }
    let (payment, amount) = (&call["args"]["paymentId"], call["args"]["amountCents"].as_i64().unwrap());
    if amount > 10_000 {
        return Ok(json!({ "status": "declined", "reason": "too much" }).to_string());
    }
    *books.charged.entry(payment.as_str().unwrap().to_owned()).or_insert(0) = amount;
    if books.lost > 0 {
        books.lost -= 1;
        return Err(StatusCode::BAD_GATEWAY);
    }
    Ok(json!({ "status": "done", "receipt": format!("ch-{}", payment.as_str().unwrap()) }).to_string())
}

async fn refund(State(books): State<Arc<Mutex<Books>>>, body: String) -> Answer {
    let call: Value = serde_json::from_str(&body).unwrap();
    let (payment, amount) = (&call["args"]["paymentId"], call["args"]["amountCents"].as_i64().unwrap());
    books.lock().unwrap().refunded.insert(payment.as_str().unwrap().to_owned(), amount);
    Ok(json!({ "status": "done", "receipt": "re-1" }).to_string())
}

impl Provider {
    async fn start() -> Self {
        let books = Arc::<Mutex<Books>>::default();
        let router = Router::new().route("/charges", post(charge)).route("/refunds", post(refund));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(axum::serve(listener, router.with_state(books.clone())).into_future());
        Self { books, url, serving }
    }

    /// The shop beside it, which tries twice, and opens its circuit after two failures for a very short time.
    async fn shop(&self, place: &Place, failure_threshold: u32) -> Shop {
        let egress = Egress::new(&["127.0.0.1".to_owned()]).unwrap();
        let trip = Trip::Consecutive { failure_threshold };
        let provider = PaymentProvider::at(&self.url, Secret::new("s").unwrap(), egress)
            .unwrap()
            .circuit(Settings { trip, reset_timeout_ms: 20, ..Settings::default() })
            .attempts(2, Duration::from_millis(1))
            .unwrap();
        let neighbours = Neighbours { payments: Some(provider), ..Neighbours::default() };
        Shop(OrderManagement::open_among(place.options(), neighbours).await.unwrap())
    }

    fn books(&self) -> std::sync::MutexGuard<'_, Books> {
        self.books.lock().unwrap()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn status(shop: &Shop, order: &str) -> String {
    shop.shows(ORDER_SUMMARY).await;
    summary(shop.0.store(), order).await.unwrap().unwrap().status
}

async fn availability(shop: &Shop) -> (i64, i64) {
    shop.shows(PRODUCT_CATALOG).await;
    let entry = catalog(shop.0.store(), "lamp").await.unwrap().unwrap();
    (entry.available, entry.reserved)
}

#[test]
fn a_submitted_order_is_reserved_for_paid_and_confirmed_and_all_of_it_is_one_correlation() {
    for_each_store(async |place| {
        let provider = Provider::start().await;
        let shop = provider.shop(&place, 5).await;
        shop.stock("lamp", 5).await;
        shop.submit("o-1", "lamp", 2).await;
        let confirmed = shop.happened("ReservationConfirmed", 1).await;
        let submitted = shop.happened("OrderSubmitted", 1).await;
        shop.happened("OrderConfirmed", 1).await;
        assert_eq!(confirmed[0].correlation_id(), submitted[0].correlation_id());
        assert_eq!(status(&shop, "o-1").await, "confirmed");
        assert_eq!(availability(&shop).await, (3, 2));
        assert_eq!(provider.books().charged, BTreeMap::from([("p-o-1".to_owned(), 1_000)]));
        shop.close().await;
    });
}

#[test]
fn an_order_that_cannot_be_had_or_paid_is_cancelled_and_holds_nothing() {
    for_each_store(async |place| {
        let provider = Provider::start().await;
        let shop = provider.shop(&place, 5).await;
        shop.stock("lamp", 30).await;
        // More than there are, and more than the provider lets through.
        shop.submit("o-1", "lamp", 31).await;
        shop.submit("o-2", "lamp", 21).await;
        shop.happened("OrderCancelled", 2).await;
        shop.happened("ReservationReleased", 1).await;
        for order in ["o-1", "o-2"] {
            assert_eq!(status(&shop, order).await, "cancelled");
        }
        assert_eq!(availability(&shop).await, (30, 0));
        assert!(provider.books().charged.is_empty());
        shop.close().await;
    });
}

#[test]
fn an_order_that_is_cancelled_after_it_was_paid_is_given_back() {
    for_each_store(async |place| {
        let provider = Provider::start().await;
        let shop = provider.shop(&place, 5).await;
        shop.stock("lamp", 5).await;
        shop.submit("o-1", "lamp", 2).await;
        shop.happened("ReservationConfirmed", 1).await;
        shop.happened("OrderConfirmed", 1).await;
        shop.cancel("o-1").await;
        shop.happened("PaymentRefunded", 1).await;
        shop.happened("ReservationReleased", 1).await;
        assert_eq!(provider.books().refunded, BTreeMap::from([("p-o-1".to_owned(), 1_000)]));
        assert_eq!(availability(&shop).await, (5, 0));
        shop.close().await;
    });
}

#[test]
fn a_charge_whose_answer_gets_lost_is_asked_for_again_and_made_once() {
    for_each_store(async |place| {
        let provider = Provider::start().await;
        let shop = provider.shop(&place, 5).await;
        provider.books().lost = 1;
        shop.stock("lamp", 5).await;
        shop.submit("o-1", "lamp", 2).await;
        shop.happened("OrderConfirmed", 1).await;
        assert_eq!(shop.happened("PaymentCompleted", 1).await.len(), 1);
        let calls = provider.books().calls;
        assert_eq!((calls, provider.books().charged.len()), (2, 1));
        shop.close().await;
    });
}

#[test]
fn a_provider_that_is_down_opens_the_circuit_and_letters_that_are_tried_again_are_paid_once() {
    for_each_store(async |place| {
        let provider = Provider::start().await;
        let shop = provider.shop(&place, 2).await;
        provider.books().failing = 2;
        shop.stock("lamp", 50).await;
        shop.submit("o-1", "lamp", 1).await;
        let house = shop.0.mainstay();
        // Both of its attempts fail, and it is a letter. The payment is still to be made.
        let letter = async {
            loop {
                let listed = house.dead_letters().list(Filter::default(), None, 10).await.unwrap().letters;
                if let Some(letter) = listed.into_iter().next() {
                    return letter;
                }
                tokio::task::yield_now().await;
            }
        };
        let letter = tokio::time::timeout(PATIENCE, letter).await.unwrap();
        assert_eq!((letter.kind.as_str(), letter.name.as_str()), ("work", "payments.charge"));
        house.circuits().flush().await.unwrap();
        assert_ne!(house.circuits().status(CIRCUIT).await.unwrap().state, Circuit::Closed);
        assert_eq!(status(&shop, "o-1").await, "submitted");

        let retry = house.dead_letters().preview(Action::Retry, Filter::default(), "ada").await.unwrap();
        house.dead_letters().run(&retry.operation_id).await.unwrap();
        shop.happened("OrderConfirmed", 1).await;
        let paid = shop.happened("PaymentCompleted", 1).await;
        assert_eq!((paid.len(), provider.books().charged.len()), (1, 1));
        // The probe has succeeded.
        house.circuits().flush().await.unwrap();
        assert_eq!(house.circuits().status(CIRCUIT).await.unwrap().state, Circuit::Closed);
        assert_eq!(house.dead_letters().stats(Filter::default()).await.unwrap().pending, 0);
        shop.close().await;
    });
}
