//! What a reply means, whatever it is.

use super::server::{Server, Then, reply};
use super::{NOW_MS, call, function, function_with};
use mainstay_core::failure::Class;
use mainstay_work::http::{Failure, HttpConfig};
use std::time::Duration;

/// What a call comes to when the server does this.
async fn outcome(then: Then) -> Result<String, Failure> {
    let server = Server::new(then).await;
    call(&function(&server.url())).await.map(|value| value.get().to_owned())
}

async fn failure(then: Then) -> Failure {
    outcome(then).await.unwrap_err()
}

/// The same with 500 ms for the call, in virtual time.
async fn late(then: Then) -> Failure {
    let server = Server::new(then).await;
    call(&function_with(HttpConfig { timeout_ms: 500, ..HttpConfig::new(server.url()) })).await.unwrap_err()
}

#[tokio::test]
async fn a_json_body_is_the_value_byte_for_byte() {
    for body in [r#"{"b":1.50,"a":[1e300]}"#, "null", "\"text\"", "0"] {
        assert_eq!(outcome(reply("200 OK", "", body)).await.unwrap(), body);
    }
    assert_eq!(outcome(reply("202 Accepted", "", " [1] \n")).await.unwrap(), "[1]");
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n[1,\r\n2\r\n2]\r\n0\r\n\r\n";
    assert_eq!(outcome(Then::Send(chunked.to_owned())).await.unwrap(), "[1,2]");
    assert_eq!(outcome(Then::Close("HTTP/1.1 200 OK\r\n\r\n[3]".to_owned())).await.unwrap(), "[3]");
}

#[tokio::test]
async fn an_empty_body_is_null() {
    assert_eq!(outcome(reply("200 OK", "", "")).await.unwrap(), "null");
    assert_eq!(outcome(reply("200 OK", "", " \r\n")).await.unwrap(), "null");
    assert_eq!(outcome(Then::Send("HTTP/1.1 204 No Content\r\n\r\n".to_owned())).await.unwrap(), "null");
}

#[tokio::test]
async fn b_087_a_body_that_is_not_json_fails_for_good() {
    for body in ["<html>", "{", "[1] 2", "\u{feff}1", "nul"] {
        let failure = failure(reply("200 OK", "", body)).await;
        assert_eq!(failure.class(), Class::PermanentServiceError, "{body}");
        assert!(failure.message().contains("the reply is not JSON"), "{failure}");
    }
    // Values that no reader could take later.
    let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
    for (body, said) in [
        (&*deep, "nested deeper than 64 levels"),
        (r#"{"a\u0000":1}"#, "NUL character"),
        ("[1e400]", "no double can hold"),
        (r#""\ud800""#, "surrogate"),
    ] {
        let failure = failure(reply("200 OK", "", body)).await;
        assert_eq!(failure.class(), Class::PermanentServiceError, "{said}");
        assert!(failure.message().contains(said), "{failure}");
    }
    let bytes = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n\"";
    let cut = failure(Then::Close(bytes.to_owned())).await;
    assert!(cut.is_retryable(), "a reply that breaks off is not the function's last word: {cut}");
}

#[tokio::test]
async fn b_090_a_reply_can_say_when_to_come_back() {
    for (status, class) in [
        ("429 Too Many Requests", Class::RateLimitExceeded),
        ("503 Service Unavailable", Class::TemporaryServiceUnavailable),
    ] {
        let seconds = failure(reply(status, "retry-after: 7\r\n", "slow down")).await;
        assert_eq!((seconds.class(), seconds.retry_after_ms()), (class, Some(7_000)));
        assert!(
            seconds.message().ends_with(&format!("/send: the reply is {status}: slow down")),
            "{seconds}"
        );
        assert_eq!(NOW_MS, 1_700_000_000_000, "nine seconds before the date");
        let date = failure(reply(status, "retry-after: Tue, 14 Nov 2023 22:13:29 GMT\r\n", "")).await;
        assert_eq!(date.retry_after_ms(), Some(9_000));
        let silent = failure(reply(status, "", "")).await;
        assert_eq!((silent.class(), silent.retry_after_ms()), (class, None));
    }
}

#[tokio::test]
async fn b_086_b_087_a_refusal_is_final_and_a_breakdown_is_not() {
    for status in
        ["400 Bad Request", "401 Unauthorized", "403 Forbidden", "404 Not Found", "409 Conflict", "422 Nope"]
    {
        assert!(!failure(reply(status, "", "no")).await.is_retryable(), "{status}");
    }
    for status in ["408 Request Timeout", "500 Oh", "502 Bad Gateway", "504 Gateway Timeout"] {
        assert!(failure(reply(status, "", "no")).await.is_retryable(), "{status}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_says_where_it_led() {
    let elsewhere = Server::new(reply("200 OK", "", "1")).await;
    for status in ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"] {
        let location = format!("location: {}\r\n", elsewhere.url());
        let failure = failure(reply(status, &location, "")).await;
        assert_eq!(failure.class(), Class::PermanentServiceError);
        assert!(failure.message().contains(&elsewhere.url()), "{failure}");
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn a_reply_that_is_too_long_is_cut_off() {
    let exact = format!("\"{}\"", "x".repeat((64 << 10) - 2));
    assert_eq!(outcome(reply("200 OK", "", &exact)).await.unwrap().len(), 64 << 10);
    let over = format!("\"{}\"", "x".repeat((64 << 10) - 1));
    let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
    // Seventeen chunks and no end: whoever waits for the end never comes back.
    let endless = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{}", chunk.repeat(17));
    for then in [reply("200 OK", "", &over), Then::Send(endless)] {
        let failure = failure(then).await;
        assert_eq!(failure.class(), Class::PermanentServiceError);
        assert!(failure.message().ends_with("the reply is longer than 65536 bytes"), "{failure}");
    }
}

#[tokio::test(start_paused = true)]
async fn b_086_a_server_that_says_nothing_is_given_up_in_time() {
    let failure = late(Then::Hang).await;
    assert_eq!(failure.class(), Class::NetworkTimeout);
    assert!(failure.message().ends_with("no complete reply within 500 ms"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn b_086_a_server_that_speaks_too_slowly_is_given_up_in_time() {
    let body = "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n[";
    assert_eq!(late(Then::Drip(body.to_owned())).await.class(), Class::NetworkTimeout);
    let head = "HTTP/1.1 200 OK\r\nx-slow: ";
    assert_eq!(late(Then::Drip(head.to_owned())).await.class(), Class::NetworkTimeout);
}

/// In real time: virtual time may run out before the head has come.
#[tokio::test]
async fn a_refusal_holds_though_its_body_never_ends() {
    let refused = "HTTP/1.1 400 Bad Request\r\ncontent-length: 1000\r\n\r\nbad";
    let server = Server::new(Then::Drip(refused.to_owned())).await;
    let config = HttpConfig { timeout_ms: 1_000, ..HttpConfig::new(server.url()) };
    let function = function_with(config);
    // Without its deadline the call would go on until the excerpt is full, which takes this server a minute.
    let ended = tokio::time::timeout(Duration::from_secs(20), call(&function)).await;
    let refused = ended.expect("gives up in time").unwrap_err();
    assert_eq!(refused.class(), Class::ValidationError);
    assert!(refused.message().contains("400 Bad Request: bad"), "{refused}");
}

#[tokio::test]
async fn b_086_a_line_that_breaks_is_tried_again() {
    for then in [Then::Reset, Then::Close(String::new()), Then::Close("HTTP/1.1 200".to_owned())] {
        assert_eq!(failure(then).await.class(), Class::TemporaryServiceUnavailable);
    }
    let nonsense = failure(Then::Send("SSH-2.0-OpenSSH_9.2\r\n\r\n".to_owned())).await;
    assert!(nonsense.is_retryable(), "{nonsense}");
    let gone = Server::new(Then::Hang).await.url();
    let failure = call(&function(&gone)).await.unwrap_err();
    assert_eq!(failure.class(), Class::TemporaryServiceUnavailable);
}

#[tokio::test]
async fn a_head_without_end_is_not_read_to_the_end() {
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(1 << 20));
    let server = Server::new(Then::Drip(long)).await;
    assert!(call(&function(&server.url())).await.unwrap_err().is_retryable());
}

#[tokio::test]
async fn the_text_of_a_failure_names_the_place_but_not_its_query() {
    let server = Server::new(reply("500 Oh", "", "a\r\nb\x1b[31m")).await;
    let url = format!("{}?token=hunter2", server.url());
    let failure = call(&function(&url)).await.unwrap_err();
    let expected = format!("POST {}: the reply is 500 Internal Server Error: a  b [31m", server.url());
    assert_eq!(failure.message(), expected);
}
