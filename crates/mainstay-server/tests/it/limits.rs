//! Clients that send too much, too slowly, or never finish.

use crate::client::{Answer, get, post, read, soon};
use crate::running::{Running, options};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const SHORT: Duration = Duration::from_millis(50);

async fn say(server: &Running, text: &str) -> Answer {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    // The writing side stays open: nobody says that this was all.
    soon(read(&mut stream)).await
}

fn head(length: &str) -> String {
    format!(
        "POST /v1/test/echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{length}\r\n\r\n"
    )
}

#[tokio::test]
async fn a_body_that_never_ends_costs_a_bounded_time() {
    let server = Running::start(options().body_timeout(SHORT)).await;
    let answer = say(&server, &format!("{}{{\"text\":", head("Content-Length: 100"))).await;
    answer.problem(408, "BODY_TIMEOUT");
    let answer = say(&server, &format!("{}5\r\n{{\"tex\r\n", head("Transfer-Encoding: chunked"))).await;
    answer.problem(408, "BODY_TIMEOUT");
}

#[tokio::test]
async fn forms_of_the_console_are_read_within_the_same_bounds() {
    let of = |path: &str, length: &str| {
        let kind = "Content-Type: application/x-www-form-urlencoded";
        format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{kind}\r\n{length}\r\n\r\n")
    };
    let server = Running::start(options().body_timeout(SHORT).max_body_bytes(100)).await;
    let token = server.token(mainstay_server::Role::Reader).await;
    let login =
        format!("{}token={token}", of("/console/login", &format!("Content-Length: {}", token.len() + 6)));
    // With a longer time than that, somebody comes in.
    let patient = Running::start_on(options(), server.store.clone()).await;
    let came = say(&patient, &login.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")).await;
    let cookie = came.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    for path in ["/console/login", "/console/act", "/console/logout"] {
        let length = |length: &str| format!("{length}\r\nCookie: {cookie}");
        let slow = say(&server, &format!("{}token=", of(path, &length("Content-Length: 90")))).await;
        slow.problem(408, "BODY_TIMEOUT");
        let endless = of(path, &length("Transfer-Encoding: chunked"));
        say(&server, &format!("{endless}5\r\ntoken\r\n")).await.problem(408, "BODY_TIMEOUT");
        let large = say(&server, &of(path, &length("Content-Length: 101"))).await;
        large.problem(413, "BODY_TOO_LARGE");
    }
    // The form of the login has a bound of its own.
    let large = say(&patient, &of("/console/login", "Content-Length: 8193")).await;
    assert_eq!(large.problem(413, "BODY_TOO_LARGE")["maxBytes"], 8_192);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_by_what_it_announces_and_by_what_it_is() {
    let server = Running::start(options().max_body_bytes(100)).await;
    // Not a byte of it is sent: the announcement is enough.
    let problem = say(&server, &head("Content-Length: 101")).await.problem(413, "BODY_TOO_LARGE");
    assert_eq!(problem["maxBytes"], 100);
    let chunk = format!("65\r\n{}\r\n", " ".repeat(0x65));
    let answer = say(&server, &format!("{}{chunk}", head("Transfer-Encoding: chunked"))).await;
    answer.problem(413, "BODY_TOO_LARGE");

    let text = |length: usize| format!(r#"{{"text":"{}"}}"#, "x".repeat(length));
    assert_eq!(post("/v1/test/echo", &text(80)).send(server.address).await.status, 200);
    post("/v1/test/echo", &text(100)).send(server.address).await.problem(413, "BODY_TOO_LARGE");
    assert_eq!(post("/v1/test/batch", &text(700)).send(server.address).await.body, "700");
    post("/v1/test/batch", &text(800)).send(server.address).await.problem(413, "BODY_TOO_LARGE");
}

#[tokio::test]
async fn a_request_that_is_refused_before_its_body_came_is_answered_and_its_connection_serves_on() {
    let server = Running::start(options()).await;
    let body = r#"{"text":"late"}"#;
    for (path, status) in [("/v1/nothing", "404"), ("/v1/tokens", "404"), ("/v1/test/echo", "200")] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head = head(&format!("Content-Length: {}", body.len())).replace("/v1/test/echo", path);
        stream.write_all(head.as_bytes()).await.unwrap();
        // Whatever is decided from the head alone is decided by the time another request has been answered.
        assert_eq!(get("/livez").send(server.address).await.status, 200);
        stream.write_all(body.as_bytes()).await.unwrap();
        stream.write_all(get("/livez").text(server.address).as_bytes()).await.unwrap();
        let mut said = String::new();
        soon(stream.read_to_string(&mut said)).await.unwrap();
        assert!(
            said.starts_with(&format!("HTTP/1.1 {status} ")) && said.contains("HTTP/1.1 200 OK"),
            "{path}: {said}"
        );
    }
    // What does not come, or is too much, is not waited for: the answer tells that nothing follows it.
    for length in
        ["Content-Length: 100", "Content-Length: 1000000000", "Content-Length: 9\r\nExpect: 100-continue"]
    {
        let answer = say(&server, &head(length).replace("/v1/test/echo", "/v1/nothing")).await;
        answer.problem(404, "ROUTE_NOT_FOUND");
        assert_eq!(answer.header("connection"), Some("close"), "{length}");
    }
}

#[tokio::test]
async fn headers_that_are_too_large_are_refused() {
    let server = Running::start(options()).await;
    let with = |bytes: usize| get("/livez").header("X-Long", &"x".repeat(bytes));
    assert_eq!(with(15 << 10).send(server.address).await.status, 200);
    with(17 << 10).send(server.address).await.problem(431, "HEADERS_TOO_LARGE");
    assert_eq!(with(1 << 20).send(server.address).await.status, 431);
    let many = (0..101).fold(get("/livez"), |request, number| request.header(&format!("X-{number}"), "1"));
    assert_eq!(many.send(server.address).await.status, 431);
    let long = format!("/livez?{}", "x".repeat(17 << 10));
    get(&long).send(server.address).await.problem(431, "HEADERS_TOO_LARGE");
}

#[tokio::test]
async fn headers_that_never_end_and_connections_that_say_nothing_are_closed() {
    let server = Running::start(options().header_timeout(SHORT)).await;
    for said in ["", "GET /livez HTTP/1.1\r\nHost: loc"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(said.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        soon(stream.read_to_end(&mut rest)).await.unwrap();
        assert!(!String::from_utf8(rest).unwrap().contains("200"), "{said}");
    }
}

#[tokio::test]
async fn a_client_that_takes_no_answer_is_let_go() {
    let server = Running::start(options().body_timeout(SHORT)).await;
    let mut deaf = TcpStream::connect(server.address).await.unwrap();
    deaf.write_all(get("/v1/test/large").text(server.address).as_bytes()).await.unwrap();
    let mut first = [0];
    deaf.read_exact(&mut first).await.unwrap();
    soon(async {
        // Only the one that asks is left.
        while !get("/metrics").send(server.address).await.body.contains("\nmainstay_server_connections 1\n") {
        }
    })
    .await;
    let mut rest = Vec::new();
    let _ = deaf.read_to_end(&mut rest).await;
    assert!(rest.len() < 64 << 20);
}
