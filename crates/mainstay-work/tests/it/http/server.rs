//! A server that does what a test tells it, byte by byte.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A request as it came over the line.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Received {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        fields.into_iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// What the server does with a connection on which a request has arrived.
#[derive(Clone)]
pub(super) enum Then {
    /// Sends these bytes, and waits for the next request.
    Send(String),
    /// Sends these bytes and hangs up.
    Close(String),
    /// Ends the connection with a reset.
    Reset,
    /// Sends these bytes, then one more for each tick, for ever.
    Drip(String),
    /// Says nothing, for ever.
    Hang,
}

/// A reply with a body.
pub(super) fn reply(status: &str, fields: &str, body: &str) -> Then {
    Then::Send(format!("HTTP/1.1 {status}\r\n{fields}content-length: {}\r\n\r\n{body}", body.len()))
}

pub(super) struct Server {
    pub(super) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    received: Arc<Mutex<Vec<Received>>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(super) async fn new(then: Then) -> Self {
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        Self::at(any, then).await
    }

    pub(super) async fn at(address: SocketAddr, then: Then) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, received) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<Received>>>::default());
        let (counted, kept) = (Arc::clone(&connections), Arc::clone(&received));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, then.clone(), Arc::clone(&kept)));
            }
        });
        Self { address, connections, received, task }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/send", self.address)
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(super) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

async fn serve(mut stream: TcpStream, then: Then, kept: Arc<Mutex<Vec<Received>>>) {
    while let Some(request) = receive(&mut stream).await {
        kept.lock().unwrap().push(request);
        match &then {
            Then::Send(text) => stream.write_all(text.as_bytes()).await.unwrap(),
            Then::Close(text) => {
                stream.write_all(text.as_bytes()).await.unwrap();
                return;
            }
            Then::Reset => return stream.set_zero_linger().unwrap(),
            Then::Drip(text) => {
                stream.write_all(text.as_bytes()).await.unwrap();
                drip(&mut stream).await;
                return;
            }
            Then::Hang => std::future::pending().await,
        }
    }
}

/// A byte at a time, in the test's own time, until the other side has had enough.
async fn drip(stream: &mut TcpStream) {
    let mut ticks = tokio::time::interval(std::time::Duration::from_millis(100));
    loop {
        ticks.tick().await;
        if stream.write_all(b" ").await.is_err() {
            return;
        }
    }
}

/// The next request of a connection; none when the other side hangs up.
pub(super) async fn receive(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Option<Received> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let request = Received { head: String::from_utf8(head).unwrap(), body: Vec::new() };
    let mut body = vec![0; request.header("content-length")?.parse().unwrap()];
    stream.read_exact(&mut body).await.ok()?;
    Some(Received { body, ..request })
}
