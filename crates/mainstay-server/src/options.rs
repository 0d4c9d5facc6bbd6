//! How a server is started.

use crate::health::HealthRules;
use crate::listen::places;
use crate::tokens::Lives;
use axum::body::Body;
use mainstay_core::addresses::Range;
use mainstay_guards::limits::RateLimitLayer;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// What [`Options::default`] begins with.
pub mod defaults {
    /// See [`Options::listen`](super::Options::listen).
    pub const PORT: u16 = 7420;
    /// See [`Options::max_connections`](super::Options::max_connections).
    pub const MAX_CONNECTIONS: usize = 1_024;
    /// See [`Options::max_connections_per_address`](super::Options::max_connections_per_address).
    pub const MAX_CONNECTIONS_PER_ADDRESS: usize = 256;
    /// See [`Options::header_timeout`](super::Options::header_timeout).
    pub const HEADER_TIMEOUT_MS: u64 = 10_000;
    /// See [`Options::request_timeout`](super::Options::request_timeout).
    pub const REQUEST_TIMEOUT_MS: u64 = 30_000;
    /// See [`Options::body_timeout`](super::Options::body_timeout).
    pub const BODY_TIMEOUT_MS: u64 = 10_000;
    /// See [`Options::shutdown_grace`](super::Options::shutdown_grace).
    pub const SHUTDOWN_GRACE_MS: u64 = 10_000;
    /// See [`Options::token_share`](super::Options::token_share).
    pub const TOKEN_SHARE: u8 = 50;
    /// See [`Options::tenant_share`](super::Options::tenant_share).
    pub const TENANT_SHARE: u8 = 75;
    /// See [`Options::max_body_bytes`](super::Options::max_body_bytes).
    pub const MAX_BODY_BYTES: usize = 1 << 20;
    /// See [`Options::sessions`](super::Options::sessions): a day's work.
    pub const SESSION_LIFE_MS: u64 = 12 * 60 * 60 * 1_000;
    /// See [`Options::sessions`](super::Options::sessions).
    pub const SESSION_IDLE_MS: u64 = 60 * 60 * 1_000;
}

/// A route that takes batches takes bodies this many times as large as others: 8 MiB by default.
pub(crate) const BATCH_FACTOR: usize = 8;

/// Settings of a server. Every one has a default that is right for most.
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) listen: SocketAddr,
    pub(crate) tls: Option<Tls>,
    pub(crate) insecure: bool,
    pub(crate) max_connections: usize,
    pub(crate) max_connections_per_address: usize,
    pub(crate) token_share: u8,
    pub(crate) tenant_share: u8,
    pub(crate) header_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) shutdown_grace: Duration,
    pub(crate) max_body_bytes: usize,
    pub(crate) rate_limits: Option<RateLimitLayer<Body>>,
    pub(crate) proxies: Vec<Range>,
    pub(crate) health: HealthRules,
    pub(crate) configuration: Option<serde_json::Value>,
    pub(crate) token_lives: Lives,
    pub(crate) session_life: Duration,
    pub(crate) session_idle: Duration,
    pub(crate) audits_v1: bool,
}

/// Where the certificate and its key are, as PEM files.
#[derive(Debug, Clone)]
pub(crate) struct Tls {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, defaults::PORT).into(),
            tls: None,
            insecure: false,
            max_connections: defaults::MAX_CONNECTIONS,
            max_connections_per_address: defaults::MAX_CONNECTIONS_PER_ADDRESS,
            token_share: defaults::TOKEN_SHARE,
            tenant_share: defaults::TENANT_SHARE,
            header_timeout: Duration::from_millis(defaults::HEADER_TIMEOUT_MS),
            request_timeout: Duration::from_millis(defaults::REQUEST_TIMEOUT_MS),
            body_timeout: Duration::from_millis(defaults::BODY_TIMEOUT_MS),
            shutdown_grace: Duration::from_millis(defaults::SHUTDOWN_GRACE_MS),
            max_body_bytes: defaults::MAX_BODY_BYTES,
            rate_limits: None,
            proxies: Vec::new(),
            health: HealthRules::default(),
            configuration: None,
            token_lives: Lives::default(),
            session_life: Duration::from_millis(defaults::SESSION_LIFE_MS),
            session_idle: Duration::from_millis(defaults::SESSION_IDLE_MS),
            audits_v1: false,
        }
    }
}

impl Options {
    /// Where to listen; port 0 lets the operating system choose one.
    pub fn listen(self, listen: SocketAddr) -> Self {
        Self { listen, ..self }
    }

    /// Serves TLS with this certificate chain and key, both PEM files.
    pub fn tls(self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { tls: Some(Tls { certificate: certificate.into(), key: key.into() }), ..self }
    }

    /// Lets the server listen where others can reach it although it has no TLS or no token yet. Requests need a
    /// token all the same.
    pub fn insecure(self, insecure: bool) -> Self {
        Self { insecure, ..self }
    }

    /// Most connections that are open at once. Further ones get a place of a small reserve, in which only probes and
    /// admins without a tenant are served; others are answered with `CONNECTIONS_FULL`.
    pub fn max_connections(self, max_connections: usize) -> Self {
        Self { max_connections: max_connections.max(1), ..self }
    }

    /// File descriptors that connections take at most, those of the reserve included.
    pub fn descriptors(&self) -> usize {
        self.max_connections + places::reserve(self.max_connections)
    }

    /// The same options with no more connections than so many file descriptors allow, the reserve included.
    pub fn within_descriptors(self, most: usize) -> Self {
        let max_connections = self.max_connections.min(places::most_within(most));
        Self { max_connections, ..self }
    }

    /// How many connections are open at once, beside the reserve.
    pub fn connections(&self) -> usize {
        self.max_connections
    }

    /// Most connections of one address, or of one IPv6 network of 64 bits, outside of the reserve. Addresses of your own
    /// [proxies](Self::proxies) have no limit of their own.
    pub fn max_connections_per_address(self, max_connections_per_address: usize) -> Self {
        Self { max_connections_per_address: max_connections_per_address.max(1), ..self }
    }

    /// Share of one token in the streams, and in as many requests at once as there may be connections, in percent.
    pub fn token_share(self, token_share: u8) -> Self {
        Self { token_share: token_share.clamp(1, 100), ..self }
    }

    /// The same of all tokens of a tenant together.
    pub fn tenant_share(self, tenant_share: u8) -> Self {
        Self { tenant_share: tenant_share.clamp(1, 100), ..self }
    }

    /// How long a client may take to shake hands and to send the headers of a request, and how long a connection
    /// may be idle between two.
    pub fn header_timeout(self, header_timeout: Duration) -> Self {
        Self { header_timeout, ..self }
    }

    /// How long a request may take that does not stream its answer.
    pub fn request_timeout(self, request_timeout: Duration) -> Self {
        Self { request_timeout, ..self }
    }

    /// How long a body may take to arrive, and how long a client may take nothing of an answer.
    pub fn body_timeout(self, body_timeout: Duration) -> Self {
        Self { body_timeout, ..self }
    }

    /// How long requests that are under way may take to finish once the server was told to stop.
    pub fn shutdown_grace(self, shutdown_grace: Duration) -> Self {
        Self { shutdown_grace, ..self }
    }

    /// Rate limits that requests pass before anything else is done for them, also before their token is looked at. Probes,
    /// `/metrics`, and calls of the API that take access or work away do not pass them. The client of a request
    /// is known by its [`Peer`](mainstay_guards::http::Peer).
    pub fn rate_limits(self, rate_limits: RateLimitLayer<Body>) -> Self {
        Self { rate_limits: Some(rate_limits), ..self }
    }

    /// Where your own proxies are. The console believes them, and nobody else, that a request was passed on under another name
    /// and that the browser spoke TLS. They may open as many connections as there is room for.
    pub fn proxies(self, proxies: impl IntoIterator<Item = Range>) -> Self {
        Self { proxies: proxies.into_iter().collect(), ..self }
    }

    /// From when on something is wrong, for probes and `/health`.
    pub fn health(self, health: HealthRules) -> Self {
        Self { health, ..self }
    }

    /// What admins are shown as the configuration of this process. Whoever gives it has masked what is nobody's business.
    pub fn configuration(self, configuration: serde_json::Value) -> Self {
        Self { configuration: Some(configuration), ..self }
    }

    /// Length of life of tokens that are made through the API.
    pub fn token_lives(self, token_lives: Lives) -> Self {
        Self { token_lives, ..self }
    }

    /// Longest time of a session of the console, and longest time without a request. A page that is open and follows what changes
    /// makes no request in this sense.
    pub fn sessions(self, life: Duration, idle: Duration) -> Self {
        Self { session_life: life, session_idle: idle, ..self }
    }

    /// Whether calls below `/v1` that change something are written into the audit. Off by default: each costs a row, and rows
    /// are written one after another.
    pub fn audit_v1(self, audits_v1: bool) -> Self {
        Self { audits_v1, ..self }
    }

    /// How large a body may be; eight times that on routes that take batches.
    pub fn max_body_bytes(self, max_body_bytes: usize) -> Self {
        Self { max_body_bytes, ..self }
    }
}
