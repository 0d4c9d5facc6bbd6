//! Names of the platform over HTTP: refused on every way in, and nothing comes of it.

use crate::asking::Asking;
use crate::client::{post, request};
use crate::running::{Running, options};
use mainstay_events::{Append, NewEvent};
use mainstay_flows::delivery::publications::{Delivery, Retry, Target, Targets};
use mainstay_flows::projections::{Category, Projection, Registry};
use mainstay_server::{Builder, Role, Services, equipped};
use mainstay_store::{Store, Tx};
use mainstay_testkit::stores::{Place, for_each_store};
use mainstay_work::{Call, Engine, Failure, FunctionKind, Functions, Pool};
use serde_json::{Value, json};

const SPELLINGS: [&str; 3] = ["mainstay.replay.tidy", "MAINSTAY.replay.tidy", " Mainstay.x "];
/// Every table that a name of a caller can lead to a row in, and those that the attack has dropped.
const TABLES: [&str; 12] = [
    "mainstay_audit",
    "mainstay_events",
    "mainstay_tokens",
    "mainstay_work",
    "mainstay_ended",
    "mainstay_pools",
    "mainstay_functions",
    "mainstay_crons",
    "mainstay_circuits",
    "mainstay_limits",
    "mainstay_intents",
    "mainstay_publications",
];

/// A node with a projection, and a target that refuses everything for now.
struct House {
    _server: Running,
    services: Services,
    store: Store,
    operator: Asking,
    admin: Asking,
}

impl House {
    async fn open(place: &Place) -> (Self, Engine) {
        let store = equipped(place.options()).open().await.unwrap();
        let slowly = Retry { max_retries: 5, initial_backoff_ms: 3_600_000, base: 1.0 };
        let away = async |_: Delivery| Err::<(), _>(Failure::retryable("away"));
        let targets = Targets::new(slowly).with(Target::subscriber("inventory", away));
        let projection = Projection::new("orderSummary", Category::View)
            .table("order_summary", &["CREATE TABLE {table} (position BIGINT NOT NULL)"])
            .each(async |_, _, _| Ok(()));
        let registry = Registry::new().with(projection);
        let functions = Functions::new().action("echo", async |_: Call, args: Value| Ok(args));
        let services = Builder::on_store(store.clone())
            .projections(registry)
            .targets(targets)
            .functions(functions)
            .open()
            .await
            .unwrap();
        services.work.pool(Pool::new("shop")).await.unwrap();
        services.work.declare("remote", FunctionKind::Action).await.unwrap();
        let engine = services.work.start().await.unwrap();
        let server = Running::start_with(options(), services.clone()).await;
        let (operator, admin) =
            (Asking::new(&server, Role::Operator).await, Asking::new(&server, Role::Admin).await);
        (Self { _server: server, services, store, operator, admin }, engine)
    }

    /// Row counts of the tables. The audit counts as 0, because refusals are written there.
    async fn rows(&self) -> Vec<i64> {
        let read = async |tx: Tx| {
            let mut counts = Vec::new();
            for table in TABLES {
                let count = tx.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await?.get(0)?;
                counts.push(if table == "mainstay_audit" { 0 } else { count });
            }
            Ok(counts)
        };
        self.store.read(read).await.unwrap()
    }
}

/// A name as a part of a path.
fn encoded(name: &str) -> String {
    name.replace(' ', "%20")
}

/// Every way in: a request, and the field that the refusal names.
fn ways(name: &str) -> Vec<(&'static str, String, Value, &'static str)> {
    let path = encoded(name);
    let cron = |pool: &str, function: &str| json!({ "schedule": { "everyMs": 60_000 }, "pool": pool, "function": function, "args": 1 });
    let (shop, echo) = ("/v1/pools/shop/work".to_owned(), json!({ "function": "echo", "args": 1 }));
    let intent = json!({
        "operationType": "OrderSubmission", "streamType": "Order", "streamId": "1", "boundedContext": "orders",
        "timeoutMs": 300_000, "onTimeout": "abandon", "handler": name,
    });
    let limit = json!({ "kind": "token bucket", "rate": 1, "period": "1h" });
    let force = json!({ "state": "open", "reason": "test" });
    vec![
        ("PUT", format!("/v1/pools/{path}"), json!({}), "name"),
        ("POST", format!("/v1/pools/{path}/work"), echo.clone(), "pool"),
        ("POST", shop.clone(), json!({ "function": name, "args": 1 }), "function"),
        ("POST", shop.clone(), json!({ "function": "echo", "args": 1, "onComplete": name }), "onComplete"),
        ("POST", shop, json!({ "items": [echo, { "function": name, "args": 1 }] }), "items[1].function"),
        ("POST", format!("/v1/pools/{path}/claim"), json!({ "functions": ["remote"] }), "pool"),
        ("POST", "/v1/pools/shop/claim".to_owned(), json!({ "functions": ["remote", name] }), "functions[1]"),
        ("POST", "/v1/runs".to_owned(), json!({ "function": name, "args": 1 }), "function"),
        (
            "POST",
            "/v1/runs".to_owned(),
            json!({ "function": "echo", "args": 1, "onComplete": name }),
            "onComplete",
        ),
        ("POST", "/v1/timers".to_owned(), json!({ "function": name, "args": 1, "afterMs": 1 }), "function"),
        ("PUT", format!("/v1/crons/{path}"), cron("shop", "echo"), "name"),
        ("PUT", "/v1/crons/c".to_owned(), cron(name, "echo"), "pool"),
        ("PUT", "/v1/crons/c".to_owned(), cron("shop", name), "function"),
        ("POST", "/v1/intents".to_owned(), intent, "handler"),
        (
            "POST",
            "/admin/projection-letters/orderSummary/evt/run".to_owned(),
            json!({ "action": name }),
            "action",
        ),
        ("PUT", format!("/admin/circuits/{path}"), json!({ "failureThreshold": 1 }), "circuit"),
        ("POST", format!("/admin/circuits/{path}/force"), force, "circuit"),
        ("POST", format!("/v1/circuits/{path}/ask"), json!({}), "circuit"),
        ("PUT", format!("/admin/limits/{path}"), limit, "name"),
    ]
}

#[test]
fn a_name_of_the_platform_is_refused_on_every_way_in_over_http() {
    for_each_store(async |place| {
        let (house, engine) = House::open(&place).await;
        let before = house.rows().await;
        for name in SPELLINGS {
            for (method, path, body, field) in ways(name) {
                let asked =
                    request(method, &path).header("Content-Type", "application/json").body(&body.to_string());
                let (status, problem) = house.admin.ask(asked).await;
                assert_eq!(
                    (status, &problem["code"], &problem["field"]),
                    (400, &json!("NAME_RESERVED"), &json!(field)),
                    "{method} {path} {body}: {problem}"
                );
            }
        }
        assert_eq!(house.rows().await, before);
        engine.stop(std::time::Duration::from_secs(5)).await.unwrap();
    });
}

/// The attack on the running server, with an operator's token.
#[test]
fn an_operator_drops_no_table_and_forges_no_result() {
    for_each_store(async |place| {
        let (house, engine) = House::open(&place).await;
        // Enqueued items stay in their table and are counted.
        engine.stop(std::time::Duration::from_secs(5)).await.unwrap();
        let event = NewEvent::new("OrderSubmitted", &json!({ "orderId": "ord-1" })).unwrap();
        let event = house.services.log.append(Append::from(event)).await.unwrap().events[0].event_id.clone();
        let published = house.services.publications.publish(&event, "orders", ["inventory"]).await.unwrap();
        let before = house.rows().await;
        let table = |table: &str| {
            json!({ "projection": "orderSummary", "generation": 999,
                "shape": format!(r#"[{{"name":"{table} --","statements":[]}}]"#) })
        };
        let which = json!({ "publicationId": published[0].publication_id, "eventId": event,
            "target": "inventory" });
        let told = json!({ "workId": "work_x", "context": which, "attempts": 1,
            "result": { "kind": "success", "returnValue": null } });
        let attacks = [
            (
                "eventReplayPool",
                json!({ "function": "mainstay.replay.tidy", "args": table("mainstay_audit") }),
            ),
            (
                "eventReplayPool",
                json!({ "function": "mainstay.replay.tidy", "args": table("mainstay_events") }),
            ),
            (
                "eventReplayPool",
                json!({ "function": "mainstay.replay.tidy", "args": table("mainstay_tokens") }),
            ),
            ("publicationPool", json!({ "function": "mainstay.publication.ended", "args": told })),
            (
                "shop",
                json!({ "function": "echo", "args": 1, "onComplete": "mainstay.publication.ended",
                    "context": which }),
            ),
        ];
        for (pool, body) in attacks {
            let asked = post(&format!("/v1/pools/{pool}/work"), &body.to_string());
            assert_eq!(house.operator.refusal(asked).await, (400, "NAME_RESERVED".to_owned()), "{body}");
        }
        assert_eq!(house.rows().await, before);
        let found = house.admin.get(&format!("/v1/publications/{event}")).await;
        assert_eq!(found["publications"][0]["status"], "pending", "{found}");
    });
}
