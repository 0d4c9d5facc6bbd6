//! What is known of a request before its body is read.

use http::{Extensions, HeaderMap, Method, Request, Uri};
use std::net::IpAddr;
use std::sync::Arc;

/// A request without its body, which nobody may need to decide whose it is.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// The method.
    pub method: &'a Method,
    /// Where it goes.
    pub uri: &'a Uri,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// What layers outside have put there.
    pub extensions: &'a Extensions,
}

impl<'a> Head<'a> {
    /// The head of a request.
    pub fn of<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    /// The pattern of the route that it goes to: `/orders/{id}`.
    #[cfg(feature = "axum")]
    pub(super) fn route(self) -> Option<&'a str> {
        self.extensions.get::<axum::extract::MatchedPath>().map(axum::extract::MatchedPath::as_str)
    }

    /// The other end of the connection.
    pub(super) fn peer(self) -> Option<IpAddr> {
        #[cfg(feature = "axum")]
        if let Some(peer) = self.extensions.get::<axum::extract::ConnectInfo<std::net::SocketAddr>>() {
            return Some(peer.0.ip());
        }
        self.extensions.get::<Peer>().map(|peer| peer.0)
    }
}

/// Who makes a request. Whoever authenticates it puts this into its extensions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caller {
    /// The user.
    pub user: Option<Arc<str>>,
    /// The tenant.
    pub tenant: Option<Arc<str>>,
}

/// The other end of a connection. Whoever accepts it puts this into the extensions of its requests; with the feature
/// `axum`, its `ConnectInfo<SocketAddr>` does as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub IpAddr);
