//! What a call says, and to whom it proves what.

use super::server::{Server, Then, reply};
use super::{NOW_MS, call, function, function_with};
use mainstay_core::failure::Class;
use mainstay_core::trace::TraceContext;
use mainstay_work::http::{ConfigError, HttpConfig, HttpFunction, Request, Secret, verify_signature};
use serde_json::value::RawValue;

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn done() -> Then {
    reply("200 OK", "", "true")
}

#[tokio::test]
async fn a_call_is_a_post_of_the_documented_shape() {
    let server = Server::new(done()).await;
    let trace = TraceContext {
        trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".into(),
        span_id: "00f067aa0ba902b7".into(),
        parent_span_id: Some("1111111111111111".into()),
    };
    let request = Request {
        work_id: "work_7",
        function: "sendEmail",
        attempt: 3,
        args: &raw(r#"{"to":"a@b.c","n":1.50}"#),
        context: Some(&raw("[1]")),
        trace: &trace,
        idempotency_key: "payment:ord-123",
        now_ms: NOW_MS,
    };
    let function = function(&format!("http://{}/send?a=b", server.address));
    assert_eq!(function.call(&request).await.unwrap().get(), "true");
    let received = server.received().remove(0);
    assert!(received.head.starts_with("POST /send?a=b HTTP/1.1\r\n"), "{}", received.head);
    let body = concat!(
        r#"{"workId":"work_7","function":"sendEmail","attempt":3,"args":{"to":"a@b.c","n":1.50},"context":[1],"#,
        r#""trace":{"traceId":"4bf92f3577b34da6a3ce929d0e0e4736","spanId":"00f067aa0ba902b7","parentSpanId":"1111111111111111"}}"#
    );
    assert_eq!(String::from_utf8(received.body.clone()).unwrap(), body);
    for (name, value) in [
        ("host", server.address.to_string().as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json"),
        ("user-agent", concat!("mainstay/", env!("CARGO_PKG_VERSION"))),
        ("idempotency-key", "payment:ord-123"),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ] {
        assert_eq!(received.header(name), Some(value), "{name}");
    }
    assert_eq!(received.header("mainstay-signature"), None, "there is no secret to sign with");
}

#[tokio::test]
async fn what_is_left_out_is_not_sent() {
    let server = Server::new(done()).await;
    let trace = TraceContext { trace_id: "trace-abc".into(), span_id: "span-1".into(), parent_span_id: None };
    let request = Request {
        work_id: "w",
        function: "f",
        attempt: 1,
        args: &raw("null"),
        context: None,
        trace: &trace,
        idempotency_key: "k",
        now_ms: NOW_MS,
    };
    function(&server.url()).call(&request).await.unwrap();
    let received = server.received().remove(0);
    let body = r#"{"workId":"w","function":"f","attempt":1,"args":null,"trace":{"traceId":"trace-abc","spanId":"span-1"}}"#;
    assert_eq!(String::from_utf8(received.body.clone()).unwrap(), body);
    assert_eq!(received.header("traceparent"), None, "these ids make no header");
}

#[tokio::test]
async fn a_call_is_signed_with_every_secret() {
    let server = Server::new(done()).await;
    let secret = |text| Secret::new(text).unwrap();
    let secrets = vec![secret("new"), secret("old")];
    let config = HttpConfig { secrets, ..HttpConfig::new(server.url()) };
    call(&function_with(config)).await.unwrap();
    let received = server.received().remove(0);
    let header = received.header("mainstay-signature").unwrap();
    assert!(header.starts_with("t=1700000000,v1="), "{header}");
    for known in ["new", "old"] {
        assert_eq!(verify_signature(&[secret(known)], header, &received.body, NOW_MS, 0), Ok(()));
    }
    assert!(verify_signature(&[secret("other")], header, &received.body, NOW_MS, 0).is_err());
}

#[tokio::test]
async fn b_087_a_key_that_fits_no_header_is_an_invalid_message_and_is_not_sent() {
    let server = Server::new(done()).await;
    let trace = TraceContext { trace_id: "t".into(), span_id: "s".into(), parent_span_id: None };
    let request = Request {
        work_id: "w",
        function: "f",
        attempt: 1,
        args: &raw("null"),
        context: None,
        trace: &trace,
        idempotency_key: "k\r\nx-forged: 1",
        now_ms: NOW_MS,
    };
    let failure = function(&server.url()).call(&request).await.unwrap_err();
    assert_eq!(failure.class(), Class::InvalidMessage);
    assert_eq!(server.connections(), 0);
}

#[test]
fn a_function_that_could_not_be_called_is_refused_at_once() {
    let refused = |config| HttpFunction::new(config, super::loopback()).unwrap_err();
    for bad in ["", "/send", "example.com", "ftp://example.com/", "http://", "https:///x", "http://a b/"] {
        assert_eq!(refused(HttpConfig::new(bad)), ConfigError::BadUrl(bad.to_owned()), "{bad}");
    }
    assert_eq!(refused(HttpConfig::new("http://user:pass@example.com/")), ConfigError::Credentials);
    for timeout_ms in [0, u64::MAX] {
        let config = HttpConfig { timeout_ms, ..HttpConfig::new("http://example.com") };
        assert_eq!(refused(config).to_string(), "timeoutMs must be 1 to 86400000");
    }
    let config = HttpConfig { max_reply_bytes: 0, ..HttpConfig::new("http://example.com") };
    assert_eq!(refused(config).to_string(), "maxReplyBytes must be 1 to 67108864");
}

#[test]
fn a_call_can_be_made_by_any_thread() {
    fn movable<T: Send>(_: T) {}
    movable(call(&function("http://example.com/")));
}

#[test]
fn what_is_secret_is_not_shown() {
    let secrets = vec![Secret::new("hunter2").unwrap()];
    let config = HttpConfig { secrets, ..HttpConfig::new("http://example.com/a?token=hunter2") };
    let shown = format!("{config:?} {:?}", function_with(config.clone()));
    assert!(shown.contains("http://example.com/a") && !shown.contains("hunter2"), "{shown}");
}

#[tokio::test]
async fn b_260_what_an_endpoint_was_told_in_confidence_is_not_in_its_failure() {
    let trace = TraceContext { trace_id: "t".into(), span_id: "s".into(), parent_span_id: None };
    let request = Request {
        work_id: "w",
        function: "f",
        attempt: 1,
        args: &raw(r#"{"order":"ord-1","apiKey":"canary-key"}"#),
        context: Some(&raw(r#"{"passwords":["canary-word"]}"#)),
        trace: &trace,
        idempotency_key: "k",
        now_ms: NOW_MS,
    };
    let told = r#"{"url":"/send?key=canary-query","apiKey":"canary-key","of":"ord-1","is":"canary-word, canary-secret"}"#;
    let server = Server::new(reply("500 X", "", told)).await;
    let secrets = vec![Secret::new("canary-secret").unwrap()];
    let config = HttpConfig { secrets, ..HttpConfig::new(server.url() + "?key=canary-query") };
    let failure = function_with(config).call(&request).await.unwrap_err();
    let hidden = r#": {"url":"/send?[hidden]","apiKey":"[hidden]","of":"ord-1","is":"[hidden], [hidden]"}"#;
    assert!(failure.message().ends_with(hidden), "{}", failure.message());
}
