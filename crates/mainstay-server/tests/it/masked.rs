//! Members that are secret by their names are hidden from readers on every route.

use crate::asking::Asking;
use crate::client::{get, post, request};
use crate::running::{Running, options};
use crate::work::put;
use mainstay_events::NewEvent;
use mainstay_flows::commands::{Commands, Decision, Handling};
use mainstay_server::{Builder, Role, equipped};
use mainstay_testkit::stores::for_each_store;
use mainstay_work::{Call, Failure, Functions};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const CANARY: &str = "canary-7f3a";

/// Routes of the log, which show events as they are.
const OF_THE_LOG: [&str; 4] = ["readEvents", "getEvent", "readStream", "subscribeEvents"];

/// Routes that show values of callers, each of which must have had something to hide.
const SHOWING: [&str; 13] = [
    "getCommand",
    "getCron",
    "getDurableFunctionRun",
    "getIntent",
    "getDeadLetter",
    "getRun",
    "getWork",
    "getWorkDetails",
    "listCrons",
    "listIntents",
    "listOrphanedIntents",
    "listPendingWork",
    "listWork",
];

fn secret() -> Value {
    json!({"order": 1, "nested": [{"client_secret": CANARY}], "apiKey": CANARY})
}

#[test]
fn no_reader_is_shown_a_secret_by_any_route() {
    for_each_store(async |place| {
        let store = equipped(place.options()).open().await.unwrap();
        let functions = Functions::new()
            .action("echo", async |_: Call, args: Value| Ok(args))
            .action("refuse", async |_: Call, _: Value| Err::<(), _>(Failure::permanent("no")));
        let commands = Commands::new()
            .on("Place", async |_: Handling, order: Value| Ok(Decision::success(order, [] as [NewEvent; 0])));
        let services =
            Builder::on_store(store.clone()).commands(commands).functions(functions).open().await.unwrap();
        let engine = services.work.start().await.unwrap();
        let server = Running::start_with(options(), services).await;
        let (operator, reader) =
            (Asking::new(&server, Role::Admin).await, Asking::new(&server, Role::Reader).await);
        operator.ask(put("/v1/pools/shop", &json!({"retry": {"maxAttempts": 1}}))).await;

        let mut ids = vec!["shop".to_owned(), "hourly".to_owned(), "placed".to_owned()];
        let mut enqueued = Vec::new();
        for (function, delay) in [("echo", 0), ("refuse", 0), ("echo", 3_600_000)] {
            let item =
                json!({"function": function, "args": secret(), "context": secret(), "runAfterMs": delay});
            let answer = operator.post("/v1/pools/shop/work", item).await;
            enqueued.push(answer["work"][0]["workId"].as_str().unwrap().to_owned());
        }
        let run = json!({"function": "echo", "args": secret(), "context": secret()});
        enqueued.push(operator.post("/v1/runs", run).await["runId"].as_str().unwrap().to_owned());
        for ended in [&enqueued[0], &enqueued[1], &enqueued[3]] {
            operator.until(&format!("/v1/work/{ended}"), |status| status["endedAt"].is_number()).await;
        }
        let letters = operator.get("/admin/dead-letters").await;
        ids.push(letters["letters"][0]["letterId"].as_str().unwrap().to_owned());
        let timer = json!({"function": "echo", "args": secret(), "afterMs": 3_600_000});
        enqueued.push(operator.post("/v1/timers", timer).await["timerId"].as_str().unwrap().to_owned());
        ids.extend(enqueued);
        let cron =
            json!({"schedule": {"everyMs": 3_600_000}, "pool": "shop", "function": "echo", "args": secret()});
        assert_eq!(operator.ask(put("/v1/crons/hourly", &cron)).await.0, 200);
        let intent = json!({
            "operationType": "Submission", "streamType": "Order", "streamId": "1", "boundedContext": "orders",
            "timeoutMs": 300_000, "onTimeout": "abandon", "metadata": secret(),
        });
        let key = operator.post("/v1/intents", intent).await["intentKey"].as_str().unwrap().to_owned();
        ids.push(key);
        let command = json!({"commandType": "Place", "payload": secret(), "commandId": "placed"});
        assert_eq!(operator.ask(post("/v1/commands", &command.to_string())).await.0, 200);

        let description = get("/openapi.json").send(server.address).await.json();
        let (mut told, mut hid) = (Vec::new(), BTreeSet::new());
        for (path, item) in description["paths"].as_object().unwrap() {
            let Some(operation) = item["get"]["operationId"].as_str() else { continue };
            if OF_THE_LOG.contains(&operation) || path.contains("/test/") {
                continue;
            }
            // Every parameter takes every id: one of them fits.
            for id in if path.contains('{') { ids.as_slice() } else { &ids[..1] } {
                let filled: Vec<&str> =
                    path.split('/').map(|part| if part.starts_with('{') { id } else { part }).collect();
                let answer =
                    request("GET", &filled.join("/")).token(&reader.token).send(server.address).await;
                if answer.body.contains(CANARY) {
                    told.push(format!("{operation}: {}", answer.body));
                }
                if answer.body.contains("[hidden]") {
                    hid.insert(operation.to_owned());
                }
            }
        }
        assert!(told.is_empty(), "{told:#?}");
        let missing: Vec<_> = SHOWING.iter().filter(|showing| !hid.contains(**showing)).collect();
        assert!(missing.is_empty(), "{missing:?} had nothing to hide: {hid:?}");

        // A worker needs what it is called with.
        operator.post("/v1/pools/shop/claim", json!({"functions": ["remote"]})).await;
        operator.post("/v1/pools/shop/work", json!({"function": "remote", "args": secret()})).await;
        let claimed = operator.post("/v1/pools/shop/claim", json!({"functions": ["remote"]})).await;
        assert_eq!(claimed["items"][0]["args"], secret());
        engine.stop(std::time::Duration::from_secs(5)).await.unwrap();
    });
}
