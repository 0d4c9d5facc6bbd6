//! Audit of state changes under `/v1`, switched on by the configuration.

use super::{entries, verify};
use crate::client::{Request, get, post, request};
use crate::logged;
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

/// The secret of a lease lets its holder end work, so it is known to the worker alone.
#[test]
fn the_secret_of_a_lease_is_in_no_span_no_log_and_no_entry() {
    logged::start();
    for_each_store(async |place| {
        let server = start(&place, true).await;
        let operator = server.token(Role::Operator).await;
        let ask = async |request: Request| request.token(&operator).send(server.address).await;
        let claim = || post("/v1/pools/shop/claim", r#"{"functions":["send"],"maxItems":3}"#);
        assert_eq!(ask(claim()).await.status, 200);
        let trace_id = format!("{:032x}", server.address.port());
        let caller = format!("00-{trace_id}-00f067aa0ba902b7-01");
        let mut secrets = Vec::new();
        for _ in 0..2 {
            let item = json!({"function": "send", "args": 1});
            let items = json!({"items": [item, item, item]}).to_string();
            assert_eq!(ask(post("/v1/pools/shop/work", &items)).await.status, 200);
            let claimed = ask(claim()).await.json();
            let lease = claimed["lease"].as_str().unwrap().to_owned();
            let (number, secret) = lease.split_once('.').unwrap();
            secrets.push(secret.to_owned());
            let id = |index: usize| claimed["items"][index]["workId"].as_str().unwrap().to_owned();
            let body = json!({"lease": lease, "error": "no"}).to_string();
            for (request, status) in [
                (post(&format!("/v1/leases/{lease}/extend"), "{}"), 200),
                (post(&format!("/v1/leases/{number}%2E{secret}/extend"), "{}"), 200),
                (post(&format!("/v1/lease/{lease}/extend"), "{}"), 404),
                (post(&format!("/v1/work/{}/complete", id(0)), &json!({"lease": lease}).to_string()), 200),
                (post(&format!("/v1/work/{}/complete", id(0)), &json!({"lease": lease}).to_string()), 409),
                (post(&format!("/v1/work/{}/fail?lease={lease}", id(1)), &body), 200),
                (request("DELETE", &format!("/v1/leases/{lease}")), 200),
            ] {
                let answer = ask(request.header("traceparent", &caller)).await;
                assert_eq!(answer.status, status, "{answer:?}");
            }
        }
        let (all, spans, text) = (entries(&server.store).await, logged::spans(&trace_id), logged::text());
        let told = format!("{all:?}");
        assert!(
            spans.len() >= 14 && text.contains("/v1/leases/") && told.contains("/v1/leases/"),
            "{spans:?}"
        );
        for secret in secrets {
            assert!(!told.contains(&secret), "{told}");
            assert!(!format!("{spans:?}").contains(&secret), "{spans:?}");
            let line = text.lines().find(|line| line.contains(&secret));
            assert!(line.is_none(), "{line:?}");
        }
        let paths: Vec<_> = spans.iter().map(|span| span.get("path")).collect();
        assert!(paths.iter().any(|path| path.ends_with(".[hidden]/extend")), "{paths:?}");
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
