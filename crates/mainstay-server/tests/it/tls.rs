//! TLS: a client that trusts the certificate is served, and nobody is served without.

use crate::client::{get, soon};
use crate::logged;
use crate::running::{Running, options};
use mainstay_server::{Options, Server, equipped};
use mainstay_testkit::stores::{Kind, Place};
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

struct Certificate {
    folder: TempDir,
    made: rcgen::CertifiedKey<rcgen::KeyPair>,
}

impl Certificate {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let certificate = Self { folder, made };
        std::fs::write(certificate.chain(), certificate.made.cert.pem()).unwrap();
        std::fs::write(certificate.key(), certificate.made.signing_key.serialize_pem()).unwrap();
        certificate
    }

    fn chain(&self) -> PathBuf {
        self.folder.path().join("chain.pem")
    }

    fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    /// A client that trusts this certificate and no other.
    fn connector(&self) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.made.cert.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        TlsConnector::from(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
    }
}

#[tokio::test]
async fn a_client_that_trusts_the_certificate_is_served_and_plain_text_is_not() {
    let right = Certificate::new();
    let server = Running::start(options().tls(right.chain(), right.key())).await;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = TcpStream::connect(server.address).await.unwrap();
    let mut stream = right.connector().connect(name.clone(), stream).await.unwrap();
    let answer = get("/v1/test/who").send_over(&mut stream, server.address).await;
    assert_eq!(answer.json()["role"], "admin");
    assert_eq!(answer.header("strict-transport-security"), Some("max-age=31536000"));

    let stream = TcpStream::connect(server.address).await.unwrap();
    assert!(Certificate::new().connector().connect(name, stream).await.is_err(), "another certificate");
    let mut plain = TcpStream::connect(server.address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut plain, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let _ = plain.read_to_end(&mut rest).await;
    assert!(!String::from_utf8_lossy(&rest).contains("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_client_that_never_shakes_hands_is_let_go() {
    let certificate = Certificate::new();
    let options = options().tls(certificate.chain(), certificate.key());
    let server = Running::start(options.header_timeout(Duration::from_millis(50))).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let mut rest = Vec::new();
    soon(silent.read_to_end(&mut rest)).await.unwrap();
    assert_eq!(rest, b"");
}

#[tokio::test]
async fn a_changed_certificate_is_shown_without_a_restart_and_a_broken_one_is_not() {
    logged::start();
    let (first, second) = (Certificate::new(), Certificate::new());
    let server = Running::start(options().tls(first.chain(), first.key())).await;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let shakes_hands = async |with: &Certificate| {
        let stream = TcpStream::connect(server.address).await.unwrap();
        with.connector().connect(name.clone(), stream).await.is_ok()
    };
    assert!(shakes_hands(&first).await && !shakes_hands(&second).await);
    // A chain without its key is the middle of a change; the one before stays.
    std::fs::copy(second.chain(), first.chain()).unwrap();
    let chain = first.chain().display().to_string();
    let is_logged =
        |what: &str| logged::text().lines().any(|line| line.contains(what) && line.contains(&chain));
    soon(async {
        while !is_logged("cannot be used") {
            assert!(shakes_hands(&first).await);
        }
    })
    .await;
    assert!(shakes_hands(&first).await);
    std::fs::copy(second.key(), first.key()).unwrap();
    soon(async { while !shakes_hands(&second).await {} }).await;
    assert!(!shakes_hands(&first).await && is_logged("certificate reloaded"));
}

#[cfg(unix)]
#[tokio::test]
async fn a_key_that_others_can_read_is_reported() {
    use std::os::unix::fs::PermissionsExt;
    logged::start();
    let (open, private) = (Certificate::new(), Certificate::new());
    for (certificate, mode) in [(&open, 0o640), (&private, 0o600)] {
        std::fs::set_permissions(certificate.key(), std::fs::Permissions::from_mode(mode)).unwrap();
        drop(Running::start(options().tls(certificate.chain(), certificate.key())).await);
    }
    let text = logged::text();
    let reports = |certificate: &Certificate| {
        let path = certificate.key().display().to_string();
        text.lines()
            .filter(|line| line.contains("TLS key can be read by others") && line.contains(&path))
            .count()
    };
    assert_eq!((reports(&open), reports(&private)), (1, 0));
}

#[tokio::test]
async fn a_key_that_does_not_belong_to_the_certificate_is_refused() {
    let (one, other) = (Certificate::new(), Certificate::new());
    let place = Place::new(Kind::SqliteMemory);
    let store = equipped(place.options()).open().await.unwrap();
    let bind = async |options: Options| Server::bind(options, store.clone()).await.err().unwrap();
    assert_eq!(bind(options().tls(one.chain(), other.key())).await.code(), "SERVER_TLS_INVALID");
    assert_eq!(bind(options().tls(one.key(), one.key())).await.code(), "SERVER_TLS_INVALID");
    assert_eq!(bind(options().tls(one.chain(), one.chain())).await.code(), "SERVER_TLS_INVALID");
}
