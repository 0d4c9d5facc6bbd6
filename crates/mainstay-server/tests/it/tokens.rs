//! The life of a token, on every kind of store.

use crate::client::{get, post, request, soon};
use crate::running::{Running, options};
use crate::test_routes::gate;
use mainstay_server::tokens::New;
use mainstay_server::{Role, Tokens, equipped};
use mainstay_testkit::stores::{for_each_lasting_store, for_each_store};
use mainstay_testkit::time::{START_MS, VirtualTime};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A second, and what a busy machine adds.
const SOON: Duration = Duration::from_secs(3);
const WHO: &str = "/v1/test/who";

#[test]
fn a_token_is_made_used_listed_and_revoked() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, equipped(place.options())).await.unwrap();
        let server = Running::start_on(options(), store).await;
        let admin = server.token(Role::Admin).await;
        time.advance(1_000).await.unwrap();
        let body = r#"{"name":"ci","role":"operator","tenant":"acme","expiresInMs":60000}"#;
        let answer = post("/admin/tokens", body).token(&admin).send(server.address).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        let created = answer.json();
        let (secret, id) = (created["secret"].as_str().unwrap(), created["token"]["id"].as_str().unwrap());
        assert!(secret.starts_with(&format!("mst_{id}_")) && secret.len() == 85);
        let token = json!({ "id": id, "name": "ci", "role": "operator", "tenant": "acme",
            "createdAt": "2026-01-01T00:00:01.000Z", "expiresAt": "2026-01-01T00:01:01.000Z" });
        assert_eq!(created["token"], token);

        let who = get(WHO).token(secret).send(server.address).await.json();
        assert_eq!(
            (&who["role"], &who["tenant"], &who["token"]),
            (&json!("operator"), &json!("acme"), &json!(id))
        );
        // The id alone is no secret, so it opens nothing, whatever stands behind it.
        let other = if secret.ends_with('0') { '1' } else { '0' };
        for near in [
            format!("{}{other}", &secret[..84]),
            format!("mst_{id}_{}", "0".repeat(64)),
            format!("mst_{id}_"),
        ] {
            get(WHO).token(&near).send(server.address).await.problem(401, "UNAUTHENTICATED");
        }
        // That it was used is written down behind the answer.
        let used = loop {
            let list = get("/admin/tokens").token(&admin).send(server.address).await.json();
            assert_eq!(list["tokens"][1]["id"], id);
            assert!(!list.to_string().contains(&secret[21..]), "the secret is never told again");
            if let Some(used) = list["tokens"][1]["lastUsedAt"].as_str() {
                break used.to_owned();
            }
        };
        assert_eq!(used, "2026-01-01T00:00:01.000Z");

        let revoke = request("DELETE", &format!("/admin/tokens/{id}")).token(&admin);
        let revoked = revoke.send(server.address).await.json();
        assert_eq!(revoked["revokedAt"], "2026-01-01T00:00:01.000Z");
        // At once, on the node that revoked it.
        get(WHO).token(secret).send(server.address).await.problem(401, "UNAUTHENTICATED");
        time.advance(1_000).await.unwrap();
        assert_eq!(revoke.send(server.address).await.json(), revoked, "again changes nothing");
        let unknown = request("DELETE", "/admin/tokens/0000000000000000").token(&admin);
        unknown.send(server.address).await.problem(404, "TOKEN_NOT_FOUND");
    });
}

#[test]
fn a_token_expires_by_the_clock_of_the_database() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, equipped(place.options())).await.unwrap();
        let tokens = Tokens::new(store.clone());
        assert!(!tokens.exist().await.unwrap());
        let new = New::named("short", Role::Reader).unwrap().expires_in(Duration::from_millis(500)).unwrap();
        let (token, secret) = tokens.create(new).await.unwrap();
        assert_eq!(token.expires_at, Some(START_MS + 500));
        assert!(tokens.exist().await.unwrap(), "at once where it was made");
        let is_known =
            async || Tokens::new(store.clone()).authenticate(secret.reveal()).await.unwrap().is_some();
        time.advance(499).await.unwrap();
        assert!(is_known().await);
        time.advance(1).await.unwrap();
        assert!(!is_known().await);
    });
}

#[test]
fn a_token_that_another_node_revoked_is_worthless_within_a_second() {
    for_each_lasting_store(async |place| {
        let store = equipped(place.options()).open().await.unwrap();
        let server = Running::start_on(options(), store.clone()).await;
        // Another node is another process; what it shares with this one is the store.
        let elsewhere = Tokens::new(store);
        let (token, secret) = elsewhere.create(New::named("a", Role::Reader).unwrap()).await.unwrap();
        let ask = get(WHO).token(secret.reveal());
        assert_eq!(ask.send(server.address).await.status, 200);
        elsewhere.revoke(&token.id, None).await.unwrap();
        let revoked = Instant::now();
        while ask.send(server.address).await.status == 200 {
            assert!(revoked.elapsed() < SOON);
        }
    });
}

#[tokio::test]
async fn an_answer_that_streams_ends_with_its_token() {
    let server = Running::start(options()).await;
    let open = tokio::spawn(get("/v1/test/stream/open").send_to(server.address));
    gate("open").entered.acquire().await.unwrap().forget();
    let elsewhere = Tokens::new(server.store.clone());
    let (token, secret) = elsewhere.create(New::named("a", Role::Reader).unwrap()).await.unwrap();
    assert_eq!(soon(open).await.unwrap().body, "hello ", "now that there is a token, one is needed");

    let ask = get("/v1/test/stream/ends").token(secret.reveal());
    let streaming = tokio::spawn(ask.send_to(server.address));
    gate("ends").entered.acquire().await.unwrap().forget();
    elsewhere.revoke(&token.id, None).await.unwrap();
    let revoked = Instant::now();
    assert_eq!(soon(streaming).await.unwrap().body, "hello ");
    assert!(revoked.elapsed() < SOON);
}

#[tokio::test]
async fn an_admin_with_a_tenant_stays_in_it() {
    let server = Running::start(options()).await;
    let tokens = Tokens::new(server.store.clone());
    let new = |name: &str| New::named(name, Role::Admin).unwrap();
    let (_, acme) = tokens.create(new("acme").tenant("acme").unwrap()).await.unwrap();
    let (other, _) = tokens.create(new("other").tenant("other").unwrap()).await.unwrap();
    let (everyone, _) = tokens.create(new("everyone")).await.unwrap();
    let acme = acme.reveal();

    let make = |tenant: &str| {
        post("/admin/tokens", &format!(r#"{{"name":"x","role":"admin"{tenant}}}"#)).token(acme)
    };
    let made = make("").send(server.address).await.json();
    assert_eq!(made["token"]["tenant"], "acme", "not a token for all tenants");
    make(r#","tenant":"other""#).send(server.address).await.problem(403, "UNAUTHORIZED");
    let list = get("/admin/tokens").token(acme).send(server.address).await.json();
    let names = list["tokens"].as_array().unwrap().iter().map(|token| token["name"].as_str().unwrap());
    // Two of one millisecond come in the order of their ids, which is any.
    assert_eq!(names.collect::<BTreeSet<_>>(), BTreeSet::from(["acme", "x"]));
    assert_eq!(list["tokens"].as_array().unwrap().len(), 2);
    for id in [&other.id, &everyone.id] {
        let revoke = request("DELETE", &format!("/admin/tokens/{id}")).token(acme);
        revoke.send(server.address).await.problem(404, "TOKEN_NOT_FOUND");
    }
    assert!(tokens.list(None).await.unwrap().iter().all(|token| token.revoked_at.is_none()));
}

#[tokio::test]
async fn what_a_token_cannot_be_is_named() {
    let server = Running::start(options()).await;
    let admin = server.token(Role::Admin).await;
    for (body, field) in [
        (r#"{"name":"","role":"admin"}"#, "name"),
        (r#"{"name":"a","role":"root"}"#, "role"),
        (r#"{"name":"a","role":"admin","tenant":"a:b"}"#, "tenant"),
        (r#"{"name":"a","role":"admin","expiresInMs":0}"#, "expiresInMs"),
        (r#"{"name":"a","role":"admin","expiresIn":5}"#, "expiresIn"),
    ] {
        let answer = post("/admin/tokens", body).token(&admin).send(server.address).await;
        assert_eq!(answer.problem(400, "BODY_INVALID")["field"], field);
    }
}

#[test]
fn tokens_are_listed_a_page_at_a_time() {
    for_each_store(async |place| {
        let store = equipped(place.options()).open().await.unwrap();
        let server = Running::start_on(options(), store).await;
        let admin = server.token(Role::Admin).await;
        for _ in 0..4 {
            server.token(Role::Reader).await;
        }
        let ask = async |path: &str| get(path).token(&admin).send(server.address).await;
        let ids = |page: &Value| -> Vec<String> {
            let tokens = page["tokens"].as_array().unwrap();
            tokens.iter().map(|token| token["id"].as_str().unwrap().to_owned()).collect()
        };
        let all = ids(&ask("/admin/tokens").await.json());
        assert_eq!(all.len(), 5);
        let (mut found, mut path) = (Vec::new(), "/admin/tokens?limit=2".to_owned());
        loop {
            let page = ask(&path).await.json();
            found.extend(ids(&page));
            let Some(next) = page["next"].as_str() else { break };
            path = format!("/admin/tokens?limit=2&cursor={next}");
        }
        assert_eq!(found, all);
        for wrong in ["limit=0", "limit=1001", "cursor=x", "cursor=t1", "cursor=t1.%00"] {
            ask(&format!("/admin/tokens?{wrong}")).await.problem(400, "QUERY_INVALID");
        }
        // Neither database can hold a NUL.
        let revoke = request("DELETE", "/admin/tokens/a%00").token(&admin);
        revoke.send(server.address).await.problem(400, "PATH_INVALID");
    });
}
