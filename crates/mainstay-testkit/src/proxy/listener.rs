//! Accepts clients while the weather allows it, and really refuses them (no one listens) while it does not.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
    task::JoinSet,
};

use super::{
    Weather,
    connection::{self, Line},
};

/// The kernel's usual limit; a test that opens more connections at once than this waits a little.
const BACKLOG: u32 = 1024;

/// A port that stays ours while nobody listens on it: a second socket, bound and never listening, keeps the
/// kernel from handing the number to somebody else.
#[derive(Debug)]
pub(super) struct Port {
    _keeper: TcpSocket,
    addr: SocketAddr,
}

impl Port {
    pub(super) fn reserve(host: Ipv4Addr) -> io::Result<Port> {
        let keeper = TcpSocket::new_v4()?;
        // Two sockets may share a port when both allow it and at most one listens.
        keeper.set_reuseaddr(true)?;
        keeper.bind((host, 0).into())?;
        let addr = keeper.local_addr()?;
        Ok(Port { _keeper: keeper, addr })
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    fn listen(&self) -> io::Result<TcpListener> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(self.addr)?;
        socket.listen(BACKLOG)
    }
}

/// The loop that accepts clients.
pub(super) struct Listener {
    port: Port,
    target: SocketAddr,
    weather: watch::Receiver<Weather>,
    line: Arc<Line>,
    heard: watch::Sender<bool>,
    socket: Option<TcpListener>,
    /// Dropped with the loop, which ends every connection.
    connections: JoinSet<()>,
}

impl Listener {
    pub(super) fn new(
        port: Port,
        target: SocketAddr,
        weather: watch::Receiver<Weather>,
        line: Arc<Line>,
        heard: watch::Sender<bool>,
    ) -> io::Result<Listener> {
        let socket = Some(port.listen()?);
        Ok(Listener { port, target, weather, line, heard, socket, connections: JoinSet::new() })
    }

    pub(super) async fn run(mut self) {
        loop {
            let refuse = self.weather.borrow_and_update().refuse;
            self.open_or_close(refuse);
            tokio::select! {
                changed = self.weather.changed() => if changed.is_err() { return },
                accepted = accept(self.socket.as_ref()) => match accepted {
                    Ok(client) => self.connect(client),
                    // The client gave up before we took it: its loss alone.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(error) => panic!("the proxy cannot accept connections any more: {error}"),
                },
                Some(_) = self.connections.join_next() => {}
            }
        }
    }

    fn open_or_close(&mut self, refuse: bool) {
        if refuse {
            self.socket = None;
        } else if self.socket.is_none() {
            self.socket =
                Some(self.port.listen().expect("the port is reserved, so it can be listened on again"));
        }
        self.heard.send_if_modified(|heard| std::mem::replace(heard, !refuse) == refuse);
    }

    fn connect(&mut self, client: TcpStream) {
        // First taken onto the line and only then the look at the weather: a cut in between either finds the
        // connection on the line it cuts or has already turned the weather.
        let hook = self.line.hook();
        if self.weather.borrow().refuse {
            connection::reset(&client);
            return;
        }
        self.connections.spawn(connection::run(client, self.target, self.weather.clone(), hook));
    }
}

async fn accept(socket: Option<&TcpListener>) -> io::Result<TcpStream> {
    match socket {
        Some(socket) => Ok(socket.accept().await?.0),
        None => std::future::pending().await,
    }
}
