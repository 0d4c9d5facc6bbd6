//! The log over HTTP.

use crate::client::{self, Request, get, soon};
use crate::running::{Running, options};
use mainstay_server::tokens::New;
use mainstay_server::{Role, Tokens, equipped};
use mainstay_testkit::stores::{Kind, Place, for_each_store};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn post(body: &Value) -> Request {
    client::post("/v1/events", &body.to_string())
}

fn one(event: Value) -> Request {
    post(&json!({ "events": [event] }))
}

async fn start(place: &Place) -> Running {
    let store = equipped(place.options()).open().await.unwrap();
    Running::start_on(options(), store).await
}

#[test]
fn events_are_appended_read_and_refused() {
    for_each_store(async |place| {
        let server = start(&place).await;
        let placed = json!({
            "events": [{"type": "OrderPlaced", "data": {"total": 10}, "tags": ["order:1"],
                        "stream": {"type": "order", "id": "1", "expectedVersion": 0}}],
            "condition": {"failIfEventsMatch": [{"tags": ["order:1"]}]}
        });
        let first = post(&placed).send(server.address).await;
        assert_eq!(first.status, 200, "{first:?}");
        let first = first.json();
        assert_eq!((&first["status"], &first["head"]), (&json!("appended"), &json!(1)));
        assert_eq!(first["events"][0]["version"], 1);
        let mut again = placed.clone();
        again["events"][0].as_object_mut().unwrap().remove("stream");
        let refused = post(&again).send(server.address).await.problem(409, "APPEND_CONDITION_FAILED");
        assert_eq!(
            (&refused["witness"]["position"], &refused["witness"]["type"]),
            (&json!(1), &json!("OrderPlaced"))
        );
        let refused = post(&placed).send(server.address).await.problem(409, "VERSION_CONFLICT");
        assert_eq!((&refused["currentVersion"], &refused["expectedVersion"]), (&json!(1), &json!(0)));
        let page = get("/v1/events?tag=order:1&type=OrderPlaced").send(server.address).await.json();
        assert_eq!((&page["head"], &page["events"][0]["data"]["total"]), (&json!(1), &json!(10)));
        assert!(page.get("next").is_none());
        let stream = get("/v1/streams/order/1").send(server.address).await.json();
        assert_eq!((&stream["version"], &stream["events"][0]["position"]), (&json!(1), &json!(1)));
        assert_eq!(get("/v1/streams/order/none").send(server.address).await.json()["version"], 0);
        server.stop().await;
    });
}

#[test]
fn the_log_is_read_from_its_newest_event_on_and_an_event_by_its_id() {
    for_each_store(async |place| {
        let server = start(&place).await;
        let mut ids = Vec::new();
        for number in 1..=5 {
            let stream = json!({"type": "order", "id": (number % 2).to_string()});
            let event =
                json!({"type": "E", "data": number, "tags": ["t"], "correlationId": "c", "stream": stream});
            let appended = one(event).send(server.address).await.json();
            ids.push(appended["events"][0]["eventId"].as_str().unwrap().to_owned());
        }
        let page = async |query: &str| {
            let page = get(&format!("/v1/events?{query}")).send(server.address).await.json();
            let positions =
                page["events"].as_array().unwrap().iter().map(|event| event["position"].as_u64().unwrap());
            (positions.collect::<Vec<u64>>(), page["next"].as_u64())
        };
        assert_eq!(page("order=backward&limit=2").await, (vec![5, 4], Some(3)));
        assert_eq!(page("order=backward&limit=2&until=3").await, (vec![3, 2], Some(1)));
        assert_eq!(page("order=backward&until=1").await, (vec![1], None));
        for filter in ["type=E", "tag=t", "correlationId=c", "type=E&tag=t"] {
            assert_eq!(
                page(&format!("order=backward&limit=4&{filter}")).await,
                (vec![5, 4, 3, 2], Some(1)),
                "{filter}"
            );
        }
        assert_eq!(page("order=backward&streamType=order&streamId=1").await, (vec![5, 3, 1], None));
        assert_eq!(page("streamType=order&streamId=0&until=3").await, (vec![2], None));
        for bad in ["order=sideways", "until=-1", "streamType=order", "streamId=1"] {
            get(&format!("/v1/events?{bad}")).send(server.address).await.problem(400, "QUERY_INVALID");
        }
        for bad in ["order=backward", "until=3"] {
            get(&format!("/v1/events/subscribe?{bad}"))
                .send(server.address)
                .await
                .problem(400, "QUERY_INVALID");
        }
        let event = get(&format!("/v1/events/{}", ids[2])).send(server.address).await.json();
        assert_eq!(
            (&event["position"], &event["data"], &event["eventId"]),
            (&json!(3), &json!(3), &json!(ids[2]))
        );
        get("/v1/events/unknown").send(server.address).await.problem(404, "EVENT_NOT_FOUND");
        server.stop().await;
    });
}

#[test]
fn an_idempotent_append_is_told_apart_from_a_conflict() {
    for_each_store(async |place| {
        let server = start(&place).await;
        let paid = |amount: u32| one(json!({"type": "Paid", "data": amount, "idempotencyKey": "payment:1"}));
        assert_eq!(paid(5).send(server.address).await.json()["status"], "appended");
        assert_eq!(paid(5).send(server.address).await.json()["status"], "duplicate");
        let refused = paid(6).send(server.address).await.problem(409, "IDEMPOTENCY_CONFLICT");
        assert_eq!(refused["reason"], "same_key_different_payload");
        server.stop().await;
    });
}

#[tokio::test]
async fn pages_follow_each_other() {
    let server = Running::start(options()).await;
    for number in 0..5 {
        one(json!({"type": "T", "data": number, "correlationId": format!("c{}", number % 2)}))
            .send(server.address)
            .await;
    }
    let mut seen = Vec::new();
    let mut path = "/v1/events?limit=2".to_owned();
    loop {
        let page = get(&path).send(server.address).await.json();
        seen.extend(
            page["events"].as_array().unwrap().iter().map(|event| event["position"].as_u64().unwrap()),
        );
        let Some(next) = page.get("next") else { break };
        path = format!("/v1/events?limit=2&after={next}");
    }
    assert_eq!(seen, [1, 2, 3, 4, 5]);
    let some = get("/v1/events?correlationId=c1").send(server.address).await.json();
    assert_eq!(some["events"].as_array().unwrap().len(), 2);
    let query = "%5B%7B%22types%22%3A%5B%22None%22%5D%7D%5D";
    let none = get(&format!("/v1/events?query={query}")).send(server.address).await.json();
    assert_eq!((none["events"].as_array().unwrap().len(), &none["head"]), (0, &json!(5)));
    server.stop().await;
}

#[tokio::test]
async fn bad_input_is_refused_with_the_field_and_changes_nothing() {
    let server = Running::start(options()).await;
    let deep = format!("{}1{}", "[".repeat(64), "]".repeat(64));
    let long = "x".repeat(513);
    let bodies = [
        (r#"{"events":[]}"#.to_owned(), "APPEND_EMPTY", "events"),
        (r#"{"events":[{"type":"","data":1}]}"#.to_owned(), "EVENT_INVALID", "events[0].type"),
        (r#"{"events":[{"type":"T","data":1,"tags":["a","b\u0000"]}]}"#.to_owned(), "EVENT_INVALID", "events[0].tags[1]"),
        (format!(r#"{{"events":[{{"type":"T","data":1,"tags":["{long}"]}}]}}"#), "EVENT_INVALID", "events[0].tags[0]"),
        (format!(r#"{{"events":[{{"type":"T","data":1,"idempotencyKey":"{long}"}}]}}"#), "EVENT_INVALID", "events[0].idempotencyKey"),
        (r#"{"events":[{"type":"T","data":"\u0000"}]}"#.to_owned(), "EVENT_INVALID", "events[0].data"),
        (r#"{"events":[{"type":"T","data":1,"colour":"red"}]}"#.to_owned(), "BODY_INVALID", "events[0].colour"),
        (r#"{"events":[{"type":"T"}]}"#.to_owned(), "BODY_INVALID", "events[0].data"),
        (r#"{"events":[{"type":"T","data":1}],"condition":{"failIfEventsMatch":[]}}"#.to_owned(), "BODY_INVALID", "condition.failIfEventsMatch"),
        (r#"{"events":[{"type":"T","data":1}],"condition":{"failIfEventsMatch":[{}],"after":-1}}"#.to_owned(), "BODY_INVALID", "condition.after"),
        (r#"{"events":[{"type":"T","data":1}],"condition":{"failIfEventsMatch":[{}],"after":18446744073709551615}}"#.to_owned(), "EVENT_INVALID", "condition.after"),
        (r#"{"events":[{"type":"T","data":1,"stream":{"type":"s","id":"1","expectedVersion":1.5}}]}"#.to_owned(), "BODY_INVALID", "events[0].stream.expectedVersion"),
    ];
    for (body, code, field) in bodies {
        let answer = client::post("/v1/events", &body).send(server.address).await;
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
        let problem = answer.problem(400, code);
        assert_eq!(problem["field"], field, "{body}: {problem}");
    }
    let deep = format!(r#"{{"events":[{{"type":"T","data":{deep}}}]}}"#);
    client::post("/v1/events", &deep).send(server.address).await.problem(400, "BODY_INVALID");
    for (parameters, field) in [
        ("after=-1", "after"),
        ("after=99999999999999999999", "after"),
        ("after=18446744073709551615", "after"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("query=%5B", "query"),
        ("query=%5B%5D", "query"),
        ("query=%5B%7B%22type%22%3A1%7D%5D", "query"),
        ("tag=", "tag"),
        ("type=a%00b", "type"),
        ("correlationId=", "correlationId"),
        ("since=soon", "since"),
        ("colour=red", "colour"),
    ] {
        let problem =
            get(&format!("/v1/events?{parameters}")).send(server.address).await.problem(400, "QUERY_INVALID");
        assert_eq!(problem["field"], field, "{parameters}: {problem}");
    }
    let last = get("/v1/events/subscribe").header("Last-Event-ID", "soon").send(server.address).await;
    assert_eq!(last.problem(400, "QUERY_INVALID")["field"], "Last-Event-ID");
    assert_eq!(get("/v1/events").send(server.address).await.json()["head"], 0);
    server.stop().await;
}

/// Reads lines of server-sent events.
struct Follower {
    stream: TcpStream,
    text: String,
}

impl Follower {
    async fn connect(server: &Running, path: &str, headers: &str) -> Self {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", server.address);
        stream.write_all(head.as_bytes()).await.unwrap();
        Self { stream, text: String::new() }
    }

    /// Waits until `wanted` came, and forgets everything up to it.
    async fn until(&mut self, wanted: &str) -> String {
        soon(async {
            loop {
                if let Some(at) = self.text.find(wanted) {
                    let before = self.text[..at + wanted.len()].to_owned();
                    self.text.drain(..at + wanted.len());
                    return before;
                }
                let mut bytes = [0; 4096];
                let count = self.stream.read(&mut bytes).await.unwrap();
                assert!(count > 0, "the stream ended before {wanted:?}: {}", self.text);
                self.text += &String::from_utf8_lossy(&bytes[..count]);
            }
        })
        .await
    }
}

#[test]
fn a_subscriber_catches_up_follows_and_comes_back() {
    for_each_store(async |place| {
        let server = start(&place).await;
        for number in 0..3 {
            one(json!({"type": "T", "data": number})).send(server.address).await;
        }
        let mut follower = Follower::connect(&server, "/v1/events/subscribe?after=1", "").await;
        let head = follower.until("retry: 1000").await;
        assert!(head.contains("text/event-stream"), "{head}");
        follower.until("id: 2\ndata: {\"eventId\"").await;
        follower.until("id: 3\n").await;
        one(json!({"type": "T", "data": "live"})).send(server.address).await;
        let live = follower.until("\n\n").await + &follower.until("\"live\"").await;
        assert!(live.contains("id: 4"), "{live}");
        let mut back = Follower::connect(&server, "/v1/events/subscribe", "Last-Event-ID: 3\r\n").await;
        back.until("id: 4\n").await;
        // A stop ends the streams.
        soon(server.stop()).await;
        let mut rest = Vec::new();
        soon(follower.stream.read_to_end(&mut rest)).await.unwrap();
    });
}

#[tokio::test]
async fn a_tokens_tenant_bounds_reads_conditions_and_subscriptions() {
    let server = Running::start(options()).await;
    let tokens = Tokens::new(server.store.clone());
    let mut secrets = Vec::new();
    for tenant in ["acme", "other"] {
        let new = New::named(tenant, Role::Operator).unwrap().tenant(tenant).unwrap();
        secrets.push(tokens.create(new).await.unwrap().1.reveal().to_owned());
    }
    let all = server.token(Role::Operator).await;
    let once = |tag: &str| {
        post(&json!({
            "events": [{"type": "Taken", "data": {}, "tags": [tag], "stream": {"type": "s", "id": "1"}}],
            "condition": {"failIfEventsMatch": [{"tags": [tag]}]}
        }))
    };
    for secret in &secrets {
        assert_eq!(once("x").token(secret).send(server.address).await.status, 200);
    }
    once("x").token(&secrets[0]).send(server.address).await.problem(409, "APPEND_CONDITION_FAILED");
    once("x").token(&all).send(server.address).await.problem(409, "APPEND_CONDITION_FAILED");
    let foreign = one(json!({"type": "T", "data": 1, "tenantId": "other"})).token(&secrets[0]);
    foreign.send(server.address).await.problem(403, "TENANT_MISMATCH");
    for (path, count) in [("/v1/events", 1), ("/v1/events?tag=x", 1), ("/v1/streams/s/1", 1)] {
        let page = get(path).token(&secrets[1]).send(server.address).await.json();
        let events = page["events"].as_array().unwrap();
        assert_eq!(events.len(), count, "{path}");
        assert!(events.iter().all(|event| event["tenantId"] == "other"), "{path}");
    }
    assert_eq!(
        get("/v1/events").token(&all).send(server.address).await.json()["events"].as_array().unwrap().len(),
        2
    );
    let bearer = format!("Authorization: Bearer {}\r\n", secrets[1]);
    let mut follower = Follower::connect(&server, "/v1/events/subscribe", &bearer).await;
    let first = follower.until("\"tenantId\":\"other\"").await;
    assert!(!first.contains("acme") && first.contains("id: 2"), "{first}");
    server.stop().await;
}

#[tokio::test]
async fn a_callers_trace_is_kept_with_its_events() {
    let server = Running::start(options()).await;
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    one(json!({"type": "T", "data": 1})).header("traceparent", traceparent).send(server.address).await;
    one(json!({"type": "T", "data": 1})).send(server.address).await;
    let page = get("/v1/events").send(server.address).await.json();
    let trace = &page["events"][0]["trace"];
    assert_eq!(trace["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(trace["parentSpanId"], "00f067aa0ba902b7");
    assert!(page["events"][1].get("trace").is_none(), "nobody asked for one");
    server.stop().await;
}

#[tokio::test]
async fn a_subscriber_that_does_not_read_holds_up_nobody() {
    let place = Place::new(Kind::SqliteFile);
    let store = equipped(place.options()).open().await.unwrap();
    // A client that takes nothing has until the grace is over.
    let grace = Duration::from_millis(500);
    let server = Running::start_on(options().shutdown_grace(grace), store).await;
    let big = "x".repeat(60_000);
    let events: Vec<Value> = (0..50).map(|_| json!({"type": "Large", "data": big})).collect();
    for _ in 0..10 {
        assert_eq!(post(&json!({ "events": events })).send(server.address).await.status, 200);
    }
    // Thirty megabytes wait for it, which is more than a connection keeps; it takes none, and others are served meanwhile.
    let _idle = Follower::connect(&server, "/v1/events/subscribe", "").await;
    let mut reading = Follower::connect(&server, "/v1/events/subscribe?after=499", "").await;
    reading.until("id: 500\n").await;
    one(json!({"type": "Small", "data": 1})).send(server.address).await;
    reading.until("id: 501\n").await;
    // A probe tells what was seen last when looking takes longer than probes wait, and looks again.
    soon(async { while get("/health/ready").send(server.address).await.status != 200 {} }).await;
    soon(server.stop()).await;
}
