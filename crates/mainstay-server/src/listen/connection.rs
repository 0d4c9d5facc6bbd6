//! One connection, from the first byte to the last.

use super::impatient::Impatient;
use super::places::Place;
use super::tls::Certificate;
use crate::app::App;
use crate::observe::MAX_HEADER_BYTES;
use axum::Router;
use axum::body::Body;
use axum::http::header::STRICT_TRANSPORT_SECURITY;
use axum::http::{HeaderValue, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use mainstay_guards::http::Peer;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tower::ServiceExt;

/// Many more headers than any client sends; each costs memory before the size is known.
const MAX_HEADERS: usize = 100;
/// hyper refuses what is larger without a word; a bit above our own limit, below which we can say why.
const MAX_BUFFER_BYTES: usize = 4 * MAX_HEADER_BYTES;

/// What every connection needs.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) app: App,
    pub(crate) router: Router,
    pub(crate) tls: Option<Arc<Certificate>>,
}

/// Longest time for which a connection of the reserve is waited for: its place is scarce.
pub(crate) const RESERVED_TIMEOUT: Duration = Duration::from_secs(2);
/// Browsers that have seen this keep to TLS for a year.
const HSTS: HeaderValue = HeaderValue::from_static("max-age=31536000");

impl Service {
    /// Serves a connection until its end. Whatever goes wrong with it is its client's matter.
    pub(crate) async fn serve(self, stream: TcpStream, peer: SocketAddr, place: Place) {
        let place = Arc::new(place);
        tokio::select! {
            () = self.begin(stream, peer, place.clone()) => {}
            () = place.evicted() => tracing::debug!(%peer, "a reserved place was given to another connection"),
        }
    }

    fn header_timeout(&self, place: &Place) -> Duration {
        self.limit(place, self.app.options().header_timeout)
    }

    fn limit(&self, place: &Place, usual: Duration) -> Duration {
        if place.is_reserved() { usual.min(RESERVED_TIMEOUT) } else { usual }
    }

    async fn begin(self, stream: TcpStream, peer: SocketAddr, place: Arc<Place>) {
        let _open = Open::new(self.app.clone());
        // Answers are written at once; waiting for more would only delay small ones.
        let _ = stream.set_nodelay(true);
        let stream = Impatient::new(stream, self.limit(&place, self.app.options().body_timeout));
        let Some(tls) = self.tls.clone() else { return self.speak(stream, peer, place).await };
        let limit = self.header_timeout(&place);
        let shaken = tokio::select! {
            shaken = tokio::time::timeout(limit, tls.acceptor().accept(stream)) => shaken,
            () = self.app.shutdown().requested() => return,
        };
        match shaken {
            Ok(Ok(stream)) => self.speak(stream, peer, place).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS"),
            Err(_) => tracing::debug!(%peer, "TLS took too long"),
        }
    }

    async fn speak(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: SocketAddr,
        place: Arc<Place>,
    ) {
        let (header_timeout, reserved) = (self.header_timeout(&place), place.reserved());
        let is_reserved = reserved.is_some();
        let Self { app, router, tls } = self;
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(Peer(peer.ip()));
            if let Some(reserved) = &reserved {
                request.extensions_mut().insert(reserved.clone());
            }
            let (answer, is_secret) = (router.clone().oneshot(request), tls.is_some());
            async move {
                let mut answer = answer.await?;
                if is_secret {
                    answer.headers_mut().insert(STRICT_TRANSPORT_SECURITY, HSTS);
                }
                Ok::<_, Infallible>(answer)
            }
        });
        let mut connection = pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(header_timeout)
                .keep_alive(!is_reserved)
                .max_headers(MAX_HEADERS)
                .max_buf_size(MAX_BUFFER_BYTES)
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades()
        );
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = app.shutdown().requested() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%peer, %error, "a connection broke");
        }
    }
}

/// Counts a connection as open for as long as it lives.
struct Open(App);

impl Open {
    fn new(app: App) -> Self {
        app.figures().connections.add(1);
        Self(app)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.figures().connections.add(-1);
    }
}
