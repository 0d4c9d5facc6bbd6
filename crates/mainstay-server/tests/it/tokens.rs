//! The life of a token, on every kind of store.

use crate::client::{get, post, request, soon};
use crate::running::{Running, options};
use crate::test_routes::gate;
use mainstay_guards::http::{Key, TrustedProxies};
use mainstay_guards::limits::{Definition, Kind, Policy, RateLimitLayer, Rule, memory};
use mainstay_server::tokens::{Lives, New, Rotation, USUAL_LIFE};
use mainstay_server::{Role, Tokens, equipped};
use mainstay_store::Tx;
use mainstay_testkit::stores::{for_each_lasting_store, for_each_store};
use mainstay_testkit::time::{START_MS, VirtualTime};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A second, and what a busy machine adds.
const SOON: Duration = Duration::from_secs(3);
const WHO: &str = "/v1/test/who";
/// Requests of one address until its rate limit refuses it: more than come before the limit of admin operations is reached.
const REQUESTS: u32 = 1_000;

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

#[test]
fn a_token_expires_after_a_year_unless_it_is_said_otherwise() {
    for_each_store(async |place| {
        let (store, _time) = VirtualTime::open_with(&place, equipped(place.options())).await.unwrap();
        let server = Running::start_on(options(), store.clone()).await;
        let month = Duration::from_secs(30 * 86_400);
        let lives = Lives { usual: Some(USUAL_LIFE), most: Some(month) };
        let strict = Running::start_on(options().token_lives(lives), store).await;
        let admin = server.token(Role::Admin).await;
        let make = async |server: &Running, expires: &str| {
            let body = format!(r#"{{"name":"a","role":"reader"{expires}}}"#);
            post("/admin/tokens", &body).token(&admin).send(server.address).await
        };
        let expires = async |server: &Running, expires: &str| {
            let answer = make(server, expires).await;
            assert_eq!(answer.status, 201, "{answer:?}");
            answer.json()["token"]["expiresAt"].clone()
        };
        assert_eq!(expires(&server, "").await, "2027-01-01T00:00:00.000Z");
        assert_eq!(expires(&server, r#","expiresInMs":1000"#).await, "2026-01-01T00:00:01.000Z");
        assert_eq!(expires(&server, r#","expiresInMs":null"#).await, Value::Null);
        // A configured longest life bounds every token.
        assert_eq!(expires(&strict, "").await, "2026-01-31T00:00:00.000Z");
        assert_eq!(expires(&strict, r#","expiresInMs":2592000000"#).await, "2026-01-31T00:00:00.000Z");
        for longer in [r#","expiresInMs":2592000001"#, r#","expiresInMs":null"#] {
            let problem = make(&strict, longer).await.problem(400, "BODY_INVALID");
            assert_eq!(problem["field"], "expiresInMs");
        }
    });
}

#[test]
fn a_rotated_token_works_beside_its_successor_until_the_overlap_is_over() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, equipped(place.options())).await.unwrap();
        let server = Running::start_on(options(), store).await;
        let admin = server.token(Role::Admin).await;
        let ask = async |path: &str, body: &str| post(path, body).token(&admin).send(server.address).await;
        let body = r#"{"name":"ci","role":"worker","scope":{"pools":["mail"],"functions":["send"]},"expiresInMs":100000}"#;
        let made = ask("/admin/tokens", body).await.json();
        let (id, old) = (made["token"]["id"].as_str().unwrap(), made["secret"].as_str().unwrap());
        time.advance(60_000).await.unwrap();
        let path = format!("/admin/tokens/{id}/rotate");
        let wrong = ask(&path, r#"{"overlapMs":2592000001}"#).await.problem(400, "BODY_INVALID");
        assert_eq!(wrong["field"], "overlapMs");
        let rotated = ask(&path, r#"{"overlapMs":10000}"#).await;
        assert_eq!(rotated.status, 201, "{rotated:?}");
        let rotated = rotated.json();
        let (token, replaces) = (&rotated["token"], &rotated["replaces"]);
        for member in ["name", "role", "scope"] {
            assert_eq!(token[member], made["token"][member], "{rotated}");
        }
        assert_eq!(token["expiresAt"], "2026-01-01T00:02:40.000Z", "as long as the first, from now on");
        assert_eq!(
            (&replaces["id"], &replaces["expiresAt"], &replaces["rotatedTo"]),
            (&json!(id), &json!("2026-01-01T00:01:10.000Z"), &token["id"])
        );
        let new = rotated["secret"].as_str().unwrap();
        assert_ne!(new, old);
        // The pool is not there, which only a worker that is let in is told.
        let claim = async |secret: &str| {
            let claim = post("/v1/pools/mail/claim", r#"{"functions":["send"]}"#).token(secret);
            claim.send(server.address).await.status
        };
        assert_eq!((claim(old).await, claim(new).await), (404, 404));
        let again = ask(&path, "{}").await.problem(409, "TOKEN_SPENT");
        assert_eq!(again["rotatedTo"], token["id"]);
        time.advance(10_000).await.unwrap();
        soon(async { while claim(old).await != 401 {} }).await;
        assert_eq!(claim(new).await, 404);

        // At once, and never longer than the old one was to live.
        let successor = token["id"].as_str().unwrap();
        let path = format!("/admin/tokens/{successor}/rotate");
        let rotated = ask(&path, r#"{"overlapMs":0}"#).await.json();
        assert_eq!(rotated["replaces"]["expiresAt"], "2026-01-01T00:01:10.000Z");
        assert_eq!(claim(new).await, 401, "at once, where it was rotated");
        let third = rotated["token"]["id"].as_str().unwrap();
        let rotated = ask(&format!("/admin/tokens/{third}/rotate"), "{}").await.json();
        assert_eq!(rotated["replaces"]["expiresAt"], "2026-01-01T00:02:50.000Z", "sooner than in a day");

        let fourth = rotated["token"]["id"].as_str().unwrap();
        request("DELETE", &format!("/admin/tokens/{fourth}")).token(&admin).send(server.address).await;
        ask(&format!("/admin/tokens/{fourth}/rotate"), "{}").await.problem(409, "TOKEN_SPENT");
        ask("/admin/tokens/0000000000000000/rotate", "{}").await.problem(404, "TOKEN_NOT_FOUND");
        let all = Tokens::new(server.store.clone()).list(None).await.unwrap();
        assert_eq!(all.len(), 5, "a refused rotation makes no token");
    });
}

#[test]
fn of_two_rotations_at_once_one_makes_a_token() {
    for_each_store(async |place| {
        let store = equipped(place.options()).open().await.unwrap();
        let (one, other) = (Tokens::new(store.clone()), Tokens::new(store));
        let (token, _) = one.create(New::named("a", Role::Reader).unwrap()).await.unwrap();
        let rotate = async |tokens: &Tokens| {
            tokens.rotate(&token.id, None, Duration::from_secs(60), &Lives::default()).await.unwrap()
        };
        let both = tokio::join!(rotate(&one), rotate(&other));
        let done =
            [both.0, both.1].iter().filter(|rotation| matches!(rotation, Rotation::Done { .. })).count();
        assert_eq!((done, one.list(None).await.unwrap().len()), (1, 2));
    });
}

/// Most valid tokens of a tenant.
const MOST_OF_TENANT: usize = 1_000;

/// Valid tokens of a tenant until it has so many.
async fn fill(server: &Running, tenant: &str, most: usize) {
    let sql = format!(
        "INSERT INTO mainstay_tokens (id, hash, name, role, tenant, created_at) \
         SELECT '{tenant}-' || i, '', 'n', 'reader', '{tenant}', 0 FROM (WITH RECURSIVE numbers(i) AS (SELECT 1 \
         UNION ALL SELECT i + 1 FROM numbers WHERE i < {most}) SELECT i FROM numbers) AS numbers \
         WHERE i > (SELECT count(*) FROM mainstay_tokens WHERE tenant = '{tenant}')"
    );
    let insert = async |tx: Tx, sql: String| tx.execute(&sql, &[]).await;
    server.store.transact_with(sql, insert).await.unwrap();
}

#[test]
fn a_tenant_at_its_bound_rotates_its_tokens_and_blocks_no_other_admin() {
    for_each_store(async |place| {
        let store = equipped(place.options()).open().await.unwrap();
        let server = Running::start_on(options(), store).await;
        let (admin, acme, globex) = (
            server.token(Role::Admin).await,
            server.token_of("acme", Role::Admin).await,
            server.token_of("globex", Role::Admin).await,
        );
        // As many as the bound of the whole deployment was before tenants had one.
        fill(&server, "acme", 10 * MOST_OF_TENANT).await;
        let ask = async |token: &str, path: &str, body: &str| {
            post(path, body).token(token).send(server.address).await
        };
        let make = r#"{"name":"more","role":"reader"}"#;
        ask(&acme, "/admin/tokens", make).await.problem(409, "TOKENS_TOO_MANY");
        let for_acme = r#"{"name":"more","role":"reader","tenant":"acme"}"#;
        ask(&admin, "/admin/tokens", for_acme).await.problem(409, "TOKENS_TOO_MANY");
        for (token, role) in [(&admin, "admin"), (&globex, "reader")] {
            let made = ask(token, "/admin/tokens", &make.replace("reader", role)).await;
            assert_eq!(made.status, 201, "{made:?}");
            let id = made.json()["token"]["id"].as_str().unwrap().to_owned();
            let rotated = ask(token, &format!("/admin/tokens/{id}/rotate"), "{}").await;
            assert_eq!(rotated.status, 201, "{rotated:?}");
        }
        let rotated = ask(&acme, &format!("/admin/tokens/{}/rotate", &acme[4..20]), "{}").await;
        assert_eq!(rotated.status, 201, "{rotated:?}");
    });
}

#[test]
fn a_tenant_has_room_for_its_bound_and_a_rotation_takes_none_of_it() {
    for_each_store(async |place| {
        let store = equipped(place.options()).open().await.unwrap();
        let server = Running::start_on(options(), store).await;
        let acme = server.token_of("acme", Role::Admin).await;
        fill(&server, "acme", MOST_OF_TENANT - 1).await;
        let ask = async |path: &str, body: &str| post(path, body).token(&acme).send(server.address).await;
        let rotate = async |id: &str| ask(&format!("/admin/tokens/{id}/rotate"), "{}").await.status;
        // Two valid secrets of a token are one token, also when the newer one is revoked.
        assert_eq!((rotate("acme-2").await, rotate("acme-3").await), (201, 201));
        let make = async || ask("/admin/tokens", r#"{"name":"more","role":"reader"}"#).await;
        let last = make().await;
        assert_eq!(last.status, 201, "{last:?}");
        make().await.problem(409, "TOKENS_TOO_MANY");
        let list = Tokens::new(server.store.clone()).list(Some("acme")).await.unwrap();
        let successor = list.iter().find(|token| token.id == "acme-2").unwrap().rotated_to.clone().unwrap();
        let revoke = async |id: &str| {
            let revoke = request("DELETE", &format!("/admin/tokens/{id}")).token(&acme);
            assert_eq!(revoke.send(server.address).await.status, 200);
        };
        revoke(&successor).await;
        make().await.problem(409, "TOKENS_TOO_MANY");
        revoke("acme-2").await;
        assert_eq!(make().await.status, 201, "what is revoked makes room");
    });
}

#[test]
fn three_secrets_of_a_token_work_at_a_time_and_one_without_an_overlap_is_never_refused() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, equipped(place.options())).await.unwrap();
        let tokens = Tokens::new(store);
        let (first, _) = tokens.create(New::named("a", Role::Reader).unwrap()).await.unwrap();
        let day = Duration::from_secs(86_400);
        let rotate = async |id: &str, overlap: Duration| match tokens
            .rotate(id, None, overlap, &Lives::default())
            .await
        {
            Ok(Rotation::Done(done)) => Ok(done.token.id.clone()),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        };
        let second = rotate(&first.id, day).await.unwrap();
        let third = rotate(&second, day).await.unwrap();
        let refused = rotate(&third, day).await.unwrap_err();
        assert!(refused.contains("3 secrets of this token work already"), "{refused}");
        // Secrets without an overlap in between hide nothing of those before.
        let fourth = rotate(&third, Duration::ZERO).await.unwrap();
        assert!(rotate(&fourth, day).await.is_err(), "the first two still work");
        tokens.revoke(&first.id, None).await.unwrap();
        let fifth = rotate(&fourth, day).await.unwrap();
        assert!(rotate(&fifth, day).await.is_err());
        time.advance(86_400_000).await.unwrap();
        rotate(&fifth, day).await.unwrap();
    });
}

#[test]
fn taking_access_away_is_never_counted_and_never_refused_by_a_limit() {
    for_each_store(async |place| {
        let store = equipped(place.options()).open().await.unwrap();
        // Room for one request at a time of a token, and for so many requests of an address.
        let policy = Policy::bucket(f64::from(REQUESTS), 0.001).unwrap();
        let rule =
            Rule::new("requests", memory::limiter(policy), Key::address(TrustedProxies::none())).unwrap();
        let limits = RateLimitLayer::http().rule(rule).unwrap();
        let tight = options().max_connections(2).max_connections_per_address(2).rate_limits(limits);
        let server = Running::start_on(tight, store).await;
        let admin = server.token(Role::Admin).await;
        let one = Definition::new(Kind::FixedWindow, 1.0, 3_600_000).unwrap();
        mainstay_guards::limits::store::Limits::open(server.store.clone())
            .await
            .unwrap()
            .define("adminOperations", one)
            .await
            .unwrap();
        let make = post("/admin/tokens", r#"{"name":"a","role":"reader"}"#).token(&admin);
        let id = loop {
            // The limit is known here within a moment; until then more is let through.
            let answer = make.send(server.address).await;
            let Some(id) = answer.json()["token"]["id"].as_str().map(str::to_owned) else { continue };
            if make.send(server.address).await.status == 429 {
                break id;
            }
        };
        // Nor the quota of requests at once, nor a rate limit of the address.
        let waiting = tokio::spawn(get("/v1/test/wait/revoking").token(&admin).send_to(server.address));
        gate("revoking").entered.acquire().await.unwrap().forget();
        get(WHO).token(&admin).send(server.address).await.problem(429, "QUOTA_REACHED");
        while get(WHO).token(&admin).send(server.address).await.json()["code"] != "RATE_LIMITED" {}
        for (method, path, status) in [
            ("POST", format!("/admin/tokens/{id}/sign-out"), 200),
            ("DELETE", "/admin/sessions".to_owned(), 200),
            ("DELETE", format!("/admin/tokens/{id}"), 200),
            ("DELETE", format!("/admin/tokens/{id}"), 200),
            ("POST", "/admin/work/none/cancel".to_owned(), 404),
            ("POST", "/admin/replays/none/cancel".to_owned(), 404),
            ("POST", "/admin/dead-letter-operations/none/cancel".to_owned(), 404),
        ] {
            let ask = request(method, &path).header("Content-Type", "application/json").body("{}");
            let answer = ask.token(&admin).send(server.address).await;
            assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
        }
        assert_eq!(make.send(server.address).await.status, 429, "what gives access is still counted");
        gate("revoking").leave.add_permits(1);
        assert_eq!(soon(waiting).await.unwrap().status, 200);
    });
}
