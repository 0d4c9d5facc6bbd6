//! One connection, from the first byte to the last.

use super::impatient::Impatient;
use crate::app::App;
use crate::observe::MAX_HEADER_BYTES;
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use mainstay_guards::http::Peer;
use std::net::SocketAddr;
use std::pin::pin;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
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
    pub(crate) tls: Option<TlsAcceptor>,
}

impl Service {
    /// Serves a connection until its end. Whatever goes wrong with it is its client's matter.
    pub(crate) async fn serve(self, stream: TcpStream, peer: SocketAddr) {
        let _open = Open::new(self.app.clone());
        // Answers are written at once; waiting for more would only delay small ones.
        let _ = stream.set_nodelay(true);
        let stream = Impatient::new(stream, self.app.options().body_timeout);
        let Some(tls) = self.tls.clone() else { return self.speak(stream, peer).await };
        let limit = self.app.options().header_timeout;
        let shaken = tokio::select! {
            shaken = tokio::time::timeout(limit, tls.accept(stream)) => shaken,
            () = self.app.shutdown().requested() => return,
        };
        match shaken {
            Ok(Ok(stream)) => self.speak(stream, peer).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS"),
            Err(_) => tracing::debug!(%peer, "TLS took too long"),
        }
    }

    async fn speak(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: SocketAddr) {
        let Self { app, router, .. } = self;
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(Peer(peer.ip()));
            router.clone().oneshot(request)
        });
        let mut connection = pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(app.options().header_timeout)
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
