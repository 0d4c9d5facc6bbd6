//! Bounds of what callers may name and hold, over HTTP.

use crate::asking::Asking;
use crate::client::{get, post, request, soon};
use crate::running::{Running, options};
use crate::work::put;
use mainstay_flows::delivery::publications::MAX_TARGETS;
use mainstay_guards::circuits::MAX_CIRCUITS;
use mainstay_guards::limits::MAX_LIMITS;
use mainstay_server::tokens::New;
use mainstay_server::{Role, Tokens, equipped};
use mainstay_store::{Store, Tx};
use mainstay_testkit::stores::for_each_store;
use mainstay_work::bounds::{MAX_CRONS, MAX_FUNCTIONS, MAX_LANES, MAX_POOLS};
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Adds rows until a table has so many; `insert` says what a row of the number `i` is.
async fn fill(store: &Store, table: &str, insert: &str, most: usize) {
    let sql = format!(
        "INSERT INTO {table} {insert} FROM (WITH RECURSIVE numbers(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers \
         WHERE i < {most}) SELECT i FROM numbers) AS numbers WHERE i > (SELECT count(*) FROM {table})"
    );
    store.transact_with(sql, async |tx: Tx, sql: String| tx.execute(&sql, &[]).await).await.unwrap();
}

/// A set of names: the rows that fill it, and a request for another name.
struct Set {
    name: &'static str,
    table: &'static str,
    row: &'static str,
    most: usize,
    request: (&'static str, &'static str, Value),
    code: &'static str,
}

fn sets() -> Vec<Set> {
    let set = |name, table, row, most, request, code| Set { name, table, row, most, request, code };
    let full = "WORK_NAMES_TOO_MANY";
    let limit = json!({"kind": "fixed window", "rate": 5, "period": "1h"});
    let cron = json!({"schedule": {"everyMs": 3_600_000}, "pool": "shop", "function": "known", "args": 1});
    vec![
        set(
            "pools",
            "mainstay_pools",
            "(number, name, settings, is_paused, started_until, changed_at) SELECT i + 1000, 'pool-' || i, '{}', 0, 0, 0",
            MAX_POOLS,
            ("PUT", "/v1/pools/more", json!({})),
            full,
        ),
        set(
            "functions",
            "mainstay_functions",
            "(name, kind, declared_at) SELECT 'function-' || i, 'action', 0",
            MAX_FUNCTIONS,
            ("POST", "/v1/pools/shop/claim", json!({"functions": ["more"]})),
            full,
        ),
        set(
            "lanes",
            "mainstay_lanes",
            "(number, pool, function, priority) SELECT i + 1000, 1000000, 'f', i",
            MAX_LANES,
            ("POST", "/v1/pools/shop/work", json!({"function": "known", "args": 1, "priority": 7})),
            full,
        ),
        set(
            "crons",
            "mainstay_crons",
            "(name, cron, next_at, is_paused, fired, last_at) SELECT 'cron-' || i, '', 0, 1, 0, NULL",
            MAX_CRONS,
            ("PUT", "/v1/crons/more", cron),
            full,
        ),
        set(
            "limits",
            "mainstay_limits",
            "(name, version, definition, changed_at) SELECT 'limit-' || i, 1, '', 0",
            MAX_LIMITS,
            ("PUT", "/admin/limits/more", limit),
            "LIMITS_TOO_MANY",
        ),
        set(
            "circuits",
            "mainstay_circuits",
            "(name, state, failure_count, success_count, settings, updated_at, version) \
             SELECT 'circuit-' || i, 0, 0, 0, '{}', 0, 0",
            MAX_CIRCUITS,
            ("PUT", "/admin/circuits/more", json!({})),
            "CIRCUITS_TOO_MANY",
        ),
        set(
            "tokens",
            "mainstay_tokens",
            "(id, hash, name, role, created_at) SELECT 'token-' || i, '', 'n', 'reader', 0",
            10_000,
            ("POST", "/admin/tokens", json!({"name": "more", "role": "reader"})),
            "TOKENS_TOO_MANY",
        ),
    ]
}

/// Sessions of one token that the console keeps.
const SESSIONS_OF_A_TOKEN: i64 = 20;

/// Targets have no names but those that a program gives them: whatever a caller names leaves no row. Of sessions the oldest
/// of a token go.
async fn sets_that_grow_by_no_request(server: &Running, admin: &Asking) {
    let count = async |table: &str| {
        let sql = format!("SELECT count(*) FROM {table}");
        let read = async |tx: Tx, sql: String| tx.query_one(&sql, &[]).await?.get::<i64>(0);
        server.store.read_with(sql, read).await.unwrap()
    };
    let event = json!({"events": [{"type": "Placed", "data": 1}]});
    let event = admin.post("/v1/events", event).await["events"][0]["eventId"].clone();
    let tables = ["mainstay_publications", "mainstay_functions", "mainstay_pools"];
    let mut before = Vec::new();
    for table in tables {
        before.push(count(table).await);
    }
    for names in [1, MAX_TARGETS + 1] {
        let names: Vec<String> = (0..names).map(|number| format!("target-{number}")).collect();
        let body = json!({"eventId": event, "sourceContext": "orders", "targetContexts": names});
        let status = admin.refusal(post("/v1/publications", &body.to_string())).await.0;
        assert!((400..500).contains(&status), "{status}");
    }
    for (table, before) in tables.into_iter().zip(before) {
        assert_eq!(count(table).await, before, "{table}");
    }
    for _ in 0..SESSIONS_OF_A_TOKEN + 2 {
        crate::console::Browser::log_in(server, &admin.token).await;
    }
    assert_eq!(count("mainstay_console_sessions").await, SESSIONS_OF_A_TOKEN);
}

/// Names that nothing bounds but the memory let one caller stop the server for good.
#[test]
fn every_set_of_names_has_a_bound() {
    for_each_store(async |place| {
        let store = equipped(place.options()).open().await.unwrap();
        let server = Running::start_on(options(), store).await;
        let admin = Asking::new(&server, Role::Admin).await;
        admin.ask(put("/v1/pools/shop", &json!({}))).await;
        admin.post("/v1/pools/shop/claim", json!({"functions": ["known"]})).await;
        admin.post("/v1/pools/shop/work", json!({"function": "known", "args": 1})).await;
        for Set { name, table, row, most, request: (method, path, body), code } in sets() {
            // Rows of the platform and of the program are not counted.
            fill(&server.store, table, row, most + 100).await;
            let ask = request(method, path).header("Content-Type", "application/json");
            let (status, problem) = admin.ask(ask.body(&body.to_string())).await;
            assert_eq!((status, &problem["code"]), (409, &json!(code)), "{name}: {problem}");
            if code == "WORK_NAMES_TOO_MANY" {
                assert_eq!((&problem["what"], &problem["limit"]), (&json!(name), &json!(most)));
            }
        }
        sets_that_grow_by_no_request(&server, &admin).await;
        // Names that exist go on.
        admin.post("/v1/pools/shop/work", json!({"function": "known", "args": 1})).await;
        assert_eq!(admin.ask(put("/v1/pools/shop", &json!({"maxParallelism": 3}))).await.0, 200);
        // Names that are only asked for are not kept.
        for path in ["/admin/projections/more", "/v1/pools/more", "/v1/limits/more"] {
            assert_eq!(admin.ask(get(path)).await.0, 404, "{path}");
        }
    });
}

#[test]
fn an_admin_deletes_what_is_empty() {
    for_each_store(async |place| {
        let store = equipped(place.options()).open().await.unwrap();
        let server = Running::start_on(options(), store).await;
        let (admin, operator) =
            (Asking::new(&server, Role::Admin).await, Asking::new(&server, Role::Operator).await);
        let delete = |path: &str| request("DELETE", path);
        admin.ask(put("/v1/pools/side", &json!({}))).await;
        admin.ask(put("/admin/circuits/mail", &json!({}))).await;
        let limit = json!({"kind": "fixed window", "rate": 5, "period": "1h"});
        admin.ask(put("/admin/limits/mail", &limit)).await;
        admin.post("/v1/limits/mail/consume", json!({"key": "k", "cost": 5})).await;
        admin.post("/v1/pools/side/claim", json!({"functions": ["remote", "idle"]})).await;
        let paths =
            ["/admin/pools/side", "/admin/functions/idle", "/admin/circuits/mail", "/admin/limits/mail"];
        for path in paths {
            assert_eq!(operator.refusal(delete(path)).await, (403, "UNAUTHORIZED".to_owned()), "{path}");
        }
        let item = json!({"function": "remote", "args": 1, "runAfterMs": 3_600_000});
        let id =
            admin.post("/v1/pools/side/work", item).await["work"][0]["workId"].as_str().unwrap().to_owned();
        admin.post("/admin/circuits/mail/force", json!({"state": "open", "reason": "r"})).await;
        for (path, code) in [
            ("/admin/pools/side", "WORK_NAME_IN_USE"),
            ("/admin/pools/timers", "WORK_NAME_IN_USE"),
            ("/admin/functions/remote", "WORK_NAME_IN_USE"),
            ("/admin/circuits/mail", "GUARD_IN_USE"),
            ("/admin/limits/commandDispatch", "GUARD_IN_USE"),
        ] {
            assert_eq!(admin.refusal(delete(path)).await, (409, code.to_owned()), "{path}");
        }
        admin.ask(delete(&format!("/v1/work/{id}"))).await;
        admin.post("/admin/circuits/mail/reset", json!({"reason": "r"})).await;
        for (path, code) in
            paths.into_iter().zip(["UNKNOWN_POOL", "UNKNOWN_FUNCTION", "UNKNOWN_CIRCUIT", "UNKNOWN_LIMIT"])
        {
            let (status, told) = admin.ask(delete(path)).await;
            assert_eq!(
                (status, path.ends_with(told["name"].as_str().unwrap())),
                (200, true),
                "{path}: {told}"
            );
            assert_eq!(admin.refusal(delete(path)).await.1, code, "{path}");
        }
        let work = post("/v1/pools/side/work", r#"{"function":"remote","args":1}"#);
        assert_eq!(admin.refusal(work).await, (404, "UNKNOWN_POOL".to_owned()));
        assert_eq!(admin.get(&format!("/v1/work/{id}")).await["pool"], "side");
        assert_eq!(admin.get("/v1/circuits/mail").await["failureCount"], 0);
        // A limit of the same name is another one: what was used of the first counts for nothing.
        admin
            .ask(put("/admin/limits/mail", &json!({"kind": "fixed window", "rate": 2, "period": "2h"})))
            .await;
        let decision = admin.post("/v1/limits/mail/consume", json!({"key": "k", "cost": 2})).await;
        assert_eq!(decision["allowed"], true, "{decision}");
    });
}

/// A caller that fills a set of names is faster than ten deletions an hour.
#[test]
fn deleting_what_is_empty_is_written_down_and_not_counted() {
    for_each_store(async |place| {
        let store = equipped(place.options()).open().await.unwrap();
        let server = Running::start_on(options(), store).await;
        let admin = Asking::new(&server, Role::Admin).await;
        admin.ask(put("/v1/pools/shop", &json!({}))).await;
        admin.ask(put("/v1/pools/side", &json!({}))).await;
        admin.post("/v1/pools/side/claim", json!({"functions": ["idle", "used"]})).await;
        let limit = json!({"kind": "fixed window", "rate": 5, "period": "1h"});
        admin.ask(put("/admin/limits/mail", &limit)).await;
        admin.ask(put("/admin/circuits/mail", &json!({}))).await;
        let cron = json!({"schedule": {"everyMs": 3_600_000}, "pool": "shop", "function": "used", "args": 1});
        admin.ask(put("/v1/crons/hourly", &cron)).await;
        let one = json!({"kind": "fixed window", "rate": 1, "period": "1h"});
        admin.ask(put("/admin/limits/adminOperations", &one)).await;
        let pause = || post("/admin/pools/shop/pause", "{}");
        soon(async { while admin.ask(pause()).await.0 != 429 {} }).await;
        for path in [
            "/v1/crons/hourly",
            "/admin/pools/side",
            "/admin/functions/idle",
            "/admin/limits/mail",
            "/admin/circuits/mail",
        ] {
            let (status, told) = admin.ask(request("DELETE", path)).await;
            assert_eq!(status, 200, "{path}: {told}");
        }
        let audit = admin.get("/admin/audit?limit=20").await;
        let entries = audit["entries"].as_array().unwrap().iter();
        let deleted = entries.filter(|entry| entry["action"].as_str().unwrap().starts_with("DELETE"));
        assert_eq!(deleted.filter(|entry| entry["outcome"] == "done").count(), 5, "{audit}");
    });
}

async fn token(server: &Running, tenant: Option<&str>) -> String {
    let new = New::named("test", Role::Operator).unwrap();
    let new = tenant.into_iter().fold(new, |new, tenant| new.tenant(tenant).unwrap());
    let (_, secret) = Tokens::new(server.store.clone()).create(new).await.unwrap();
    secret.reveal().to_owned()
}

/// A stream, once its answer has begun; the status.
async fn follow(address: SocketAddr, token: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let ask = get("/v1/events/subscribe").token(token).text(address);
    stream.write_all(ask.as_bytes()).await.unwrap();
    let mut begun = vec![0; 12];
    soon(stream.read_exact(&mut begun)).await.unwrap();
    (stream, String::from_utf8(begun).unwrap())
}

#[tokio::test]
async fn one_token_or_tenant_takes_no_more_than_its_share_of_the_streams() {
    // Four streams: two for a token, three for a tenant.
    let server = Running::start(options().max_connections(8)).await;
    let (one, other, third) =
        (token(&server, Some("shop")).await, token(&server, Some("shop")).await, token(&server, None).await);
    let ask = |token: &str| get("/v1/events/subscribe").token(token);
    let first = follow(server.address, &one).await;
    let second = follow(server.address, &one).await;
    assert_eq!((&*first.1, &*second.1), ("HTTP/1.1 200", "HTTP/1.1 200"));
    let refused = ask(&one).send(server.address).await;
    assert_eq!(refused.header("retry-after"), Some("1"), "{refused:?}");
    let refused = refused.problem(429, "QUOTA_REACHED");
    assert_eq!((&refused["of"], &refused["limit"]), (&json!("token"), &json!(2)));
    let _of_its_tenant = follow(server.address, &other).await;
    let refused = ask(&other).send(server.address).await.problem(429, "QUOTA_REACHED");
    assert_eq!((&refused["of"], &refused["limit"]), (&json!("tenant"), &json!(3)));
    let _others = follow(server.address, &third).await;
    ask(&third).send(server.address).await.problem(503, "STREAMS_FULL");
    // A stream that ends makes room.
    drop(first);
    let room = async { while follow(server.address, &one).await.1 != "HTTP/1.1 200" {} };
    soon(room).await;
}

#[tokio::test]
async fn one_token_keeps_no_other_from_asking_by_waiting() {
    let server = Running::start(options().max_connections(4)).await;
    let (one, other) = (token(&server, None).await, token(&server, None).await);
    let shop = put("/v1/pools/shop", &json!({})).token(&one);
    assert_eq!(shop.send(server.address).await.status, 200);
    let claim =
        |token: &str| post("/v1/pools/shop/claim", r#"{"functions":["remote"],"waitMs":60000}"#).token(token);
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(claim(&one).text(server.address).as_bytes()).await.unwrap();
        waiting.push(stream);
    }
    let refused = async {
        loop {
            let answer = get("/v1/pools/shop").token(&one).send(server.address).await;
            if answer.status != 200 {
                return answer;
            }
        }
    };
    soon(refused).await.problem(429, "QUOTA_REACHED");
    assert_eq!(get("/v1/pools/shop").token(&other).send(server.address).await.status, 200);
    assert_eq!(get("/health/live").send(server.address).await.status, 200);
    drop(waiting);
    let answered =
        async { while get("/v1/pools/shop").token(&one).send(server.address).await.status != 200 {} };
    soon(answered).await;
}
