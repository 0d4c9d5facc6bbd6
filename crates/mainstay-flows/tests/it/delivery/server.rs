//! A server that does what a test tells it, byte by byte.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A request as it came over the line.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// What the server does with a connection on which a request has arrived.
#[derive(Clone)]
pub(crate) enum Then {
    /// Sends these bytes, and waits for the next request.
    Send(String),
    /// Ends the connection with a reset.
    Reset,
    /// Sends these bytes, and ends the connection with a reset.
    Break(String),
    /// Sends these bytes, then one more for each tick, for ever.
    Drip(String),
    /// Says nothing, for ever.
    Hang,
}

/// A reply with a body.
pub(crate) fn reply(status: &str, fields: &str, body: &str) -> Then {
    Then::Send(format!("HTTP/1.1 {status}\r\n{fields}content-length: {}\r\n\r\n{body}", body.len()))
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<Request>>>,
    then: Arc<Mutex<Then>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) async fn new(then: Then) -> Self {
        Self::at("127.0.0.1:0", then).await
    }

    pub(crate) async fn at(address: &str, then: Then) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, requests) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<Request>>>::default());
        let then = Arc::new(Mutex::new(then));
        let (counted, kept, does) = (connections.clone(), requests.clone(), then.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, does.clone(), kept.clone()));
            }
        });
        Self { address, connections, requests, then, task }
    }

    /// Does something else from now on.
    pub(crate) fn turn(&self, then: Then) {
        *self.then.lock().unwrap() = then;
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/events", self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

async fn serve(mut stream: TcpStream, then: Arc<Mutex<Then>>, kept: Arc<Mutex<Vec<Request>>>) {
    while let Some(request) = receive(&mut stream).await {
        kept.lock().unwrap().push(request);
        let does = then.lock().unwrap().clone();
        match does {
            Then::Send(text) => stream.write_all(text.as_bytes()).await.unwrap(),
            Then::Reset => return stream.set_zero_linger().unwrap(),
            Then::Break(text) => {
                stream.write_all(text.as_bytes()).await.unwrap();
                return stream.set_zero_linger().unwrap();
            }
            Then::Drip(text) => {
                stream.write_all(text.as_bytes()).await.unwrap();
                let mut ticks = tokio::time::interval(Duration::from_millis(20));
                loop {
                    ticks.tick().await;
                    if stream.write_all(b" ").await.is_err() {
                        return;
                    }
                }
            }
            Then::Hang => std::future::pending().await,
        }
    }
}

/// The next request of a connection; none when the other side hangs up.
async fn receive(stream: &mut TcpStream) -> Option<Request> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let request = Request { head: String::from_utf8(head).unwrap(), body: Vec::new() };
    let mut body = vec![0; request.header("content-length")?.parse().unwrap()];
    stream.read_exact(&mut body).await.ok()?;
    Some(Request { body, ..request })
}
