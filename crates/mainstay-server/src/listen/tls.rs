//! The certificate that the server shows.

use crate::options::Tls;
use crate::{Error, Result};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// Reads the certificate and its key, and checks that they belong together.
pub(crate) fn acceptor(tls: &Tls) -> Result<TlsAcceptor> {
    let (certificate, key) = (&tls.certificate, &tls.key);
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain: Vec<_> = chain.map_err(|error| bad(certificate, &error))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key, &error))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| bad(certificate, &error))?;
    let config = builder.with_no_client_auth().with_single_cert(chain, key);
    let mut config = config.map_err(|error| bad(certificate, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn bad(file: &Path, reason: &impl Display) -> Error {
    Error::Tls { what: file.display().to_string(), reason: reason.to_string() }
}
