//! The connections of all functions: kept while they are used, shared by those who call the same host.

use super::connect::{ConnectError, Connector, Resolver, SystemResolver};
use crate::egress::Egress;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use mainstay_core::failure::{Class, Failure};
use rustls::{ClientConfig, RootCertStore};
use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long a connection is kept without use. Shorter than the five seconds after which Node's servers hang up, so
/// that a request seldom meets a connection that is just being closed.
const IDLE: Duration = Duration::from_secs(4);
/// Most connections to one host that are kept without use.
const MAX_IDLE: usize = 32;
/// Longest head of a reply.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Makes HTTP calls within the egress rules. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    pool: legacy::Client<Connector, Full<Bytes>>,
    trusts_somebody: bool,
}

impl Client {
    /// A client that asks the operating system for addresses and trusts whom the machine trusts.
    pub fn new(egress: Arc<Egress>) -> Self {
        static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
        let roots = ROOTS.get_or_init(|| {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            roots
        });
        Self::with(egress, Arc::new(SystemResolver), roots.clone())
    }

    /// A client with a resolver and trusted authorities of one's own.
    pub fn with(egress: Arc<Egress>, resolver: Arc<dyn Resolver>, roots: RootCertStore) -> Self {
        let trusts_somebody = !roots.is_empty();
        let connector = Connector { egress, resolver, tls: Arc::new(tls(roots)) };
        let pool = legacy::Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MAX_IDLE)
            .pool_timer(TokioTimer::new())
            .http1_max_buf_size(MAX_HEAD_BYTES)
            .build(connector);
        Self { pool, trusts_somebody }
    }

    /// Whether `https` can work at all.
    pub(super) fn trusts_somebody(&self) -> bool {
        self.trusts_somebody
    }

    /// Sends a request and waits for the head of the reply.
    pub(super) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Failure> {
        self.pool.request(request).await.map_err(|error| failure(&error))
    }
}

fn tls(roots: RootCertStore) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring speaks the versions that rustls does")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config
}

/// What went wrong on the way: for good where the egress rules say no, for now in all other cases.
pub(super) fn failure(error: &(dyn Error + 'static)) -> Failure {
    let (mut chain, mut next) = (Vec::new(), Some(error));
    while let Some(error) = next {
        chain.push(error);
        next = error.source();
    }
    let refused = chain.iter().find_map(|error| match error.downcast_ref() {
        Some(refused @ ConnectError::Refused { .. }) => Some(refused),
        _ => None,
    });
    if let Some(refused) = refused {
        return Failure::new(Class::AuthorizationFailure, refused.to_string());
    }
    let is_late = |error: &&(dyn Error + 'static)| {
        error
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::TimedOut)
    };
    let class =
        if chain.iter().any(is_late) { Class::NetworkTimeout } else { Class::TemporaryServiceUnavailable };
    let reasons: Vec<String> = chain.iter().map(ToString::to_string).collect();
    Failure::new(class, reasons.join(": "))
}
