//! Opening a connection: resolve once, check every address, connect to a checked one and to nothing else.
//!
//! A name is resolved in one place only, and what is connected to is the address that was checked. Somebody who
//! answers the first question with a public address and the second with a private one is never asked a second time.

use crate::egress::{Egress, Refused};
use futures_util::future::BoxFuture;
use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long one address is tried while there are others. Longer than a lost SYN takes to be sent again, twice.
const PATIENCE: Duration = Duration::from_secs(4);
/// Most addresses of a name that are tried.
const MAX_ADDRESSES: usize = 8;

/// Finds the addresses of a host.
pub trait Resolver: Send + Sync + 'static {
    /// All addresses of a host, in the order in which they are to be tried.
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// Asks the operating system.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(
            async move { Ok(tokio::net::lookup_host((host, 0)).await?.map(|found| found.ip()).collect()) },
        )
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("{host} may not be reached: {refused}")]
    Refused { host: String, refused: Refused },
    #[error("{host} cannot be resolved")]
    Unresolved { host: String, source: io::Error },
    #[error("{host} has no address")]
    NoAddress { host: String },
    #[error("{address} cannot be connected to")]
    Unconnected { address: SocketAddr, source: io::Error },
    #[error("no TLS with {host}")]
    Tls { host: String, source: io::Error },
}

/// What a request is sent over.
pub(super) trait Line: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Line for T {}

impl Connection for Box<dyn Line> {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

/// Opens connections for the pool of a client.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) egress: Arc<Egress>,
    pub(super) resolver: Arc<dyn Resolver>,
    pub(super) tls: Arc<ClientConfig>,
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Line>>;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<Self::Response, ConnectError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.open(&uri).await.map(TokioIo::new) })
    }
}

impl Connector {
    async fn open(&self, uri: &Uri) -> Result<Box<dyn Line>, ConnectError> {
        // An IPv6 address stands in brackets in a URL, and nowhere else.
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let secure = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let stream = self.reach(host, port).await?;
        if !secure {
            return Ok(Box::new(stream));
        }
        let failed = |source| ConnectError::Tls { host: host.to_owned(), source };
        let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(io::Error::other(error)))?;
        let secured = TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await;
        Ok(Box::new(secured.map_err(failed)?))
    }

    async fn reach(&self, host: &str, port: u16) -> Result<TcpStream, ConnectError> {
        let mut addresses = self.checked(host).await?;
        addresses.truncate(MAX_ADDRESSES);
        let mut last = ConnectError::NoAddress { host: host.to_owned() };
        let count = addresses.len();
        for (index, ip) in addresses.into_iter().enumerate() {
            let address = SocketAddr::new(ip, port);
            // The last one has all the time that the call has.
            let patience = if index + 1 == count { Duration::MAX } else { PATIENCE };
            let attempt = tokio::time::timeout(patience, TcpStream::connect(address)).await;
            match attempt.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(stream) => {
                    // A request is one write and then a wait; holding it back for more would only cost time.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Err(source) => last = ConnectError::Unconnected { address, source },
            }
        }
        Err(last)
    }

    /// The addresses of a host that may be connected to; an error when it has only others.
    async fn checked(&self, host: &str) -> Result<Vec<IpAddr>, ConnectError> {
        let all = match host.parse() {
            Ok(address) => vec![address],
            Err(_) => {
                let unresolved = |source| ConnectError::Unresolved { host: host.to_owned(), source };
                self.resolver.resolve(host).await.map_err(unresolved)?
            }
        };
        let mut refused = None;
        let mut open = all;
        open.retain(|address| self.egress.check(*address).map_err(|why| refused = Some(why)).is_ok());
        match refused {
            Some(refused) if open.is_empty() => Err(ConnectError::Refused { host: host.to_owned(), refused }),
            _ => Ok(open),
        }
    }
}
