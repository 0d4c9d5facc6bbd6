//! Publications over HTTP: publishing, looking, and what is done about those that did not come.

use crate::asking::Asking;
use crate::client::{get, post};
use crate::running::{Running, options};
use mainstay_events::{Append, NewEvent};
use mainstay_flows::commands::Commands;
use mainstay_flows::delivery::publications::{Delivery, Retry, Target, Targets};
use mainstay_flows::projections::Registry;
use mainstay_server::{Builder, Role, Services, equipped};
use mainstay_testkit::stores::{Place, for_each_store};
use mainstay_work::{Engine, Failure};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

struct House {
    server: Running,
    services: Services,
    _engine: Engine,
    admin: Asking,
    /// Whether analytics takes events.
    is_well: Arc<AtomicBool>,
}

impl House {
    /// `inventory` takes everything, `analytics` refuses until it is well.
    async fn open(place: &Place) -> Self {
        let is_well = Arc::new(AtomicBool::new(false));
        let well = is_well.clone();
        let analytics = Target::subscriber("analytics", move |_: Delivery| {
            let is_well = well.load(Ordering::SeqCst);
            async move { if is_well { Ok(()) } else { Err(Failure::permanent("no")) } }
        });
        let targets = Targets::new(Retry { max_retries: 5, initial_backoff_ms: 1, base: 1.0 })
            .with(Target::subscriber("inventory", async |_: Delivery| Ok(())))
            .with(analytics);
        let store = equipped(place.options()).open().await.unwrap();
        let (commands, registry) = (Commands::new(), Registry::new());
        let services = Builder::on_store(store.clone())
            .commands(commands)
            .projections(registry)
            .targets(targets)
            .open()
            .await;
        let services = services.unwrap();
        let engine = services.work.start().await.unwrap();
        let server = Running::start_with(options(), services.clone()).await;
        let admin = Asking::new(&server, Role::Admin).await;
        Self { server, services, _engine: engine, admin, is_well }
    }

    async fn event(&self) -> String {
        let event = NewEvent::new("OrderSubmitted", &json!({ "orderId": "ord-1" })).unwrap();
        let appended = self.services.log.append(Append::from(event.correlation("corr-1"))).await.unwrap();
        appended.events[0].event_id.clone()
    }

    /// Waits until the publications of an event stand so, in the order of their targets.
    async fn until(&self, event_id: &str, statuses: &[&str]) -> Value {
        let stand_so = |body: &Value| {
            let publications = body["publications"].as_array().unwrap();
            publications.iter().map(|one| &one["status"]).eq(statuses)
        };
        self.admin.until(&format!("/v1/publications/{event_id}"), stand_so).await
    }
}

fn both(event_id: &str) -> Value {
    json!({ "eventId": event_id, "sourceContext": "orders", "targetContexts": ["inventory", "analytics"] })
}

#[test]
fn b_273_an_event_is_published_once_and_its_publications_are_looked_at() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let id = house.event().await;
        let published = house.admin.post("/v1/publications", both(&id)).await;
        let is_new = |one: &Value| one["isDuplicate"] == false;
        assert!(published["publications"].as_array().unwrap().iter().all(is_new), "{published}");
        let found = house.until(&id, &["failed", "delivered"]).await;
        let (analytics, inventory) = (&found["publications"][0], &found["publications"][1]);
        assert_eq!(
            (&analytics["targetContext"], &analytics["attemptCount"]),
            (&json!("analytics"), &json!(1))
        );
        assert_eq!(analytics["error"], "permanentServiceError: no");
        assert_eq!((&inventory["eventId"], &inventory["error"]), (&json!(id), &Value::Null));
        let again = house.admin.post("/v1/publications", both(&id)).await;
        assert_eq!(again["publications"][0]["isDuplicate"], true);

        let all = house.admin.get("/admin/publications?limit=1").await;
        let next = all["next"].as_str().unwrap();
        let rest = house.admin.get(&format!("/admin/publications?limit=5&cursor={next}")).await;
        assert_eq!((rest["publications"].as_array().unwrap().len(), &rest["next"]), (1, &Value::Null));
        let failed = house.admin.get("/admin/publications?target=analytics&status=failed").await;
        assert_eq!(failed["publications"].as_array().unwrap().len(), 1);
        let dead = house.admin.get("/admin/publications?status=dead_letter").await;
        assert_eq!(dead["publications"], json!([]));
    });
}

#[test]
fn letters_are_listed_counted_retried_and_ignored() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let mut ids = Vec::new();
        for _ in 0..3 {
            let id = house.event().await;
            house.admin.post("/v1/publications", both(&id)).await;
            house.until(&id, &["failed", "delivered"]).await;
            ids.push(id);
        }
        let letters =
            house.admin.get("/admin/publications/letters?target=analytics&correlationId=corr-1").await;
        assert_eq!(letters["letters"].as_array().unwrap().len(), 3);
        assert_eq!(letters["letters"][0]["event"]["data"], json!({ "orderId": "ord-1" }));
        let stats = house.admin.get("/admin/publications/letters/stats").await;
        assert_eq!(stats["byTargetAndStatus"], json!({ "analytics:pending": 3, "inventory:pending": 0 }));

        let letter = |id: &str, what: &str| format!("/admin/publications/letters/analytics/{id}{what}");
        house.admin.post(&letter(&ids[0], "/ignore"), json!({})).await;
        let left = house.until(&ids[0], &["failed", "delivered"]).await;
        assert_eq!(left["publications"][0]["letter"], "ignored");
        assert_eq!(left["publications"][1]["letter"], Value::Null, "{left}");
        let ignored = house.admin.refusal(post(&letter(&ids[0], "/ignore"), "{}")).await;
        assert_eq!(ignored, (409, "PUBLICATION_LETTER_NOT_PENDING".to_owned()));
        house.is_well.store(true, Ordering::SeqCst);
        let retried = house.admin.post(&letter(&ids[1], "/retry"), json!({})).await;
        assert!(retried["workId"].as_str().unwrap().starts_with("work_"));
        house.until(&ids[1], &["delivered", "delivered"]).await;
        assert_eq!(house.admin.get(&letter(&ids[1], "")).await["status"], "retried");
        let of_publications = json!({ "kind": "publication", "name": "analytics" });
        let wanted = json!({ "action": "retry", "filter": of_publications, "limit": 5 });
        let many = house.admin.post("/admin/dead-letter-operations", wanted).await;
        assert_eq!(many["total"], 1, "{many}");
        let operation = format!("/admin/dead-letter-operations/{}", many["operationId"].as_str().unwrap());
        house.admin.post(&format!("{operation}/run"), json!({})).await;
        house.until(&ids[2], &["delivered", "delivered"]).await;
    });
}

#[test]
fn what_cannot_be_published_is_refused_with_its_code() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let id = house.event().await;
        let publish = |id: &str, target: &str| {
            let body = json!({ "eventId": id, "sourceContext": "orders", "targetContexts": [target] });
            post("/v1/publications", &body.to_string())
        };
        for (request, status, code) in [
            (publish(&id, "nowhere"), 422, "UNKNOWN_TARGET"),
            (publish("unknown", "inventory"), 404, "EVENT_NOT_FOUND"),
            (post("/v1/publications", "{}"), 400, "BODY_INVALID"),
            (get("/v1/publications/unknown"), 404, "PUBLICATION_NOT_FOUND"),
            (get("/admin/publications?status=lost"), 400, "QUERY_INVALID"),
            (get("/admin/publications?limit=0"), 400, "QUERY_INVALID"),
            (get("/admin/publications/letters/analytics/unknown"), 404, "PUBLICATION_LETTER_NOT_FOUND"),
            (post("/admin/publications/letters/nowhere/x/retry", "{}"), 422, "UNKNOWN_TARGET"),
        ] {
            assert_eq!(house.admin.refusal(request).await, (status, code.to_owned()));
        }
        let reader = house.server.token(Role::Reader).await;
        let read = publish(&id, "inventory").token(&reader).send(house.server.address).await;
        assert_eq!(read.status, 403);
    });
}
