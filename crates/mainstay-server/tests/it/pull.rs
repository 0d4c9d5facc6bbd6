//! Pull workers over HTTP: they claim, extend, complete and fail, and may go away at any moment.

use crate::client::{get, post, read, request, soon};
use crate::running::{Running, options};
use crate::work::Shop;
use mainstay_core::trace::TraceContext;
use mainstay_server::{Builder, equipped};
use mainstay_store::Tx;
use mainstay_testkit::stores::{Kind, Place, for_each_lasting_store, for_each_store};
use mainstay_testkit::time::VirtualTime;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;

const CLAIM: &str = "/v1/pools/shop/claim";

fn claim(tail: &str) -> String {
    format!(r#"{{"functions":["remote"]{tail}}}"#)
}

/// The number at the beginning of a lease, which is no secret.
fn number(lease: &str) -> Value {
    lease.split_once('.').unwrap().0.parse::<i64>().unwrap().into()
}

impl Shop {
    async fn claim(&self, tail: &str) -> Value {
        self.post(CLAIM, serde_json::from_str(&claim(tail)).unwrap()).await
    }
}

#[tokio::test]
async fn b_259_work_stands_in_the_trace_of_its_request_whoever_began_it() {
    let place = Place::new(Kind::SqliteMemory);
    let shop = Shop::open(&place).await;
    shop.claim("").await;
    let asked = post("/v1/pools/shop/work", r#"{"function":"remote","args":1}"#).send(shop.address).await;
    let traceparent = asked.header("traceparent").unwrap().to_owned();
    let trace = shop.claim("").await["items"][0]["trace"].clone();
    let told = TraceContext::from_traceparent(&traceparent).unwrap();
    assert_eq!(trace["traceId"], told.trace_id, "{traceparent}");
}

#[test]
fn a_worker_claims_extends_completes_and_fails() {
    for_each_store(async |place| {
        let shop = Shop::open(&place).await;
        let none = shop.claim("").await;
        assert_eq!(
            none,
            json!({"lease": null, "untilMs": null, "items": []}),
            "by asking, it declares what it can do"
        );
        let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let items = r#"{"items":[{"function":"remote","args":{"n": 1.50},"key":"a","context":"c","onComplete":"echo"},
            {"function":"remote","args":2},{"function":"remote","args":3}]}"#;
        let enqueued = post("/v1/pools/shop/work", items).header("traceparent", traceparent);
        assert_eq!(enqueued.send(shop.address).await.status, 200);

        let claimed = shop.claim(r#","maxItems":10,"leaseMs":5000,"worker":"mine""#).await;
        assert_eq!(claimed["items"].as_array().unwrap().len(), 3);
        let first = &claimed["items"][0];
        assert_eq!((&first["function"], &first["attempt"]), (&json!("remote"), &json!(1)));
        assert_eq!(
            (&first["args"]["n"], &first["key"], &first["context"]),
            (&json!(1.5), &json!("a"), &json!("c"))
        );
        assert_eq!(first["trace"]["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
        let lease = claimed["lease"].as_str().unwrap().to_owned();
        let extended = shop.post(&format!("/v1/leases/{lease}/extend"), json!({"byMs": 60_000})).await;
        assert!(extended["untilMs"].as_i64() > claimed["untilMs"].as_i64());
        assert_eq!(extended["canceled"], json!([]));

        let id = |number: usize| claimed["items"][number]["workId"].as_str().unwrap().to_owned();
        let complete = |number: usize| format!("/v1/work/{}/complete", id(number));
        let fail = |number: usize| format!("/v1/work/{}/fail", id(number));
        let done = shop.post(&complete(0), json!({"lease": lease, "returnValue": [true]})).await;
        assert_eq!(done, json!({"workId": id(0)}));
        let ended = shop.until(&id(0), "success").await;
        assert_eq!(ended["result"]["returnValue"], json!([true]));

        let wait =
            json!({"lease": lease, "error": "busy", "class": "rateLimitExceeded", "retryAfterMs": 3_600_000});
        shop.post(&fail(1), wait).await;
        let waiting = shop.until(&id(1), "delayed").await;
        assert_eq!(
            (&waiting["attempts"], &waiting["lastError"]),
            (&json!(1), &json!("rateLimitExceeded: busy"))
        );
        shop.post(&fail(2), json!({"lease": lease, "error": "no", "class": "validationError"})).await;
        shop.until(&id(2), "failed").await;

        let over = format!(r#"{{"lease":"{lease}"}}"#);
        let again = post(&complete(0), &over).send(shop.address).await;
        assert_eq!(
            again.problem(409, "LEASE_LOST")["lease"],
            number(&lease),
            "everything under it has ended"
        );
        shop.stop().await;
    });
}

#[test]
fn a_stale_lease_changes_nothing() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, equipped(place.options())).await.unwrap();
        let services = Builder::on_store(store.clone()).open().await.unwrap();
        let work = services.work.clone();
        let engine = work.start().await.unwrap();
        let server = Running::start_with(options(), services).await;
        let shop = Shop { address: server.address, server, work, engine };
        shop.put("/v1/pools/shop", json!({"retry": {"initialBackoffMs": 1, "maxBackoffMs": 1}})).await;
        shop.claim("").await;
        let id = shop.enqueue(json!({"function": "remote", "args": 1})).await;
        let stale = shop.claim(r#","leaseMs":5000"#).await["lease"].as_str().unwrap().to_owned();
        time.advance(5_000).await.unwrap();
        let refused = async |path: String, body: Value| {
            let answer = post(&path, &body.to_string()).send(shop.address).await;
            assert_eq!(answer.problem(409, "LEASE_LOST")["lease"], number(&stale), "{path}");
        };
        let all = async || {
            refused(format!("/v1/work/{id}/complete"), json!({"lease": stale, "returnValue": 1})).await;
            refused(format!("/v1/work/{id}/fail"), json!({"lease": stale, "error": "x"})).await;
            refused(format!("/v1/leases/{stale}/extend"), json!({})).await;
            let given_back = request("DELETE", &format!("/v1/leases/{stale}")).send(shop.address).await;
            given_back.problem(409, "LEASE_LOST");
        };
        // Over, but nobody has taken the work back yet; then somebody has, and then another worker has it.
        all().await;
        shop.engine.look_around();
        let taken_back = async {
            while shop.get(&format!("/v1/work/{id}")).await["native"] == "running" {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        soon(taken_back).await;
        all().await;
        time.advance(10).await.unwrap();
        shop.engine.look_around();
        let mut other = shop.claim("").await;
        while other["lease"].is_null() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            other = shop.claim("").await;
        }
        assert_eq!((&other["items"][0]["workId"], &other["items"][0]["attempt"]), (&json!(id), &json!(2)));
        all().await;
        let lease = &other["lease"];
        shop.post(&format!("/v1/work/{id}/complete"), json!({"lease": lease, "returnValue": "mine"})).await;
        assert_eq!(shop.until(&id, "success").await["result"]["returnValue"], "mine");
        shop.stop().await;
    });
}

#[test]
fn a_worker_waits_for_work_and_gives_it_back() {
    for_each_store(async |place| {
        let shop = Shop::open(&place).await;
        shop.claim("").await;
        let waiting = tokio::spawn(post(CLAIM, &claim(r#","waitMs":60000"#)).send_to(shop.address));
        let id = shop.enqueue(json!({"function": "remote", "args": 1})).await;
        let claimed = soon(waiting).await.unwrap().json();
        assert_eq!(claimed["items"][0]["workId"], json!(id));
        let lease = claimed["lease"].as_str().unwrap().to_owned();
        assert_eq!(shop.delete(&format!("/v1/leases/{lease}")).await, json!({"lease": lease}));
        let again = shop.claim("").await;
        assert_eq!((&again["items"][0]["workId"], &again["items"][0]["attempt"]), (&json!(id), &json!(1)));
        let gone = request("DELETE", &format!("/v1/leases/{lease}")).send(shop.address).await;
        gone.problem(409, "LEASE_LOST");
        // What was cancelled is told to who extends its lease, and ends so when it fails.
        let lease = again["lease"].as_str().unwrap().to_owned();
        assert_eq!(shop.delete(&format!("/v1/work/{id}")).await["canceled"], "asked");
        let extended = shop.post(&format!("/v1/leases/{lease}/extend"), json!({})).await;
        assert_eq!(extended["canceled"], json!([id]));
        shop.post(&format!("/v1/work/{id}/fail"), json!({"lease": lease, "error": "stopped"})).await;
        shop.until(&id, "canceled").await;
        shop.stop().await;
    });
}

#[tokio::test]
async fn a_stop_ends_the_wait_at_once() {
    let shop = Shop::open(&Place::new(Kind::SqliteMemory)).await;
    let mut stream = TcpStream::connect(shop.address).await.unwrap();
    let ask = post(CLAIM, &claim(r#","waitMs":60000"#)).text(shop.address);
    stream.write_all(ask.as_bytes()).await.unwrap();
    // Once its function is declared, it waits.
    while post("/v1/timers", r#"{"function":"remote","args":1,"afterMs":3600000}"#)
        .send(shop.address)
        .await
        .status
        == 422
    {}
    let stopped = soon(shop.server.stop()).await;
    assert_eq!(stopped.abandoned, 0);
    assert_eq!(read(&mut stream).await.json()["items"], json!([]));
    shop.engine.stop(Duration::from_secs(5)).await.unwrap();
}

/// Waits until so many requests are under way, the one that asks included.
async fn until_under_way(shop: &Shop, count: usize) {
    let line = format!("mainstay_server_in_flight {count}");
    let settled = async {
        while !get("/metrics").send(shop.address).await.body.lines().any(|written| written == line) {}
    };
    soon(settled).await;
}

#[test]
fn a_worker_that_goes_away_in_the_middle_of_its_claim_leaves_nothing_behind() {
    for_each_lasting_store(async |place| {
        let shop = Shop::open(&place).await;
        shop.claim("").await;
        let id = shop.enqueue(json!({"function": "remote", "args": 1})).await;
        // Nobody can claim while somebody else holds what every claim needs.
        let (held, release) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let context = (held.clone(), release.clone());
        let holding = tokio::spawn({
            let store = shop.work.store().clone();
            async move {
                let hold = async |tx: Tx, (held, release): (Arc<Notify>, Arc<AtomicBool>)| {
                    let pool = "SELECT number FROM mainstay_pools WHERE name = 'shop'";
                    let number: i64 = tx.query_one(pool, &[]).await?.get(0)?;
                    tx.lock(&format!("mainstay.work.pool.{number}")).await?;
                    held.notify_one();
                    while !release.load(Ordering::SeqCst) {
                        tx.query("SELECT 1", &[]).await?;
                    }
                    Ok(())
                };
                store.transact_with(context, hold).await.unwrap();
            }
        });
        held.notified().await;
        let mut stream = TcpStream::connect(shop.address).await.unwrap();
        let ask = post(CLAIM, &claim(r#","leaseMs":3600000"#)).text(shop.address);
        stream.write_all(ask.as_bytes()).await.unwrap();
        until_under_way(&shop, 2).await;
        drop(stream);
        until_under_way(&shop, 1).await;
        release.store(true, Ordering::SeqCst);
        holding.await.unwrap();
        let claimed = soon(shop.claim(r#","waitMs":60000"#)).await;
        assert_eq!(
            (&claimed["items"][0]["workId"], &claimed["items"][0]["attempt"]),
            (&json!(id), &json!(1))
        );
        shop.stop().await;
    });
}

#[tokio::test]
async fn what_a_worker_cannot_ask_for_is_named() {
    let shop = Shop::open(&Place::new(Kind::SqliteMemory)).await;
    let many = format!(r#"{{"functions":[{}]}}"#, vec![r#""f""#; 101].join(","));
    for (body, code, field) in [
        ("{}".to_owned(), "BODY_INVALID", "functions"),
        (r#"{"functions":[]}"#.to_owned(), "WORK_INVALID", "functions"),
        (many, "WORK_INVALID", "functions"),
        (r#"{"functions":["a","b c"]}"#.to_owned(), "WORK_INVALID", "functions[1]"),
        (claim(r#","maxItems":0"#), "WORK_INVALID", "maxItems"),
        (claim(r#","maxItems":501"#), "WORK_INVALID", "maxItems"),
        (claim(r#","leaseMs":999"#), "WORK_INVALID", "leaseMs"),
        (claim(r#","leaseMs":3600001"#), "WORK_INVALID", "leaseMs"),
        (claim(r#","waitMs":60001"#), "WORK_INVALID", "waitMs"),
        (claim(r#","waitMs":-1"#), "BODY_INVALID", "waitMs"),
        (claim(r#","worker":"""#), "WORK_INVALID", "worker"),
        (claim(r#","colour":1"#), "BODY_INVALID", "colour"),
    ] {
        let answer = post(CLAIM, &body).send(shop.address).await;
        assert_eq!(answer.problem(400, code)["field"], field, "{}", &body[..body.len().min(80)]);
    }
    post("/v1/pools/nowhere/claim", &claim("")).send(shop.address).await.problem(404, "UNKNOWN_POOL");

    shop.claim("").await;
    let id = shop.enqueue(json!({"function": "remote", "args": 1})).await;
    let lease = shop.claim("").await["lease"].as_str().unwrap().to_owned();
    let path = |what: &str| format!("/v1/work/{id}/{what}");
    let month = 30 * 24 * 3_600_000_u64;
    let long = "x".repeat(70_000);
    for (path, body, status, code, field) in [
        (path("complete"), json!({}), 400, "BODY_INVALID", "lease"),
        (path("complete"), json!({"lease": 1}), 400, "BODY_INVALID", "lease"),
        (path("complete"), json!({"lease": "1"}), 400, "WORK_INVALID", "lease"),
        (
            path("complete"),
            json!({"lease": lease, "returnValue": long}),
            413,
            "WORK_TOO_LARGE",
            "returnValue",
        ),
        (path("fail"), json!({"lease": lease}), 400, "BODY_INVALID", "error"),
        (path("fail"), json!({"lease": lease, "error": "x", "class": "bad"}), 400, "BODY_INVALID", "class"),
        (
            path("fail"),
            json!({"lease": lease, "error": "x", "retryAfterMs": month + 1}),
            400,
            "BODY_INVALID",
            "retryAfterMs",
        ),
        (
            path("fail"),
            json!({"lease": lease, "error": "x", "class": "validationError", "retryAfterMs": 1}),
            400,
            "BODY_INVALID",
            "retryAfterMs",
        ),
        (format!("/v1/leases/{lease}/extend"), json!({"byMs": 1}), 400, "WORK_INVALID", "byMs"),
    ] {
        let answer = post(&path, &body.to_string()).send(shop.address).await;
        assert_eq!(answer.problem(status, code)["field"], field, "{path}");
    }
    let odd = post("/v1/leases/one/extend", "{}").send(shop.address).await.problem(400, "WORK_INVALID");
    assert_eq!(odd["field"], "lease");
    let body = format!(r#"{{"lease":"{lease}"}}"#);
    for other in ["work-123", "work_01890a5d-ac96-774b-bcce-b302099a8057"] {
        let answer = post(&format!("/v1/work/{other}/complete"), &body).send(shop.address).await;
        assert_eq!(answer.problem(409, "WORK_NOT_HELD")["workId"], other);
    }
    shop.post(&path("complete"), json!({"lease": lease})).await;
    assert_eq!(shop.until(&id, "success").await["result"], json!({"kind": "success", "returnValue": null}));
    shop.stop().await;
}
