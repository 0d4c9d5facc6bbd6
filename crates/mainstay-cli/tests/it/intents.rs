//! `mainstay intents`, alike on the store and through the server.

use crate::program::{Answer, Folder};
use crate::serving::Serving;
use serde_json::json;
use std::time::{Duration, Instant};

/// Runs a test body on a file that a server has left behind, and through a server.
fn alike(body: impl Fn(&dyn Fn(&str) -> Answer)) {
    let folder = Folder::new();
    Serving::start(&folder).stop("-TERM");
    body(&|arguments| folder.run(arguments));

    let folder = Folder::new();
    let token = folder.run("token create --name test --role admin").stdout;
    let server = Serving::start(&folder);
    let with = [("MAINSTAY_TOKEN", token.trim())];
    body(&|arguments| folder.run_with(&with, &format!("{arguments} --server {}", server.url())));
    server.stop("-TERM");
}

fn said(answer: &Answer) -> &str {
    assert_eq!(answer.code, 0, "{answer:?}");
    &answer.stdout
}

const SUBMIT: &str = "intents record OrderSubmission Order 1 --context orders --timeout 5m --on-timeout abandon \
     --started-at 1000 --correlation corr-1 --metadata {\"total\":7}";

#[test]
fn an_operation_is_begun_seen_and_ended() {
    alike(|run| {
        assert!(said(&run(SUBMIT)).contains("OrderSubmission:Order:1:1000"));
        assert_eq!(run(&format!("{SUBMIT} --json")).json()["isDuplicate"], true);
        let key = "OrderSubmission:Order:1:1000";
        let seen = run(&format!("intents show {key} --json")).json();
        assert_eq!((&seen["status"], &seen["metadata"]), (&json!("pending"), &json!({ "total": 7 })));
        let listed = said(&run("intents orphans --older-than 1m")).to_owned();
        assert!(listed.contains("INTENT") && listed.contains(key), "{listed}");
        let other = "intents record Refund Order 2 --context orders --timeout 5m --on-timeout alert --started-at 2000";
        said(&run(other));
        let page = run("intents orphans --limit 1 --json").json();
        assert_eq!(page["intents"][0]["intentKey"], key);
        let next = format!("intents orphans --limit 1 --cursor {} --json", page["next"].as_str().unwrap());
        assert_eq!(run(&next).json()["intents"][0]["operationType"], "Refund");

        let completed = run(&format!("intents complete {key} --result {{\"charge\":1}} --json")).json();
        assert_eq!((&completed["status"], &completed["isDuplicate"]), (&json!("completed"), &json!(false)));
        run(&format!("intents abandon {key}")).assert_failed(1, "INTENT_ALREADY_ENDED");
        assert!(said(&run("intents abandon Refund:Order:2:2000 --reason mistake")).contains("abandoned"));
        let abandoned = run("intents list --status abandoned --operation Refund --json").json();
        assert_eq!(abandoned["intents"][0]["error"], "mistake");
        assert_eq!(
            run("intents list --correlation corr-1 --json").json()["intents"][0]["result"],
            json!({ "charge": 1 })
        );
        assert!(said(&run(&format!("intents show {key}"))).contains("ended by"));
        assert_eq!(said(&run("intents orphans")), "");
        run("intents show nobody").assert_failed(1, "INTENT_NOT_FOUND");
    });
}

#[test]
fn b_182_a_plain_server_abandons_what_nobody_ends() {
    let folder = Folder::new();
    let token = folder.run("token create --name test --role admin").stdout;
    let server = Serving::start(&folder);
    let with = [("MAINSTAY_TOKEN", token.trim())];
    let run = |arguments: &str| folder.run_with(&with, &format!("{arguments} --server {}", server.url()));
    let record = "intents record Refund Order 7 --context orders --timeout 20ms --on-timeout abandon --json";
    let key = run(record).json()["intentKey"].as_str().unwrap().to_owned();
    let deadline = Instant::now() + Duration::from_secs(30);
    let abandoned = loop {
        let seen = run(&format!("intents show {key} --json")).json();
        if seen["status"] == "abandoned" {
            break seen;
        }
        assert!(Instant::now() < deadline, "{seen}");
    };
    assert_eq!((&abandoned["error"], &abandoned["timeoutMs"]), (&json!("timeout"), &json!(20)));
    let events = run("events read --json").stdout;
    assert!(events.contains("RefundStarted") && events.contains("RefundAbandoned"), "{events}");
    server.stop("-TERM");
}
