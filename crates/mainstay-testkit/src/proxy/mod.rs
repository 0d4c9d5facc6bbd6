//! A TCP proxy to put between a client and a server, which breaks the line on demand.
//!
//! Networks fail in ways that a stopped server does not show: bytes vanish while both ends believe the connection
//! is fine (half-open), come late (delay), or the line is cut in the middle of a conversation. A test points its
//! client at [`Proxy::addr`] and then changes the weather.
//!
//! - `connection`: one client and its server, the bytes between them
//! - `listener`: accepts clients, or refuses them

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, ToSocketAddrs},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{Mutex, watch},
    task::AbortHandle,
};

mod connection;
mod listener;

use crate::stores::Place;
use connection::Line;
use listener::{Listener, Port};

/// What happens to bytes and to new connections at this moment.
#[derive(Clone, Copy, Debug, Default)]
struct Weather {
    refuse: bool,
    hold: bool,
    delay: Duration,
}

/// A running proxy. It stops, and its connections end, when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    weather: watch::Sender<Weather>,
    line: Arc<Line>,
    /// Held while a cut or a healing waits to take effect: two at once would each wait for what the other undoes.
    turn: Mutex<()>,
    listening: watch::Receiver<bool>,
    task: AbortHandle,
}

impl Proxy {
    /// A proxy before the database of a place, and the URL of the database behind it.
    pub fn before(place: &Place) -> io::Result<(Proxy, String)> {
        let url = place.url();
        let start = url.find("://").map_or(0, |at| at + 3);
        let end = url[start..].find(['/', '?']).map_or(url.len(), |at| start + at);
        let start = url[start..end].rfind('@').map_or(start, |at| start + at + 1);
        let host = &url[start..end];
        let host = if host.contains(':') { host.to_owned() } else { format!("{host}:5432") };
        let nowhere = || io::Error::new(io::ErrorKind::InvalidInput, format!("no server at {url}"));
        let proxy = Self::start(host.to_socket_addrs()?.next().ok_or_else(nowhere)?)?;
        let behind = format!("{}{}{}", &url[..start], proxy.addr(), &url[end..]);
        Ok((proxy, behind))
    }

    /// Listens on a free port of 127.0.0.1 and forwards each connection to `target`.
    ///
    /// Must be called inside a tokio runtime, which then carries the proxy.
    pub fn start(target: SocketAddr) -> io::Result<Proxy> {
        let port = Port::reserve(Ipv4Addr::LOCALHOST)?;
        let addr = port.addr();
        let line = Arc::new(Line::default());
        let (weather, seen) = watch::channel(Weather::default());
        let (heard, listening) = watch::channel(true);
        let listener = Listener::new(port, target, seen, Arc::clone(&line), heard)?;
        let task = tokio::spawn(listener.run()).abort_handle();
        Ok(Proxy { addr, weather, line, turn: Mutex::new(()), listening, task })
    }

    /// Where the client should connect to.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Resets the live connections and refuses new ones until [`heal`](Proxy::heal). When this returns, nothing
    /// is connected any more and nobody listens.
    pub async fn cut(&self) {
        let _turn = self.turn.lock().await;
        self.weather.send_modify(|weather| weather.refuse = true);
        self.line.cut().await;
        self.until_listening(false).await;
    }

    /// Resets the connections that are live now; new ones are accepted.
    pub async fn cut_connections(&self) {
        self.line.cut().await;
    }

    /// Delivers what arrives from now on `delay` later, in each direction: a round trip takes twice as long.
    /// What is under way already is due by the new delay too.
    pub fn delay(&self, delay: Duration) {
        self.weather.send_modify(|weather| weather.delay = delay);
    }

    /// Keeps connections open but forwards nothing in either direction, neither bytes nor the end of a stream.
    /// New connections are accepted, and the server does not hear of them. What was sent meanwhile is delivered,
    /// in order, after [`heal`](Proxy::heal); about a megabyte per direction is taken before the sender's own
    /// buffers fill.
    pub fn half_open(&self) {
        self.weather.send_modify(|weather| weather.hold = true);
    }

    /// Ends every disturbance. When this returns, new connections are accepted.
    pub async fn heal(&self) {
        let _turn = self.turn.lock().await;
        self.weather.send_replace(Weather::default());
        self.until_listening(true).await;
    }

    /// How many clients are connected.
    pub fn connections(&self) -> usize {
        self.line.connections()
    }

    async fn until_listening(&self, wanted: bool) {
        let mut listening = self.listening.clone();
        let reached = listening.wait_for(|&listening| listening == wanted).await.map(|_| ());
        reached.expect("the proxy's listener runs as long as the proxy lives and its runtime does");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}
