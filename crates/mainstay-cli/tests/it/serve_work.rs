//! `mainstay serve` carries out work: pools, functions that are HTTP endpoints, and crons of mainstay.toml.

use crate::endpoint::Endpoint;
use crate::program::Folder;
use crate::serving::Serving;
use mainstay::work::http::{Secret, verify_signature};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// What a server answers, when it is a yes.
pub(crate) fn ask(server: &Serving, method: &str, path: &str, body: &Value) -> Value {
    let (status, text) = server.send(method, path, &[], &body.to_string());
    assert_eq!(status, 200, "{method} {path}: {text}");
    serde_json::from_str(&text).unwrap()
}

/// What is known of an item once it has ended.
pub(crate) fn ended(server: &Serving, id: &str) -> Value {
    for _ in 0..4_000 {
        let status = ask(server, "GET", &format!("/v1/work/{id}"), &Value::Null);
        if !status["endedAt"].is_null() {
            return status;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{id} has not ended");
}

pub(crate) fn enqueue(server: &Serving, item: &Value) -> String {
    let answer = ask(server, "POST", "/v1/pools/shop/work", item);
    answer["work"][0]["workId"].as_str().unwrap().to_owned()
}

const POOL: &str = "[pools.shop]\nretry = { maxAttempts = 3, initialBackoffMs = 1, maxBackoffMs = 1 }\n";

#[test]
fn a_function_is_called_signed_retried_and_told_on() {
    let endpoint = Endpoint::start(|asked| match (asked.path.as_str(), asked.json()["attempt"].as_u64()) {
        ("/send?v=1", Some(1)) => (503, r#"{"later":true}"#.to_owned()),
        ("/send?v=1", _) => (200, r#"{"sent":1}"#.to_owned()),
        ("/refuse", _) => (400, r#"{"error":"no such customer"}"#.to_owned()),
        _ => (204, String::new()),
    });
    let (folder, at) = (Folder::new(), endpoint.address);
    folder.write(
        "mainstay.toml",
        &format!(
            "{POOL}[egress]\nallow = [\"127.0.0.0/8\"]\n\
             [functions.send]\nurl = \"http://{at}/send?v=1\"\ntimeoutMs = 5000\nsecret = \"env:SHOP_SECRET\"\n\
             [functions.refuse]\nurl = \"http://{at}/refuse\"\n[functions.told]\nurl = \"http://{at}/told\"\n"
        ),
    );
    let missing = folder.run("serve --listen 127.0.0.1:0");
    missing.assert_logged(2, "CONFIG_INVALID_VALUE");
    assert!(
        missing.stderr.contains("functions.send.secret: the variable SHOP_SECRET is not set"),
        "{missing:?}"
    );

    let server = Serving::start_with(&folder, &[("SHOP_SECRET", "s3cret")]);
    let trace = ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let item =
        json!({"function": "send", "args": {"to": "ada"}, "context": {"order": 1}, "onComplete": "told"});
    let (status, text) = server.send("POST", "/v1/pools/shop/work", &[trace], &item.to_string());
    assert_eq!(status, 200, "{text}");
    let id = serde_json::from_str::<Value>(&text).unwrap()["work"][0]["workId"].as_str().unwrap().to_owned();
    let done = ended(&server, &id);
    assert_eq!(done["result"], json!({"kind": "success", "returnValue": {"sent": 1}}));
    assert_eq!(done["attempts"], 2);

    let first = endpoint.next();
    let body = first.json();
    assert_eq!(
        (&body["workId"], &body["function"], &body["attempt"]),
        (&json!(id), &json!("send"), &json!(1))
    );
    assert_eq!((&body["args"], &body["context"]), (&json!({"to": "ada"}), &json!({"order": 1})));
    assert_eq!(body["trace"]["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(first.header("idempotency-key"), id);
    assert!(first.header("traceparent").starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as i64;
    let secret = Secret::new("s3cret").unwrap();
    verify_signature(&[secret], first.header("mainstay-signature"), first.body.as_bytes(), now, 60_000)
        .unwrap();
    assert_eq!(endpoint.next().json()["attempt"], 2);
    let told = endpoint.next();
    assert_eq!(told.path, "/told");
    let expected = json!({"workId": id, "context": {"order": 1}, "attempts": 2,
        "result": {"kind": "success", "returnValue": {"sent": 1}}});
    assert_eq!(told.json()["args"], expected);

    let refused = ended(&server, &enqueue(&server, &json!({"function": "refuse", "args": 1})));
    assert_eq!((&refused["state"], &refused["attempts"]), (&json!("failed"), &json!(1)));
    let error = refused["lastError"].as_str().unwrap();
    assert!(error.contains("/refuse") && error.contains("400"), "{error}");
    server.stop("-TERM");
}

#[test]
fn private_addresses_are_reached_only_when_they_are_allowed() {
    let endpoint = Endpoint::start(|_| (200, "1".to_owned()));
    let folder = Folder::new();
    let config = format!("{POOL}[functions.send]\nurl = \"http://{}/send\"\n", endpoint.address);
    folder.write("mainstay.toml", &config);
    let server = Serving::start(&folder);
    let refused = ended(&server, &enqueue(&server, &json!({"function": "send", "args": 1})));
    assert_eq!(refused["state"], "failed");
    let error = refused["lastError"].as_str().unwrap();
    assert!(error.starts_with("authorizationFailure") && error.contains("[egress] allow"), "{error}");
    assert!(endpoint.rest().is_empty());
    server.stop("-TERM");
}

#[test]
fn crons_of_the_file_enqueue_work() {
    let endpoint = Endpoint::start(|_| (200, "1".to_owned()));
    let folder = Folder::new();
    let config = format!(
        "{POOL}[egress]\nallow = [\"127.0.0.1\"]\n[functions.send]\nurl = \"http://{}/send\"\n\
         [crons.often]\nschedule = {{ everyMs = 50 }}\npool = \"shop\"\nfunction = \"send\"\nargs = {{ tick = true }}\n",
        endpoint.address
    );
    folder.write("mainstay.toml", &config);
    let server = Serving::start(&folder);
    for _ in 0..2 {
        let body = endpoint.next().json();
        assert_eq!((&body["args"], &body["context"]["cron"]), (&json!({"tick": true}), &json!("often")));
        assert!(body["context"]["scheduledAt"].is_i64());
    }
    let told = server.stop("-TERM");
    assert!(told.contains(r#""work":"1 pool, 1 function, 1 cron""#), "{told}");

    for (pool, function, said) in [
        ("nowhere", "send", "there is no pool \"nowhere\""),
        ("shop", "nobody", "there is no function \"nobody\""),
    ] {
        let changed = config.replace("pool = \"shop\"", &format!("pool = \"{pool}\""));
        folder.write(
            "mainstay.toml",
            &changed.replace("function = \"send\"", &format!("function = \"{function}\"")),
        );
        let refused = folder.run("serve --listen 127.0.0.1:0");
        let line = refused.assert_logged(2, "CONFIG_INVALID_VALUE");
        assert_eq!(line["message"], format!("mainstay.toml:7:8: crons.often: {said}"));
    }
}

/// A server that is told to stop finishes what it can, gives back the rest, and whoever comes next carries it out.
#[test]
fn a_stop_finishes_what_is_under_way_and_gives_back_the_rest() {
    let begun = Arc::new(AtomicUsize::new(0));
    let beginning = begun.clone();
    let endpoint = Endpoint::start(move |asked| {
        beginning.fetch_add(1, Ordering::SeqCst);
        let body = asked.json();
        let hangs = body["args"] == "hang" && body["attempt"] == 1;
        std::thread::sleep(Duration::from_millis(if hangs { 60_000 } else { 1_000 }));
        (200, body["args"].to_string())
    });
    let folder = Folder::new();
    folder.write(
        "mainstay.toml",
        &format!(
            "[server]\nshutdownGraceMs = 4000\n{POOL}[egress]\nallow = [\"127.0.0.1\"]\n\
             [functions.send]\nurl = \"http://{}/send\"\ntimeoutMs = 90000\n",
            endpoint.address
        ),
    );
    let server = Serving::start(&folder);
    let (quick, hanging) = (
        enqueue(&server, &json!({"function": "send", "args": "quick"})),
        enqueue(&server, &json!({"function": "send", "args": "hang"})),
    );
    let enqueued = Instant::now();
    while begun.load(Ordering::SeqCst) < 2 {
        assert!(enqueued.elapsed() < Duration::from_secs(20), "both are called");
        std::thread::sleep(Duration::from_millis(5));
    }
    server.stop("-TERM");
    let server = Serving::start(&folder);
    let first = ended(&server, &quick);
    assert_eq!((&first["result"]["returnValue"], &first["attempts"]), (&json!("quick"), &json!(1)));
    let second = ended(&server, &hanging);
    assert_eq!((&second["result"]["returnValue"], &second["attempts"]), (&json!("hang"), &json!(2)));
    server.stop("-TERM");
}

#[test]
fn an_event_is_delivered_to_a_target_of_the_configuration() {
    let endpoint = Endpoint::start(|asked| match asked.path.as_str() {
        "/events" => (204, String::new()),
        _ => (410, String::new()),
    });
    let (folder, at) = (Folder::new(), endpoint.address);
    folder.write(
        "mainstay.toml",
        &format!(
            "[egress]\nallow = [\"127.0.0.0/8\"]\n[circuits.inventory]\nfailureThreshold = 3\n\
             [targets.inventory]\nurl = \"http://{at}/events\"\nsecret = [\"env:NEW\", \"0ld\"]\n\
             retry = {{ maxRetries = 5, initialBackoffMs = 100, base = 2 }}\ncircuit = \"inventory\"\nordered = true\n\
             [targets.analytics]\nurl = \"http://{at}/gone\"\nmaxParallelism = 2\n"
        ),
    );
    let missing = folder.run("serve --listen 127.0.0.1:0");
    missing.assert_logged(2, "CONFIG_INVALID_VALUE");
    assert!(missing.stderr.contains("targets.inventory.secret: the variable NEW is not set"), "{missing:?}");
    let server = Serving::start_with(&folder, &[("NEW", "n3w")]);
    let appended = ask(
        &server,
        "POST",
        "/v1/events",
        &json!({"events": [{"type": "OrderSubmitted", "data": {"orderId": "ord-1"}}]}),
    );
    let id = appended["events"][0]["eventId"].as_str().unwrap();
    let publish =
        json!({"eventId": id, "sourceContext": "orders", "targetContexts": ["inventory", "analytics"]});
    ask(&server, "POST", "/v1/publications", &publish);
    let found = (0..4_000).find_map(|_| {
        let found = ask(&server, "GET", &format!("/v1/publications/{id}"), &Value::Null);
        let statuses: Vec<_> =
            found["publications"].as_array().unwrap().iter().map(|one| one["status"].clone()).collect();
        std::thread::sleep(Duration::from_millis(5));
        (statuses == ["failed", "delivered"]).then_some(found)
    });
    assert!(found.is_some(), "both end");
    let calls = [endpoint.next(), endpoint.next()];
    let call = calls.iter().find(|call| call.path == "/events").unwrap();
    assert_eq!(call.header("content-type"), "application/cloudevents+json");
    assert_eq!(call.header("idempotency-key"), format!("pub:{id}:inventory"));
    assert_eq!(
        (&call.json()["source"], &call.json()["data"]),
        (&json!("orders"), &json!({"orderId": "ord-1"}))
    );
    let now_ms = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis() as i64;
    for secret in ["n3w", "0ld"] {
        let known = [Secret::new(secret).unwrap()];
        let header = call.header("mainstay-signature");
        assert_eq!(verify_signature(&known, header, call.body.as_bytes(), now_ms, 60_000), Ok(()));
    }
}
