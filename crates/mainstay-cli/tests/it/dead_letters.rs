//! `mainstay dead-letters` where no server runs: the store itself is asked.

use crate::endpoint::Endpoint;
use crate::program::Folder;
use crate::serve_work::{ended, enqueue};
use crate::serving::Serving;
use serde_json::json;
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
    server.stop("TERM");

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
        (&json!("done"), &json!(1), &json!("local"))
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
    server.stop("TERM");
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
    folder.run("dead-letters retry --status resolved").assert_failed(1, "FLOW_INVALID");
    for wrong in [
        "list --status dead",
        "groups --group x",
        "list --cursor x",
        "operations --cursor x",
        "operations --status x",
    ] {
        folder.run(&format!("dead-letters {wrong}")).assert_failed(2, "CLI_USAGE_INVALID");
    }
}
