//! Who is let in without a token, and where a server may listen at all.

use crate::client::{get, post, request};
use crate::running::{Running, options};
use mainstay_server::{Options, Role, Server, equipped};
use mainstay_testkit::stores::{Kind, Place};
use serde_json::json;

const WHO: &str = "/v1/test/who";

#[tokio::test]
async fn this_machine_needs_no_token_until_there_is_one() {
    let server = Running::start(options()).await;
    let who = get(WHO).send(server.address).await.json();
    assert_eq!((&who["role"], &who["tenant"], &who["token"]), (&json!("admin"), &json!(null), &json!(null)));
    // Who presents a token is judged by it, even where none is needed.
    get(WHO).token("mst_wrong").send(server.address).await.problem(401, "UNAUTHENTICATED");
    request("GET", "/admin/tokens").send(server.address).await.problem(401, "UNAUTHENTICATED");

    let token = server.token(Role::Reader).await;
    assert_eq!(get(WHO).token(&token).send(server.address).await.json()["role"], "reader");
    // Another node made it; this one knows within a second.
    while get(WHO).send(server.address).await.status != 401 {}
    assert_eq!(get("/metrics").send(server.address).await.status, 200);
}

#[tokio::test]
async fn web_pages_and_names_of_elsewhere_are_not_this_machine() {
    let server = Running::start(options()).await;
    let own = format!("http://{}", server.address);
    assert_eq!(get(WHO).header("Origin", &own).send(server.address).await.status, 200);
    let localhost = format!("localhost:{}", server.address.port());
    assert_eq!(get(WHO).header("Host", &localhost).send(server.address).await.status, 200);
    for refused in [
        get(WHO).header("Host", "evil.example"),
        get(WHO).header("Host", &format!("evil.example:{}", server.address.port())),
        get(WHO).header("Origin", "http://evil.example"),
        get(WHO).header("Origin", "null"),
        get(WHO).header("Sec-Fetch-Site", "cross-site"),
        get(WHO).header("X-Forwarded-For", "203.0.113.7"),
        post("/v1/test/echo", r#"{"text":"a"}"#).header("Origin", "http://evil.example"),
        get("/metrics").header("Host", "evil.example"),
    ] {
        refused.send(server.address).await.problem(403, "ORIGIN_REFUSED");
    }
    let token = server.token(Role::Reader).await;
    let with =
        get(WHO).header("Host", "mainstay.example").header("Origin", "http://evil.example").token(&token);
    assert_eq!(with.send(server.address).await.status, 200, "a token is what no page of elsewhere has");
}

#[tokio::test]
async fn an_address_that_others_reach_needs_tokens_and_tls() {
    let place = Place::new(Kind::SqliteMemory);
    let store = equipped(place.options()).open().await.unwrap();
    let everywhere = || Options::default().listen("0.0.0.0:0".parse().unwrap());
    let bind = async |options: Options| Server::bind(options, store.clone()).await;
    let refused = bind(everywhere()).await.err().unwrap();
    assert_eq!(refused.code(), "SERVER_UNPROTECTED");
    assert!(refused.to_string().contains("neither a token nor TLS"), "{refused}");
    let refused = bind(everywhere().tls("c.pem", "k.pem")).await.err().unwrap();
    assert!(refused.to_string().contains("no token yet"), "{refused}");

    let server = Running::start_on(everywhere().insecure(true), store.clone()).await;
    let address = ([127, 0, 0, 1], server.address.port()).into();
    get(WHO).send(address).await.problem(401, "UNAUTHENTICATED");
    assert_eq!(get("/livez").send(address).await.status, 200);
    let token = server.token(Role::Reader).await;
    assert_eq!(get(WHO).token(&token).send(address).await.status, 200);

    let refused = bind(everywhere()).await.err().unwrap();
    assert!(refused.to_string().ends_with("no TLS"), "{refused}");
    let refused = bind(everywhere().tls("missing.pem", "missing.pem")).await.err().unwrap();
    assert_eq!(refused.code(), "SERVER_TLS_INVALID");
    let taken = Options::default().listen(address);
    assert_eq!(bind(taken).await.err().unwrap().code(), "SERVER_LISTEN_FAILED");
}
