//! `https`: the line is private, and the other side is who the URL names.

use super::{call, client, loopback, server};
use futures_util::future::BoxFuture;
use mainstay_core::failure::Class;
use mainstay_work::http::{Client, ConfigError, Failure, HttpConfig, HttpFunction, Resolver, SystemResolver};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Every name is this machine.
struct Here;

impl Resolver for Here {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async { Ok(vec![Ipv4Addr::LOCALHOST.into()]) })
    }
}

/// A server that is named `function.example`; its port and its certificate.
async fn secure() -> (u16, CertificateDer<'static>) {
    let made =
        rcgen::generate_simple_self_signed(["function.example".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            if server::receive(&mut stream).await.is_some() {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1").await;
            }
        }
    });
    (port, certificate)
}

fn trusting(certificate: &CertificateDer<'static>) -> Client {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    Client::with(loopback(), Arc::new(Here), roots)
}

async fn reach(client: &Client, host: &str, port: u16) -> Result<String, Failure> {
    let config = HttpConfig::new(format!("https://{host}:{port}/send"));
    let function = HttpFunction::with_client(config, client.clone()).unwrap();
    call(&function).await.map(|value| value.get().to_owned())
}

#[tokio::test]
async fn a_server_that_proves_its_name_is_called() {
    let (port, certificate) = secure().await;
    assert_eq!(reach(&trusting(&certificate), "function.example", port).await.unwrap(), "1");
    assert_eq!(reach(&trusting(&certificate), "127.0.0.1", port).await.unwrap(), "1");
}

#[tokio::test]
async fn one_that_proves_another_name_is_not() {
    let (port, certificate) = secure().await;
    let failure = reach(&trusting(&certificate), "other.example", port).await.unwrap_err();
    assert_eq!(failure.class(), Class::TemporaryServiceUnavailable);
    assert!(failure.message().contains("no TLS with other.example"), "{failure}");
}

#[tokio::test]
async fn one_that_nobody_vouches_for_is_not() {
    let ((port, _), (_, another)) = (secure().await, secure().await);
    let failure = reach(&trusting(&another), "function.example", port).await.unwrap_err();
    assert!(failure.message().contains("no TLS with function.example"), "{failure}");
}

#[test]
fn https_without_anybody_to_trust_is_refused_at_once() {
    let nobody = client(loopback(), Arc::new(SystemResolver));
    let refused = HttpFunction::with_client(HttpConfig::new("https://example.com/"), nobody).unwrap_err();
    assert_eq!(refused, ConfigError::NobodyTrusted);
}
