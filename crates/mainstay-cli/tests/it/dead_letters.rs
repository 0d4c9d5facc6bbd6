//! `mainstay dead-letters` where no server runs: the store itself is asked.

use crate::audited::me;
use crate::endpoint::Endpoint;
use crate::program::Folder;
use crate::serve_work::{ended, enqueue};
use crate::serving::Serving;
use mainstay_testkit::postgres::Postgres;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn letters_are_looked_at_and_dealt_with_in_a_store_that_nobody_serves() {
    let is_well = Arc::new(AtomicBool::new(false));
    let well = is_well.clone();
    let endpoint = Endpoint::start(move |_| match well.load(Ordering::SeqCst) {
        true => (204, String::new()),
        false => (400, r#"{"error":"no such customer"}"#.to_owned()),
    });
    let (folder, at) = (Folder::new(), endpoint.address);
    let toml = format!(
        "[pools.shop]\n[egress]\nallow = [\"127.0.0.0/8\"]\n[functions.send]\nurl = \"http://{at}/send\"\n"
    );
    folder.write("mainstay.toml", &toml);
    let server = Serving::start(&folder);
    for number in 0..5 {
        let id = enqueue(&server, &json!({"function": "send", "args": number}));
        assert_eq!(ended(&server, &id)["result"]["kind"], "failed");
    }
    server.stop("-TERM");

    let listed = folder.run("dead-letters list --json").json();
    let ids: Vec<&str> =
        listed["letters"].as_array().unwrap().iter().map(|one| one["letterId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 5, "{listed}");
    let page = folder.run("dead-letters list --limit 2 --json").json();
    assert_eq!(page["next"], ids[1]);
    let page = folder.run(&format!("dead-letters list --limit 2 --cursor {} --json", ids[1])).json();
    assert_eq!(page["letters"][0]["letterId"], ids[2]);
    assert_eq!(folder.run(&format!("dead-letters show {} --json", ids[0])).json()["work"]["args"], 4);
    assert_eq!(folder.run("dead-letters stats --json").json()["pending"], 5);
    assert_eq!(folder.run("dead-letters groups --json").json()["groups"][0]["count"], 5);

    // One by one, and many.
    folder.run(&format!("dead-letters ignore {}", ids[0]));
    folder.run(&format!("dead-letters ignore {}", ids[0])).assert_failed(1, "DEAD_LETTER_NOT_PENDING");
    let retried = folder.run(&format!("dead-letters retry {}", ids[1]));
    assert!(retried.stderr.contains("waits until a server runs"), "{retried:?}");
    let purged = folder.run("dead-letters purge --status ignored --run --json").json();
    assert_eq!(
        (&purged["status"], &purged["done"], &purged["askedBy"]),
        (&json!("done"), &json!(1), &json!(me()))
    );
    let previewed = folder.run("dead-letters retry --json").json();
    assert_eq!((&previewed["status"], &previewed["total"]), (&json!("previewed"), &json!(3)));
    let operation = previewed["operationId"].as_str().unwrap();
    let done = folder.run(&format!("dead-letters run {operation} --json")).json();
    assert_eq!((&done["status"], &done["done"]), (&json!("done"), &json!(3)));
    let operations = folder.run("dead-letters operations --status done --json").json();
    assert_eq!(operations["operations"].as_array().unwrap().len(), 4, "{operations}");
    assert!(endpoint.rest().len() == 5, "nothing is called before a server runs");

    // What is tried again waits for one.
    is_well.store(true, Ordering::SeqCst);
    assert_eq!(
        folder.run("dead-letters list --status retrying --json").json()["letters"].as_array().unwrap().len(),
        4
    );
    let server = Serving::start(&folder);
    for _ in 0..4 {
        endpoint.next();
    }
    server.stop("-TERM");
    assert_eq!(folder.run("dead-letters stats --status resolved --json").json()["total"], 4);
}

#[test]
fn what_is_wrong_is_refused_as_a_server_would() {
    let folder = Folder::new();
    folder.run("dead-letters list").assert_failed(1, "STORE_OPEN_FAILED");
    folder.run("events append --type OrderPlaced --data 1");
    assert!(folder.run("dead-letters list").stderr.contains("There are none."));
    folder.run("dead-letters show letter_1").assert_failed(1, "DEAD_LETTER_NOT_FOUND");
    folder.run("dead-letters retry nothing").assert_failed(1, "DEAD_LETTER_NOT_FOUND");
    folder.run("dead-letters run operation_1").assert_failed(1, "LETTER_OPERATION_NOT_FOUND");
    folder.run("dead-letters retry --status resolved").assert_failed(1, "WORK_INVALID");
    folder.run("dead-letters groups --group x").assert_failed(1, "WORK_INVALID");
    for wrong in ["list --status dead", "list --cursor x", "operations --cursor x", "operations --status x"] {
        folder.run(&format!("dead-letters {wrong}")).assert_failed(2, "QUERY_INVALID");
    }
}

/// On PostgreSQL another server waits for the lease of the one that died, hence only in the long form.
#[test]
fn a_server_that_is_killed_during_a_bulk_retry_goes_on_with_every_letter() {
    kill_during_a_bulk_retry("");
    if std::env::var_os("MAINSTAY_LONG").is_some_and(|value| value == "1") {
        let database = Postgres::shared().unwrap().database().unwrap();
        kill_during_a_bulk_retry(&format!("[store]\nurl = {:?}\n", database.url()));
    }
}

fn kill_during_a_bulk_retry(store: &str) {
    const LETTERS: usize = 600;
    let is_well = Arc::new(AtomicBool::new(false));
    let well = is_well.clone();
    let endpoint = Endpoint::start(move |_| match well.load(Ordering::SeqCst) {
        true => (204, String::new()),
        false => (400, r#"{"error":"no such customer"}"#.to_owned()),
    });
    let (folder, at) = (Folder::new(), endpoint.address);
    folder.write(
        "mainstay.toml",
        &format!(
            "{store}[pools.shop]\n[egress]\nallow = [\"127.0.0.0/8\"]\n[functions.send]\nurl = \"http://{at}/send\"\n"
        ),
    );
    let token = folder.run("token create --name night --role admin").stdout;
    let bearer = format!("Bearer {}", token.trim());
    let ask = |server: &Serving, method: &str, path: &str, body: &str| {
        let (status, answer) = server.send(method, path, &[("Authorization", &bearer)], body);
        assert_eq!(status, 200, "{path}: {answer}");
        serde_json::from_str::<Value>(&answer).unwrap()
    };
    let until = |server: &Serving, is_so: &dyn Fn(&Value) -> bool| {
        let began = std::time::Instant::now();
        loop {
            let stats = ask(server, "GET", "/admin/dead-letters/stats", "");
            if is_so(&stats) {
                return stats;
            }
            assert!(began.elapsed().as_secs() < 120, "{stats}");
            std::thread::yield_now();
        }
    };
    let server = Serving::start(&folder);
    let items: Vec<_> = (0..LETTERS).map(|number| json!({"function": "send", "args": number})).collect();
    ask(&server, "POST", "/v1/pools/shop/work", &json!({ "items": items }).to_string());
    until(&server, &|stats| stats["pending"] == LETTERS);
    is_well.store(true, Ordering::SeqCst);
    while !endpoint.rest().is_empty() {}

    let preview = ask(&server, "POST", "/admin/dead-letter-operations", r#"{"action":"retry"}"#);
    let id = preview["operationId"].as_str().unwrap().to_owned();
    ask(&server, "POST", &format!("/admin/dead-letter-operations/{id}/run"), "");
    // The first one that is tried again says that it has begun.
    endpoint.next();
    drop(server);

    let left = folder.run("dead-letters stats --json").json();
    assert_eq!(left["total"], LETTERS, "none is lost and none is there twice: {left}");
    let server = Serving::start(&folder);
    until(&server, &|stats| {
        let resolved = stats["counts"].as_array().unwrap().iter().find(|count| count["status"] == "resolved");
        resolved.is_some_and(|resolved| resolved["count"] == LETTERS)
    });
    let operation = ask(&server, "GET", &format!("/admin/dead-letter-operations/{id}"), "");
    assert_eq!((&operation["status"], &operation["failed"]), (&json!("done"), &json!(0)), "{operation}");
    assert_eq!(operation["done"], LETTERS);
}

#[test]
fn letters_are_tried_again_by_themselves_as_the_configuration_says() {
    let is_well = Arc::new(AtomicBool::new(false));
    let well = is_well.clone();
    let endpoint = Endpoint::start(move |_| match well.load(Ordering::SeqCst) {
        true => (204, String::new()),
        false => (400, r#"{"error":"no such customer"}"#.to_owned()),
    });
    let (folder, at) = (Folder::new(), endpoint.address);
    let toml = format!(
        "[pools.shop]\n[egress]\nallow = [\"127.0.0.0/8\"]\n[functions.send]\nurl = \"http://{at}/send\"\n\
         [deadLetters]\nworkRetries = 100\ninitialBackoffMs = 1\nbackoffBase = 1\nintervalMs = 1000\n"
    );
    folder.write("mainstay.toml", &toml);
    let token = folder.run("token create --name night --role admin").stdout;
    let bearer = format!("Bearer {}", token.trim());
    let server = Serving::start(&folder);
    let call = |method: &str, path: &str, body: Value| {
        let (status, answer) = server.send(method, path, &[("Authorization", &bearer)], &body.to_string());
        assert!(status < 300, "{path}: {status} {answer}");
        serde_json::from_str::<Value>(&answer).unwrap_or_default()
    };
    let until = |path: &str, is_so: &dyn Fn(&Value) -> bool| {
        let began = std::time::Instant::now();
        loop {
            let seen = call("GET", path, Value::Null);
            if is_so(&seen) {
                return seen;
            }
            assert!(began.elapsed().as_secs() < 60, "{path}: {seen}");
            std::thread::yield_now();
        }
    };
    let item = json!({"function": "send", "args": null});
    let enqueued = call("POST", "/v1/pools/shop/work", item);
    let path = format!("/v1/work/{}", enqueued["work"][0]["workId"].as_str().unwrap());
    let ended = until(&path, &|item| !item["endedAt"].is_null());
    assert_eq!(ended["result"]["kind"], "failed");
    let letter = |listed: &Value| listed["letters"][0].clone();
    until("/admin/dead-letters", &|listed| {
        letter(listed)["status"] == "pending" && letter(listed)["retryCount"].as_u64() >= Some(1)
    });
    is_well.store(true, Ordering::SeqCst);
    until("/admin/dead-letters", &|listed| letter(listed)["status"] == "resolved");
    let operations = call("GET", "/admin/dead-letter-operations", Value::Null);
    let mut asked = operations["operations"].as_array().unwrap().iter().map(|one| &one["askedBy"]);
    assert!(asked.len() >= 2 && asked.all(|by| by == "upkeep"), "{operations}");
}
