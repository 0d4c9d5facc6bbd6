//! A client that says exactly what a test wants said.

use serde_json::Value;
use std::net::SocketAddr;
use std::panic::Location;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// What came back.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts that this is a problem document with a code, and returns it.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(
            (self.status, self.header("content-type")),
            (status, Some("application/problem+json")),
            "{self:?}"
        );
        let document = self.json();
        assert_eq!((&document["code"], &document["status"]), (&code.into(), &status.into()), "{self:?}");
        assert_eq!(document["type"], format!("/docs/errors/{code}"));
        assert!(document["title"].as_str().unwrap().ends_with('.') && document["detail"].is_string());
        document
    }
}

/// A request in the making.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    line: String,
    headers: String,
    body: String,
}

pub(crate) fn get(path: &str) -> Request {
    request("GET", path)
}

pub(crate) fn post(path: &str, body: &str) -> Request {
    Request { body: body.to_owned(), ..request("POST", path) }.header("Content-Type", "application/json")
}

pub(crate) fn request(method: &str, path: &str) -> Request {
    Request { line: format!("{method} {path} HTTP/1.1\r\n"), headers: String::new(), body: String::new() }
}

impl Request {
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers += &format!("{name}: {value}\r\n");
        self
    }

    pub(crate) fn body(self, body: &str) -> Self {
        Self { body: body.to_owned(), ..self }
    }

    pub(crate) fn token(self, token: &str) -> Self {
        self.header("Authorization", &format!("Bearer {token}"))
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        let kept = self.headers.split_inclusive('\n').filter(|line| !line.starts_with(name));
        self.headers = kept.collect();
        self
    }

    /// The request as text, for a connection that is closed afterwards.
    pub(crate) fn text(&self, address: SocketAddr) -> String {
        let host = match self.headers.contains("Host: ") {
            true => String::new(),
            false => format!("Host: {address}\r\n"),
        };
        let Self { line, headers, body } = self;
        let length = if headers.contains("Transfer-Encoding") {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        format!("{line}{host}{headers}{length}Connection: close\r\n\r\n{body}")
    }

    pub(crate) async fn send(&self, address: SocketAddr) -> Answer {
        let mut stream = TcpStream::connect(address).await.unwrap();
        self.send_over(&mut stream, address).await
    }

    /// As [`send`](Self::send), but of events that are sent by the server only the beginning is read.
    pub(crate) async fn begin(&self, address: SocketAddr) -> Answer {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let _ = stream.write_all(self.text(address).as_bytes()).await;
        let mut bytes = Vec::new();
        // A connection that is reset after the answer has said all the same.
        while let Ok(1..) = stream.read_buf(&mut bytes).await {
            let text = String::from_utf8_lossy(&bytes);
            let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
            if head.contains("content-type: text/event-stream") && !body.is_empty() {
                let (head, body) = (head.to_owned(), body.to_owned());
                return Answer { status: 200, head, body };
            }
        }
        parse(&String::from_utf8(bytes).unwrap())
    }

    /// Sends, and reads until an event with this text has come; everything that came.
    pub(crate) async fn until(&self, text: &str, address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(self.text(address).as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        loop {
            let came = String::from_utf8_lossy(&bytes);
            if came.split_once(text).is_some_and(|(_, rest)| rest.contains("\n\n")) {
                return came.into_owned();
            }
            assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "it ended before it came");
        }
    }

    pub(crate) async fn send_over(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        address: SocketAddr,
    ) -> Answer {
        // A server that refuses early may close before everything is written.
        let _ = stream.write_all(self.text(address).as_bytes()).await;
        read(stream).await
    }
}

/// Far longer than what is waited for should take, also on a busy machine, and shorter than the limits that tests do not
/// set: ten seconds and more.
const SOON: Duration = Duration::from_secs(8);

/// What comes soon, or a test that failed.
#[track_caller]
pub(crate) fn soon<T>(future: impl Future<Output = T>) -> impl Future<Output = T> {
    let place = Location::caller();
    async move { timeout(SOON, future).await.unwrap_or_else(|_| panic!("{place}: not within {SOON:?}")) }
}

/// Reads an answer until the server closes the connection.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Answer {
    let mut bytes = Vec::new();
    // A connection that is reset after the answer has said all the same.
    let _ = stream.read_to_end(&mut bytes).await;
    parse(&String::from_utf8(bytes).unwrap())
}

fn parse(text: &str) -> Answer {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let is_chunked = head.to_lowercase().contains("transfer-encoding: chunked");
    let body = if is_chunked { unchunked(body) } else { body.to_owned() };
    Answer { status, head: head.to_owned(), body }
}

fn unchunked(mut text: &str) -> String {
    let mut body = String::new();
    while let Some((size, rest)) = text.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            break;
        }
        body += &rest[..size];
        text = rest[size..].trim_start_matches("\r\n");
    }
    body
}

impl Request {
    /// As [`send`](Self::send), for a task of its own.
    pub(crate) async fn send_to(self, address: SocketAddr) -> Answer {
        self.send(address).await
    }
}
