//! An inbox as an extractor of axum: who is let through to a handler, and what is answered.

use super::inbox::{open, secret, take, taken};
use axum::Router;
use axum::body::Body;
use axum::extract::{FromRef, State};
use axum::http::Request;
use axum::routing::post;
use http_body_util::BodyExt;
use mainstay_flows::delivery::inbox::{self, Inbox, Incoming, Received, Reception, Refused};
use mainstay_store::{Error as StoreError, Store, Tx};
use mainstay_testkit::stores::for_each_store;
use mainstay_testkit::time::VirtualTime;
use mainstay_work::http::sign;
use mainstay_work::{Class, Failure};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tower_service::Service;

/// What a handler has beside its inbox.
#[derive(Clone)]
struct Context {
    inbox: Inbox,
    calls: Arc<AtomicUsize>,
}

impl FromRef<Context> for Inbox {
    fn from_ref(context: &Context) -> Self {
        context.inbox.clone()
    }
}

/// A handler that does as the event's type says.
async fn handle(State(context): State<Context>, incoming: Incoming) -> Result<Reception, Refused> {
    context.calls.fetch_add(1, Ordering::SeqCst);
    assert_eq!(incoming.idempotency_key(), format!("pub:{}:inventory", incoming.event().id));
    incoming
        .once(async |tx: Tx, received: Received| {
            let event_type = received.event.event_type.clone();
            take(tx, received).await?;
            match &*event_type {
                "NotNow" => Err(StoreError::application("not now")),
                "Never" => Err(StoreError::application(Failure::new(Class::ValidationError, "never"))),
                _ => Ok(()),
            }
        })
        .await
}

struct Bench {
    store: Store,
    router: Router,
    calls: Arc<AtomicUsize>,
}

impl Bench {
    fn new(store: Store) -> Self {
        let inbox = Inbox::new(&store, "inventory", [secret("s")]).unwrap();
        let calls = Arc::<AtomicUsize>::default();
        let context = Context { inbox, calls: calls.clone() };
        Self { store, router: Router::new().route("/events", post(handle)).with_state(context), calls }
    }

    /// The signature of a body by somebody, now.
    fn signed(&self, known: &str, body: &[u8]) -> String {
        sign(&[secret(known)], body, self.store.clock().now_ms())
    }

    /// Posts a body under headers; the status, and what the answer says.
    async fn post(&self, headers: &[(&str, &str)], body: &[u8]) -> (u16, Value) {
        let mut request = Request::post("/events");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_vec())).unwrap();
        let response = self.router.clone().call(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
        (head.status.as_u16(), body)
    }

    /// Posts a body as an honest sender does.
    async fn send(&self, body: &[u8]) -> (u16, Value) {
        self.post(&[("mainstay-signature", &self.signed("s", body))], body).await
    }
}

fn body(id: &str, event_type: &str) -> Vec<u8> {
    let event = json!({
        "specversion": "1.0", "id": id, "source": "orders", "type": event_type,
        "idempotencykey": format!("pub:{id}:inventory"), "data": { "orderId": "ord-1" },
    });
    event.to_string().into_bytes()
}

#[test]
fn an_event_that_is_posted_again_is_handled_once_and_both_are_told_that_it_came() {
    for_each_store(async |place| {
        let bench = Bench::new(open(place.options()).await);
        let one = body("evt-1", "OrderSubmitted");
        let signature = bench.signed("s", &one);
        let headers = [("mainstay-signature", &*signature), ("idempotency-key", "pub:evt-1:inventory")];
        assert_eq!(bench.post(&headers, &one).await, (200, json!({ "status": "handled" })));
        let again = (200, json!({ "status": "duplicate" }));
        assert_eq!(bench.post(&headers, &one).await, again, "replayed as it was");
        assert_eq!(bench.send(&one).await, again, "signed anew");
        assert_eq!(taken(&bench.store).await, ["evt-1"]);
    });
}

#[test]
fn who_is_not_known_gets_a_problem_with_a_code_and_the_handler_is_not_called() {
    for_each_store(async |place| {
        let options = place.options().component(inbox::COMPONENT);
        let (store, time) = VirtualTime::open_with(&place, options).await.unwrap();
        let bench = Bench::new(store);
        let one = body("evt-1", "OrderSubmitted");
        let good = bench.signed("s", &one);
        let forged = bench.signed("t", &one);
        let other = bench.signed("s", &body("evt-2", "OrderSubmitted"));
        let nothing = bench.signed("s", b"[]");
        let long = vec![b' '; inbox::MAX_BODY_BYTES + 1];
        let signed_long = bench.signed("s", &long);
        let (signature, key) = ("mainstay-signature", "idempotency-key");
        let (invalid, malformed) = ((401, "WEBHOOK_SIGNATURE_INVALID"), (400, "WEBHOOK_MALFORMED"));
        let cases = [
            ("no signature", vec![], &one[..], invalid),
            ("a stranger's", vec![(signature, &*forged)], &one, invalid),
            ("another body's", vec![(signature, &other)], &one, invalid),
            ("two", vec![(signature, &good), (signature, &good)], &one, malformed),
            ("under another key", vec![(signature, &good), (key, "pub:evt-9:inventory")], &one, malformed),
            ("no event", vec![(signature, &nothing)], b"[]", malformed),
            ("too long", vec![(signature, &signed_long)], &long, (413, "WEBHOOK_TOO_LARGE")),
        ];
        for (what, headers, body, (status, code)) in cases {
            let (answered, problem) = bench.post(&headers, body).await;
            assert_eq!((answered, &problem["code"]), (status, &json!(code)), "{what}");
            assert_eq!(problem["status"], json!(status), "{what}");
        }
        time.advance(301_000).await.unwrap();
        let (status, problem) = bench.post(&[(signature, &good)], &one).await;
        assert_eq!((status, &problem["code"]), (401, &json!("WEBHOOK_SIGNATURE_STALE")), "replayed late");
        assert_eq!(bench.calls.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_handler_that_fails_leaves_nothing_and_tells_the_sender_whether_to_try_again() {
    for_each_store(async |place| {
        let bench = Bench::new(open(place.options()).await);
        for (event_type, status, code) in
            [("NotNow", 503, "WEBHOOK_NOT_HANDLED"), ("Never", 422, "WEBHOOK_REFUSED")]
        {
            let (answered, problem) = bench.send(&body("evt-1", event_type)).await;
            assert_eq!((answered, &problem["code"]), (status, &json!(code)));
            assert!(!problem.to_string().contains("not now"), "a handler's words are for its own log");
        }
        assert_eq!(taken(&bench.store).await.len(), 0);
        let came = bench.send(&body("evt-1", "OrderSubmitted")).await;
        assert_eq!(came, (200, json!({ "status": "handled" })));
        assert_eq!(taken(&bench.store).await, ["evt-1"]);
    });
}
