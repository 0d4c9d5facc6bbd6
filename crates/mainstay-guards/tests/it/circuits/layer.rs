//! A service behind a circuit, as axum has it.

use super::house::{House, open};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::routing::get;
use http_body_util::BodyExt;
use mainstay_core::circuit::Gate;
use mainstay_guards::circuits::CircuitLayer;
use mainstay_testkit::stores::{Kind, for_each_kind, for_each_store};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use tower::ServiceExt;

/// Answers with a status that can be changed, and counts.
#[derive(Clone, Default)]
struct Backend(Arc<(AtomicU16, AtomicUsize)>);

impl Backend {
    fn router(&self, layer: CircuitLayer<Response<Body>, Infallible>) -> Router {
        let backend = self.clone();
        let handler = move || async move {
            backend.0.1.fetch_add(1, Ordering::SeqCst);
            StatusCode::from_u16(backend.0.0.load(Ordering::SeqCst)).unwrap()
        };
        Router::new().route("/", get(handler)).layer(layer)
    }

    fn answer(&self, status: u16) {
        self.0.0.store(status, Ordering::SeqCst);
    }

    fn calls(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }
}

async fn ask(router: &Router) -> Response<Body> {
    router.clone().oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap()
}

#[test]
fn a_backend_that_is_not_well_is_left_alone_and_clients_are_told_when_to_come_back() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let circuit = house.circuits.circuit("stripe-api").unwrap();
        let backend = Backend::default();
        let router = backend.router(CircuitLayer::http(Arc::new(circuit.clone())));
        for status in [200, 404, 422, 501] {
            backend.answer(status);
            for _ in 0..2 {
                assert_eq!(ask(&router).await.status(), status);
            }
        }
        assert_eq!(circuit.gate(), Gate::Open, "these are answers");
        backend.answer(503);
        for _ in 0..3 {
            assert_eq!(ask(&router).await.status(), 503);
        }
        house.circuits.flush().await.unwrap();
        let calls = backend.calls();
        let refused = ask(&router).await;
        assert_eq!((refused.status(), backend.calls()), (StatusCode::SERVICE_UNAVAILABLE, calls));
        assert_eq!(refused.headers()["content-type"], "application/problem+json");
        assert_eq!(refused.headers()["retry-after"], "60");
        let body = refused.into_body().collect().await.unwrap().to_bytes();
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem["code"], "CIRCUIT_OPEN");
        assert_eq!(problem["detail"], "CIRCUIT_OPEN:stripe-api");
        house.advance(60_000).await;
        backend.answer(200);
        assert_eq!(ask(&router).await.status(), 200, "the probe");
        house.circuits.flush().await.unwrap();
        assert_eq!(ask(&router).await.status(), 200);
    });
}

#[test]
fn a_service_of_any_kind_has_its_own_judge() {
    for_each_kind(&[Kind::SqliteMemory], async |place| {
        let house = House::open(place).await;
        let circuit = house.circuits.circuit("mail").unwrap();
        open(&house.circuits, &circuit).await;
        let layer: CircuitLayer<u32, String> =
            CircuitLayer::new(Arc::new(circuit), |_| None, |rejected| Err(rejected.to_string()));
        let service =
            tower_layer::Layer::layer(&layer, tower::service_fn(async |_: ()| Ok::<u32, String>(7)));
        assert_eq!(service.oneshot(()).await, Err("CIRCUIT_OPEN:mail".to_owned()));
    });
}
