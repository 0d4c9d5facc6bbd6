//! Audit of state changes under `/v1`, switched on by the configuration.

use super::{entries, verify};
use crate::client::{get, post, request};
use crate::running::{Running, options};
use mainstay_events::NewEvent;
use mainstay_server::audit::Outcome;
use mainstay_server::{Builder, Role, equipped};
use mainstay_testkit::stores::{Place, for_each_store};
use mainstay_work::Pool;
use serde_json::json;

async fn start(place: &Place, audits: bool) -> Running {
    let store = equipped(place.options()).open().await.unwrap();
    let services = Builder::on_store(store.clone()).open().await.unwrap();
    services.work.pool(Pool::new("shop")).await.unwrap();
    Running::start_with(options().audit_v1(audits), services).await
}

#[test]
fn what_applications_change_is_written_down_where_it_is_asked_for() {
    for_each_store(async |place| {
        let server = start(&place, true).await;
        let operator = server.token(Role::Operator).await;
        let reader = server.token(Role::Reader).await;
        let event = json!({"type": "Placed", "eventId": "evt-1", "data": {"to": "canary"}});
        let append = post("/v1/events", &json!({"events": [event]}).to_string());
        let once = append.clone().token(&operator).header("Idempotency-Key", "k-1");
        for _ in 0..2 {
            assert_eq!(once.send(server.address).await.status, 200);
        }
        append.clone().token(&reader).send(server.address).await.problem(403, "UNAUTHORIZED");
        append.token(&operator).send(server.address).await.problem(409, "EVENT_ID_TAKEN");
        assert_eq!(get("/v1/events").token(&operator).send(server.address).await.status, 200);
        let claim = post("/v1/pools/shop/claim", r#"{"functions":["send"]}"#).token(&operator);
        assert_eq!(claim.send(server.address).await.status, 200);
        let work = post("/v1/pools/shop/work", r#"{"function":"send","args":"canary"}"#).token(&operator);
        assert_eq!(work.send(server.address).await.status, 200);
        // A circuit's call is a route with a parameter.
        let unknown = request("DELETE", "/v1/work/none").token(&operator);
        assert_eq!(unknown.send(server.address).await.status, 404);

        let all = entries(&server.store).await;
        let told: Vec<_> =
            all.iter().map(|entry| (entry.action.as_str(), entry.outcome, entry.code.as_deref())).collect();
        assert_eq!(
            told,
            [
                // Once: what a repeated request is answered from memory changes nothing.
                ("POST /v1/events", Outcome::Done, None),
                ("POST /v1/events", Outcome::Refused, Some("UNAUTHORIZED")),
                ("POST /v1/events", Outcome::Refused, Some("EVENT_ID_TAKEN")),
                ("POST /v1/pools/{pool}/claim", Outcome::Done, None),
                ("POST /v1/pools/{pool}/work", Outcome::Done, None),
                ("DELETE /v1/work/{id}", Outcome::Refused, Some("WORK_NOT_FOUND")),
            ]
        );
        let event = &all[0].args["body"]["events"][0];
        assert_eq!((&event["eventId"], &event["data"]), (&json!("evt-1"), &json!("[15 bytes]")), "{all:?}");
        assert!(!format!("{all:?}").contains("canary"), "what applications keep is not repeated: {all:?}");
        assert!(operator.contains(&all[0].user_id) && all[0].role.as_deref() == Some("operator"));
        verify(&server.store, None).await.unwrap();
    });
}

#[test]
fn what_applications_change_is_not_written_down_unless_it_is_asked_for() {
    for_each_store(async |place| {
        let server = start(&place, false).await;
        let operator = server.token(Role::Operator).await;
        let reader = server.token(Role::Reader).await;
        let event = serde_json::to_value(NewEvent::new("Placed", &1).unwrap()).unwrap();
        let append = post("/v1/events", &json!({"events": [event]}).to_string());
        assert_eq!(append.clone().token(&operator).send(server.address).await.status, 200);
        append.token(&reader).send(server.address).await.problem(403, "UNAUTHORIZED");
        assert!(entries(&server.store).await.is_empty());
    });
}
