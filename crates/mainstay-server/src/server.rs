//! The server: Options, [`Server`], [`Handle`], Error.

use crate::access::is_loopback;
use crate::app::App;
use crate::listen::connection::Service;
use crate::listen::places::Places;
use crate::listen::tls::Certificate;
use crate::routing::Route;
use crate::{
    Builder, Error, Options, Result, Routes, Services, Shutdown, Tokens, console, health, openapi, report,
    routes,
};
use mainstay_store::Store;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// When the system has no room for another connection, trying again at once would only burn time.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// A server that has its address and waits to be run.
pub struct Server {
    service: Service,
    listener: TcpListener,
    table: Vec<Route>,
}

/// A way to reach a server that runs. Clones are the same.
#[derive(Clone, Debug)]
pub struct Handle {
    address: SocketAddr,
    shutdown: Shutdown,
}

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    /// Connections that were not done when the grace was over.
    pub abandoned: usize,
}

impl Server {
    /// Takes the address. From here on connections are accepted by the system, and answered once the server runs. The
    /// store was opened with its [components](crate::components). Nothing is worked on by this: whoever has functions
    /// [starts](mainstay_work::Work::start) their work beside the server.
    pub async fn bind(options: Options, store: Store) -> Result<Self> {
        let services = Builder::on_store(store).open().await?;
        Self::bind_with(options, services, Routes::default()).await
    }

    /// As [`bind`](Self::bind), with services that are open already and with routes of the application's own.
    pub async fn bind_with(options: Options, services: Services, further: Routes) -> Result<Self> {
        check_protection(&options, &Tokens::new(services.store().clone())).await?;
        let tls = options.tls.clone().map(Certificate::open).transpose()?.map(Arc::new);
        let asked = options.listen;
        let failed = |source| Error::Listen { address: asked, source };
        let listener = TcpListener::bind(asked).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let routes = routes::all().and(further);
        let table = routes.table();
        let description = routes.describe(openapi::base()).to_pretty_json();
        let openapi = description.expect("a description is texts and numbers");
        let app = App::open(options, address, services, openapi);
        report::begin(&app);
        let router = routes.build(&app);
        Ok(Self { service: Service { app, router, tls }, listener, table })
    }

    /// Where it listens; the port that the system chose when it was asked to.
    pub fn address(&self) -> SocketAddr {
        self.service.app.address()
    }

    /// The URL of the server.
    pub fn url(&self) -> String {
        let scheme = if self.service.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address())
    }

    /// A link that lets whoever opens it first into the console as an admin, within a quarter of an hour: for somebody at
    /// the machine, before there is a token to log in with.
    pub async fn login_link(&self) -> Result<String> {
        let app = &self.service.app;
        let secret = console::Sessions::new(app).link(&app.tokens().console().await?).await?;
        Ok(format!("{}{}?link={secret}", self.url(), console::LOGIN))
    }

    /// Every route, with what it needs.
    pub fn routes(&self) -> &[Route] {
        &self.table
    }

    /// A way to reach the server while it runs.
    pub fn handle(&self) -> Handle {
        Handle { address: self.address(), shutdown: self.service.app.shutdown().clone() }
    }

    /// Serves until `stop` is ready or the handle says so. Then it accepts nothing more, tells answers that stream to
    /// end, and waits for the rest until the grace is over.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Stopped {
        let Self { service, listener, .. } = self;
        let shutdown = service.app.shutdown().clone();
        let mut connections = JoinSet::new();
        let reporting = report::emit_every_minute(&service.app);
        let watching = health::keep_watching(&service.app);
        let remembering = console::remember(&service.app);
        tokio::select! {
            () = accept(&listener, &service, &mut connections) => {}
            () = reporting => {}
            () = watching => {}
            () = remembering => {}
            () = stop => {}
            () = shutdown.requested() => {}
        }
        drop(listener);
        shutdown.request();
        let grace = service.app.options().shutdown_grace;
        let _ = tokio::time::timeout(grace, async { while connections.join_next().await.is_some() {} }).await;
        let abandoned = connections.len();
        connections.shutdown().await;
        Stopped { abandoned }
    }
}

impl Handle {
    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Tells the server to stop.
    pub fn stop(&self) {
        self.shutdown.request();
    }

    /// Ready when the server was told to stop, by whomever: for what should stop beside it.
    pub async fn stopping(&self) {
        self.shutdown.requested().await;
    }
}

/// An address that others can reach needs TLS, so that tokens are not overheard, and a token, so that it is of any use.
async fn check_protection(options: &Options, tokens: &Tokens) -> Result<()> {
    let address = options.listen;
    if is_loopback(address.ip()) || options.insecure {
        return Ok(());
    }
    let lacks = match (tokens.exist().await?, options.tls.is_some()) {
        (true, true) => return Ok(()),
        (false, false) => "neither a token nor TLS",
        (false, true) => "no token yet",
        (true, false) => "no TLS",
    };
    Err(Error::Unprotected { address, lacks })
}

/// Accepts for ever. A connection without a place is closed at once: waiting in the system's queue it would keep out
/// probes and admins.
async fn accept(listener: &TcpListener, service: &Service, connections: &mut JoinSet<()>) {
    let options = service.app.options();
    let places =
        Places::new(options.max_connections, options.max_connections_per_address, options.proxies.clone());
    loop {
        let (stream, peer) = next(listener).await;
        match places.take(peer.ip()) {
            Some(place) => drop(connections.spawn(service.clone().serve(stream, peer, place))),
            None => service.app.figures().connections_refused.increment(),
        }
        // What has ended is let go of, so that the set does not grow.
        while connections.try_join_next().is_some() {}
    }
}

async fn next(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            // The client was faster than we were.
            Err(error) if is_of_the_client(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
