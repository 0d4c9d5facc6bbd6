//! Intents over HTTP, on a server that knows no Rust of an application's.

use crate::asking::Asking;
use crate::client::{get, post};
use crate::running::{Running, options};
use mainstay_server::{Builder, Role, Services, equipped};
use mainstay_testkit::stores::{Place, for_each_store};
use mainstay_work::FunctionKind;
use serde_json::{Value, json};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

struct House {
    _server: Running,
    services: Services,
    admin: Asking,
}

impl House {
    async fn open(place: &Place) -> Self {
        let store = equipped(place.options()).open().await.unwrap();
        let services = Builder::on_store(store.clone()).open().await.unwrap();
        let server = Running::start_with(options(), services.clone()).await;
        let admin = Asking::new(&server, Role::Admin).await;
        Self { _server: server, services, admin }
    }

    async fn refused(&self, path: &str, body: Value) -> (u16, Value) {
        let (status, problem) = self.admin.ask(post(path, &body.to_string())).await;
        assert!(status >= 400, "{problem}");
        (status, problem)
    }
}

fn submission(order: &str) -> Value {
    json!({
        "operationType": "OrderSubmission", "streamType": "Order", "streamId": order, "boundedContext": "orders",
        "timeoutMs": 300_000, "onTimeout": "abandon", "metadata": { "total": 7 },
    })
}

#[test]
fn an_operation_is_begun_completed_and_found_over_http() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let begun = house.admin.post("/v1/intents", submission("ord 1/a")).await;
        let key = begun["intentKey"].as_str().unwrap();
        assert!(key.starts_with("OrderSubmission:Order:ord 1/a:"), "{begun}");
        assert_eq!(begun["isDuplicate"], false);
        let path = key.replace(' ', "%20").replace('/', "%2F");
        let seen = house.admin.get(&format!("/admin/intents/{path}")).await;
        assert_eq!((&seen["status"], &seen["metadata"]), (&json!("pending"), &json!({ "total": 7 })));
        assert_eq!(seen["onTimeout"], json!({ "policy": "abandon" }));
        let orphans = house.admin.get("/v1/intents/orphans?operationType=OrderSubmission").await;
        assert_eq!(orphans["intents"][0]["intentKey"], begun["intentKey"]);
        assert!(orphans["intents"][0]["timeSinceIntent"].as_i64().unwrap() >= 0);

        let complete = format!("/v1/intents/{path}/complete");
        let done = json!({ "status": "success", "result": { "charge": "ch-1" } });
        let ended = house.admin.post(&complete, done.clone()).await;
        assert_eq!((&ended["status"], &ended["isDuplicate"]), (&json!("completed"), &json!(false)));
        let again = house.admin.post(&complete, done).await;
        assert_eq!(
            (&again["isDuplicate"], &again["completionEventId"]),
            (&json!(true), &ended["completionEventId"])
        );
        let (status, late) = house.refused(&complete, json!({ "status": "failure", "error": "no" })).await;
        assert_eq!(
            (status, &late["code"], &late["currentStatus"]),
            (409, &json!("INTENT_ALREADY_ENDED"), &json!("completed"))
        );
        assert_eq!(house.admin.get("/v1/intents/orphans").await, json!({ "intents": [] }));
        let types: Vec<Value> = house.admin.get("/v1/events").await["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["type"].clone())
            .collect();
        assert_eq!(types, ["OrderSubmissionStarted", "OrderSubmitted"]);
    });
}

#[test]
fn b_182_time_is_up_and_a_handler_is_called_without_any_rust() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        house.services.work.declare("resubmit", FunctionKind::Action).await.unwrap();
        let engine = house.services.work.start().await.unwrap();
        let mut asked = submission("1");
        asked["timeoutMs"] = json!(10);
        asked["onTimeout"] = json!("retry");
        asked["handler"] = json!("resubmit");
        asked["maxRetries"] = json!(2);
        let begun = house.admin.post("/v1/intents", asked).await;
        let path = format!("/admin/intents/{}", begun["intentKey"].as_str().unwrap());
        let seen = house.admin.until(&path, |seen| seen["status"] == "abandoned").await;
        assert_eq!((&seen["timeouts"], &seen["error"]), (&json!(2), &json!("timeout")));
        // The handler's calls wait for whoever pulls them.
        let pending = house.admin.get("/v1/pools/retrier").await;
        assert_eq!(pending["pending"], 2, "{pending}");
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn intents_are_listed_page_by_page_and_abandoned_by_operators() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        for number in 0..5 {
            let mut asked = submission(&number.to_string());
            asked["startedAt"] = json!(1_000 + number);
            asked["correlationId"] = json!(format!("corr-{}", number % 2));
            house.admin.post("/v1/intents", asked).await;
        }
        let abandoned = house
            .admin
            .post("/admin/intents/OrderSubmission:Order:3:1003/abandon", json!({ "reason": "a mistake" }))
            .await;
        assert_eq!(abandoned["status"], "abandoned");
        let streams = |page: &Value| -> Vec<String> {
            let intents = page["intents"].as_array().unwrap();
            intents.iter().map(|intent| intent["streamId"].as_str().unwrap().to_owned()).collect()
        };
        let first = house.admin.get("/admin/intents?limit=2").await;
        assert_eq!(streams(&first), ["4", "3"]);
        let next = first["next"].as_str().unwrap().replace(':', "%3A");
        assert_eq!(
            streams(&house.admin.get(&format!("/admin/intents?limit=2&cursor={next}")).await),
            ["2", "1"]
        );
        assert_eq!(streams(&house.admin.get("/admin/intents?status=abandoned").await), ["3"]);
        assert_eq!(
            streams(&house.admin.get("/admin/intents?status=pending&correlationId=corr-1").await),
            ["1"]
        );
        assert_eq!(streams(&house.admin.get("/v1/intents/orphans?limit=3").await), ["0", "1", "2"]);
        let old = house.admin.get("/v1/intents/orphans?olderThanMs=18446744073709551615").await;
        assert!(streams(&old).is_empty());
        let again = house.admin.post("/v1/intents", {
            let mut asked = submission("2");
            asked["startedAt"] = json!(1_002);
            asked
        });
        assert_eq!(again.await["isDuplicate"], true);
    });
}

#[test]
fn what_cannot_be_an_intent_is_refused_with_a_reason() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let with = |name: &str, value: Value| {
            let mut asked = submission("1");
            asked[name] = value;
            asked
        };
        let bad = [
            (with("timeoutMs", json!(0)), 400, "FLOW_INVALID"),
            (with("operationType", json!("")), 400, "FLOW_INVALID"),
            (with("operationType", json!("a\u{0}b")), 400, "FLOW_INVALID"),
            (with("onTimeout", json!("retry")), 400, "FLOW_INVALID"),
            (with("onTimeout", json!("explode")), 400, "BODY_INVALID"),
            (with("maxRetries", json!(3)), 400, "FLOW_INVALID"),
            (with("handler", json!("nobody")), 422, "UNKNOWN_FUNCTION"),
            (with("metadata", json!("x".repeat(40_000))), 400, "FLOW_INVALID"),
            (with("surprise", json!(1)), 400, "BODY_INVALID"),
        ];
        for (asked, status, code) in bad {
            let (got, problem) = house.refused("/v1/intents", asked.clone()).await;
            let is_right = got == status && problem["code"] == code;
            assert!(is_right, "{asked}: {got} {problem}");
        }
        for unknown in ["x", "OrderSubmission:Order:1:1"] {
            let (status, problem) = house.admin.ask(get(&format!("/admin/intents/{unknown}"))).await;
            assert_eq!((status, &problem["code"]), (404, &json!("INTENT_NOT_FOUND")), "{problem}");
            let body = json!({ "status": "success" });
            let (status, _) = house.refused(&format!("/v1/intents/{unknown}/complete"), body).await;
            assert_eq!(status, 404);
        }
        for path in [
            "/admin/intents?cursor=x",
            "/admin/intents?operationType=%00",
            "/admin/intents/%00",
            "/v1/intents/orphans?limit=0",
        ] {
            let (status, problem) = house.admin.ask(get(path)).await;
            assert_eq!(status, 400, "{path}: {problem}");
        }
        assert_eq!(house.admin.get("/v1/events").await["head"], 0);
    });
}
