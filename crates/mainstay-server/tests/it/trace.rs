//! The trace of a request.

use crate::client::{get, post};
use crate::logged;
use crate::running::{Running, options};
use mainstay_server::Role;

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[tokio::test]
async fn a_request_continues_the_trace_of_its_caller() {
    let server = Running::start(options()).await;
    let answer = get("/v1/test/who").header("traceparent", CALLER).send(server.address).await;
    let told = answer.header("traceparent").unwrap();
    assert!(told.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-") && told != CALLER, "{told}");
    let trace = &answer.json()["trace"];
    assert_eq!(trace["parentSpanId"], "00f067aa0ba902b7");
    assert_eq!(told, format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", trace["spanId"].as_str().unwrap()));
}

#[tokio::test]
async fn a_trace_that_cannot_be_read_is_ignored() {
    let server = Running::start(options()).await;
    for bad in ["", "x", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", &CALLER.to_uppercase()] {
        let answer = get("/v1/test/who").header("traceparent", bad).send(server.address).await;
        assert_eq!(answer.status, 200);
        assert!(answer.json()["trace"].get("parentSpanId").is_none());
        assert_eq!(answer.header("traceparent").unwrap().len(), 55);
    }
    let twice = get("/nowhere").header("traceparent", CALLER).header("traceparent", CALLER);
    let answer = twice.send(server.address).await;
    assert!(!answer.header("traceparent").unwrap().contains("4bf92f"), "problems have a trace too");
}

#[tokio::test]
async fn the_log_has_the_trace_and_no_secret() {
    logged::start();
    let server = Running::start(options()).await;
    let admin = server.token(Role::Admin).await;
    let ask = get("/v1/test/panics?password=hunter2")
        .header("traceparent", &CALLER.replace("4bf92f", "106106"))
        .token(&admin);
    ask.send(server.address).await.problem(500, "INTERNAL_ERROR");
    let created =
        post("/admin/tokens", r#"{"name":"a","role":"reader"}"#).token(&admin).send(server.address).await;
    let created = created.json()["secret"].as_str().unwrap().to_owned();
    get("/v1/test/who").token(&format!("{}0", &admin[..84])).send(server.address).await;

    let text = logged::text();
    assert!(
        text.contains("trace_id=\"1061063577b34da6a3ce929d0e0e4736\"") && text.contains("/v1/test/panics"),
        "{text}"
    );
    assert!(text.contains("ingredient"), "what was not told to the client is in the log");
    for secret in [&admin[21..], &created[21..], "hunter2", "Bearer"] {
        assert!(!text.contains(secret), "{secret} is in the log");
    }
}
