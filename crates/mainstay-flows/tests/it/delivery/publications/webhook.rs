//! Targets elsewhere: what is sent to them, and what becomes of an event when they do not behave.

use super::bench::{Bench, PATIENCE, at_once, components, targets};
use crate::delivery::server::{Server, Then, reply};
use mainstay_flows::delivery::publications::{Publication, Status, Target, Webhook};
use mainstay_testkit::stores::for_each_store;
use mainstay_testkit::time::VirtualTime;
use mainstay_work::egress::Egress;
use mainstay_work::http::{HttpConfig, Secret, verify_signature};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn loopback() -> Arc<Egress> {
    Arc::new(Egress::new(&["127.0.0.1".to_owned()]).unwrap())
}

fn secret(text: &str) -> Secret {
    Secret::new(text).unwrap()
}

fn webhook(url: &str, secrets: &[&str], timeout_ms: u64) -> Target {
    named("inventory", url, secrets, timeout_ms)
}

fn named(name: &str, url: &str, secrets: &[&str], timeout_ms: u64) -> Target {
    let secrets = secrets.iter().map(|text| secret(text)).collect();
    let config = HttpConfig { secrets, timeout_ms, ..HttpConfig::new(url) };
    Target::webhook(name, Webhook::new(config, loopback()).unwrap())
}

#[test]
fn an_event_is_posted_as_a_signed_cloud_event() {
    for_each_store(async |place| {
        let server = Server::new(reply("200 OK", "", "thank you")).await;
        let bench = Bench::open(&place, targets([webhook(&server.url(), &["new", "old"], 10_000)])).await;
        let _engine = bench.start().await;
        let id = bench.event("OrderSubmitted", &json!({ "orderId": "ord-1" })).await;
        bench.publish(&id, &["inventory"]).await;
        bench.until(&id, "inventory", Status::Delivered).await;
        let requests = server.requests();
        assert_eq!(requests.len(), 1);
        let request = &requests[0];
        assert_eq!(request.header("content-type"), Some("application/cloudevents+json"));
        let key = format!("pub:{id}:inventory");
        assert_eq!(request.header("idempotency-key"), Some(&*key));
        assert!(request.header("traceparent").is_some_and(|trace| trace.starts_with("00-")), "{request:?}");
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let log = bench.log.find(&id).await.unwrap().unwrap();
        let expected = json!({
            "specversion": "1.0",
            "id": id,
            "source": "orders",
            "type": "OrderSubmitted",
            "subject": "Order/ord-1",
            "time": body["time"],
            "datacontenttype": "application/json",
            "idempotencykey": key,
            "schemaversion": 1,
            "correlationid": log.correlation_id(),
            "data": { "orderId": "ord-1" },
        });
        assert_eq!(body, expected);
        let header = request.header("mainstay-signature").unwrap();
        for known in ["new", "old"] {
            let now_ms = bench.store.clock().now_ms();
            let verified = verify_signature(&[secret(known)], header, &request.body, now_ms, 60_000);
            assert_eq!(verified, Ok(()), "while one secret replaces the other, either will do");
        }
    });
}

/// Publishes an event to a server that does something, and waits until the publication stands so.
async fn deliver(bench: &Bench, status: Status) -> Publication {
    deliver_to(bench, "inventory", status).await
}

async fn deliver_to(bench: &Bench, target: &str, status: Status) -> Publication {
    let id = bench.event("OrderSubmitted", &json!(1)).await;
    bench.publish(&id, &[target]).await;
    bench.until(&id, target, status).await
}

#[test]
fn targets_that_do_not_answer_are_tried_again_and_then_a_dead_letter() {
    for_each_store(async |place| {
        let server = Server::new(Then::Hang).await;
        // Little time for what is never answered, much for what is, and some for an answer that never ends.
        let waits = [("hasty", 100), ("inventory", 10_000), ("slow", 1_000)];
        let all = waits.map(|(name, ms)| named(name, &server.url(), &[], ms).retry(at_once(1)));
        let bench = Bench::open(&place, targets(all)).await;
        let _engine = bench.start().await;
        for (target, then, reason) in [
            ("hasty", Then::Hang, "networkTimeout"),
            ("inventory", Then::Reset, "temporaryServiceUnavailable"),
            ("hasty", Then::Drip("HTTP/1.1 200 OK\r\nx-slow: ".to_owned()), "networkTimeout"),
            (
                "inventory",
                Then::Break("HTTP/1.1 200 OK\r\nx-half: ".to_owned()),
                "temporaryServiceUnavailable",
            ),
            ("inventory", reply("500 Oops", "", "broken"), "temporaryServiceUnavailable"),
            ("slow", Then::Drip("HTTP/1.1 500 Oops\r\n\r\n".to_owned()), "temporaryServiceUnavailable"),
            ("inventory", reply("408 Late", "", ""), "networkTimeout"),
            ("inventory", Then::Send("no HTTP at all\r\n\r\n".to_owned()), "temporaryServiceUnavailable"),
        ] {
            server.turn(then);
            let dead = deliver_to(&bench, target, Status::DeadLetter).await;
            assert_eq!(dead.attempt_count, 2, "{reason}");
            assert!(dead.error.as_ref().is_some_and(|error| error.starts_with(reason)), "{dead:?}");
        }
        server.turn(reply("204 No Content", "", ""));
        deliver(&bench, Status::Delivered).await;
    });
}

#[test]
fn b_168_what_a_target_refuses_for_good_is_failed_after_one_attempt() {
    for_each_store(async |place| {
        let elsewhere = Server::new(reply("200 OK", "", "")).await;
        let server = Server::new(Then::Hang).await;
        let bench = Bench::open(&place, targets([webhook(&server.url(), &[], 5_000)])).await;
        let _engine = bench.start().await;
        let redirect = format!("location: {}\r\n", elsewhere.url());
        for (then, reason) in [
            (reply("400 Bad Request", "", "what?"), "validationError"),
            (reply("401 Unauthorized", "", ""), "authenticationFailure"),
            (reply("404 Not Found", "", ""), "permanentServiceError"),
            (reply("410 Gone", "", ""), "permanentServiceError"),
            (reply("301 Moved", &redirect, ""), "permanentServiceError"),
            (reply("307 Moved", &redirect, ""), "permanentServiceError"),
        ] {
            server.turn(then);
            let failed = deliver(&bench, Status::Failed).await;
            assert_eq!(failed.attempt_count, 1, "{reason}");
            assert!(failed.error.as_ref().is_some_and(|error| error.starts_with(reason)), "{failed:?}");
        }
        assert_eq!(elsewhere.connections(), 0, "redirects are not followed");
        assert_eq!(bench.letters("inventory").await.len(), 6);
    });
}

#[test]
fn b_169_a_target_that_says_when_to_come_back_is_left_alone_until_then() {
    for_each_store(async |place| {
        let fields = "retry-after: 3600\r\n";
        let limited = Server::new(reply("429 Too Many Requests", fields, "")).await;
        let away = Server::new(reply("503 Service Unavailable", fields, "")).await;
        let both = [named("limited", &limited.url(), &[], 5_000), named("away", &away.url(), &[], 5_000)];
        let bench = Bench::open(&place, targets(both)).await;
        let _engine = bench.start().await;
        let id = bench.event("OrderSubmitted", &json!(1)).await;
        bench.publish(&id, &["limited", "away"]).await;
        for (target, server) in [("limited", &limited), ("away", &away)] {
            let counted = async {
                loop {
                    let publication = bench.publication(&id, target).await;
                    if publication.attempt_count == 1 {
                        return publication;
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            };
            let waiting = tokio::time::timeout(PATIENCE, counted).await.expect("it is tried");
            assert_eq!(waiting.status, Status::Pending);
            let item = bench.work.status(&waiting.work_id.unwrap()).await.unwrap().unwrap();
            let wait_ms = item.due_at.unwrap() - item.enqueued_at;
            assert!(wait_ms >= 3_590_000, "{target}: {wait_ms} ms");
            assert_eq!(server.requests().len(), 1);
        }
    });
}

#[test]
fn b_169_a_target_that_was_left_alone_for_as_long_as_it_wanted_is_tried_again() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let server = Server::new(Then::Hang).await;
        let target = webhook(&server.url(), &[], 5_000).retry(at_once(1));
        // The clock is moved by hours, which no lease is to notice.
        let bench = Bench::leased(store, targets([target]), Duration::from_secs(10 * 86_400)).await;
        let engine = bench.start().await;
        let date = "date: Thu, 01 Jan 2026 00:00:00 GMT\r\nretry-after: Thu, 01 Jan 2026 01:00:00 GMT\r\n";
        for (status, fields, reason) in [
            ("429 Too Many Requests", "retry-after: 3600\r\n", "rateLimitExceeded"),
            ("503 Service Unavailable", date, "temporaryServiceUnavailable"),
        ] {
            for ends in [Status::Delivered, Status::DeadLetter] {
                server.turn(reply(status, fields, ""));
                let id = bench.event("OrderSubmitted", &json!(1)).await;
                bench.publish(&id, &["inventory"]).await;
                let waiting = async {
                    loop {
                        let publication = bench.publication(&id, "inventory").await;
                        if publication.attempt_count == 1 {
                            return publication.work_id.unwrap();
                        }
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                };
                let work_id = tokio::time::timeout(PATIENCE, waiting).await.expect("it is tried");
                let now_ms = bench.store.clock().now_ms();
                let due_at = bench.work.status(&work_id).await.unwrap().unwrap().due_at.unwrap();
                assert_eq!(due_at - now_ms, 3_600_000, "{status} is left alone for as long as it says");
                if ends == Status::Delivered {
                    server.turn(reply("200 OK", "", ""));
                }
                time.set(due_at).await.unwrap();
                engine.look_around();
                let ended = bench.until(&id, "inventory", ends).await;
                assert_eq!(ended.attempt_count, 2, "{status}");
                let is_told = ended.error.as_ref().is_some_and(|error| error.starts_with(reason));
                assert_eq!(is_told, ends == Status::DeadLetter, "{ended:?}");
            }
        }
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn what_a_target_says_below_a_2xx_does_not_matter() {
    for_each_store(async |place| {
        let server = Server::new(Then::Hang).await;
        let bench = Bench::open(&place, targets([webhook(&server.url(), &[], 2_000)])).await;
        let _engine = bench.start().await;
        for then in [
            reply("202 Accepted", "", "<html>"),
            Then::Drip("HTTP/1.1 200 OK\r\n\r\n".to_owned()),
            Then::Send(
                "HTTP/1.1 200 OK\r\ncontent-length: 900000000\r\nconnection: close\r\n\r\n".to_owned(),
            ),
        ] {
            server.turn(then);
            let delivered = deliver(&bench, Status::Delivered).await;
            assert_eq!(delivered.attempt_count, 1);
        }
        assert_eq!(server.requests().len(), 3);
    });
}
