//! Whatever is wrong with a request is a problem document that names it.

use crate::client::{get, post, request, soon};
use crate::running::{Running, options};
use crate::test_routes::gate;
use std::time::Duration;

#[tokio::test]
async fn nothing_there_and_other_methods() {
    let server = Running::start(options()).await;
    get("/v1/nowhere").send(server.address).await.problem(404, "ROUTE_NOT_FOUND");
    get("/").send(server.address).await.problem(404, "ROUTE_NOT_FOUND");
    let answer = request("PATCH", "/v1/test/echo").send(server.address).await;
    answer.problem(405, "METHOD_NOT_ALLOWED");
    assert_eq!(answer.header("allow"), Some("POST"));
    let answer = request("DELETE", "/livez").send(server.address).await;
    answer.problem(405, "METHOD_NOT_ALLOWED");
    assert_eq!(answer.header("allow"), Some("GET,HEAD"));
}

#[tokio::test]
async fn bodies_that_are_not_what_the_route_takes() {
    let server = Running::start(options()).await;
    let echo = |body: &str| post("/v1/test/echo", body);
    assert_eq!(echo(r#"{"text":"a"}"#).send(server.address).await.json()["text"], "a");
    let other = echo(r#"{"text":"a"}"#).without("Content-Type");
    other.send(server.address).await.problem(415, "MEDIA_TYPE_UNSUPPORTED");
    other
        .clone()
        .header("Content-Type", "text/plain")
        .send(server.address)
        .await
        .problem(415, "MEDIA_TYPE_UNSUPPORTED");
    let fine = other.header("Content-Type", "application/vnd.mine+json; charset=utf-8");
    assert_eq!(fine.send(server.address).await.status, 200);

    for (body, field) in [
        (r#"{"text":5}"#, "text"),
        (r#"{}"#, "text"),
        (r#"{"text":"a","times":-1}"#, "times"),
        (r#"{"text":"a","tiems":1}"#, "tiems"),
    ] {
        let problem = echo(body).send(server.address).await.problem(400, "BODY_INVALID");
        assert_eq!(problem["field"], field, "{body}");
    }
    for body in ["", "{", "[]", &format!("{}1{}", "[".repeat(65), "]".repeat(65)), "{\"text\":\"\\ud800\"}"] {
        echo(body).send(server.address).await.problem(400, "BODY_INVALID");
    }
}

#[tokio::test]
async fn queries_and_paths_that_are_not_what_the_route_takes() {
    let server = Running::start(options()).await;
    let answer = get("/v1/test/page?type=a&type=b&after=3").send(server.address).await;
    assert_eq!(answer.body, r#"{"after":3,"type":["a","b"]}"#);
    for (query, field) in [("after=-1", "after"), ("after=1&after=2", "after"), ("aftre=1", "aftre")] {
        let answer = get(&format!("/v1/test/page?{query}")).send(server.address).await;
        assert_eq!(answer.problem(400, "QUERY_INVALID")["field"], field);
    }
    assert_eq!(get("/v1/test/items/7").send(server.address).await.body, "7");
    for number in ["x", "-1", "4294967296", "%ff"] {
        let answer = get(&format!("/v1/test/items/{number}")).send(server.address).await;
        answer.problem(400, "PATH_INVALID");
    }
}

#[tokio::test]
async fn a_panic_is_a_problem_that_tells_nothing_and_others_go_on() {
    let server = Running::start(options()).await;
    let answer = get("/v1/test/panics").send(server.address).await;
    answer.problem(500, "INTERNAL_ERROR");
    assert!(!answer.body.contains("ingredient"));
    assert!(answer.header("traceparent").is_some());
    assert_eq!(get("/livez").send(server.address).await.status, 200);
    let figures = get("/metrics").send(server.address).await.body;
    assert!(figures.contains("\nmainstay_server_panics_total 1\n"));
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_given_up() {
    let server = Running::start(options().request_timeout(Duration::from_secs(1))).await;
    let answer = soon(get("/v1/test/wait/too-long").send(server.address)).await;
    answer.problem(503, "REQUEST_TIMEOUT");
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(gate("too-long").entered.available_permits(), 1);
}

#[tokio::test]
async fn the_type_of_a_problem_names_a_page_that_the_server_serves() {
    let server = Running::start(options()).await;
    let problem = get("/v1/nowhere").send(server.address).await.problem(404, "ROUTE_NOT_FOUND");
    let page = get(problem["type"].as_str().unwrap()).send(server.address).await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(page.body.contains("<h1>ROUTE_NOT_FOUND</h1>"), "{}", page.body);
    let index = get("/docs/errors").send(server.address).await;
    for entry in mainstay_server::CODE_TABLES.iter().copied().flatten() {
        assert!(index.body.contains(&format!("href=\"/docs/errors/{}\"", entry.code)), "{}", entry.code);
        assert_eq!(get(&format!("/docs/errors/{}", entry.code)).send(server.address).await.status, 200);
    }
    get("/docs/errors/NO_SUCH_CODE").send(server.address).await.problem(404, "ROUTE_NOT_FOUND");
}
