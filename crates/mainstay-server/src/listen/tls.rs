//! The certificate that the server shows. Changed files are read again, so that a renewed certificate needs no restart.

use crate::options::Tls;
use crate::{Error, Result};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt::Display;
use std::fs::Metadata;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio_rustls::TlsAcceptor;

/// Interval between looks at the files.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The certificate and its key.
pub(crate) struct Certificate {
    files: Tls,
    current: Mutex<Current>,
}

struct Current {
    acceptor: TlsAcceptor,
    stamps: Stamps,
    looked: Instant,
}

/// Modification time and length of both files; nothing for a missing file.
type Stamps = [Option<(SystemTime, u64)>; 2];

impl Certificate {
    /// Reads the certificate and its key, and checks that they belong together.
    pub(crate) fn open(files: Tls) -> Result<Self> {
        warn_if_others_can_read(&files.key);
        let stamps = stamps(&files);
        let current = Current { acceptor: acceptor(&files)?, stamps, looked: Instant::now() };
        Ok(Self { files, current: Mutex::new(current) })
    }

    /// Acceptor of new connections. Files that changed are read first; while they cannot be used, the
    /// certificate that was read before stays.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.looked.elapsed() >= LOOK_EVERY {
            current.looked = Instant::now();
            let stamps = stamps(&self.files);
            if stamps != current.stamps {
                current.stamps = stamps;
                let certificate = self.files.certificate.display();
                match acceptor(&self.files) {
                    Ok(acceptor) => {
                        current.acceptor = acceptor;
                        warn_if_others_can_read(&self.files.key);
                        tracing::info!(%certificate, "TLS certificate reloaded");
                    }
                    Err(error) => {
                        tracing::warn!(%certificate, %error, "changed TLS certificate cannot be used; the previous one stays");
                    }
                }
            }
        }
        current.acceptor.clone()
    }
}

fn stamps(files: &Tls) -> Stamps {
    let stamp = |metadata: Metadata| Some((metadata.modified().ok()?, metadata.len()));
    [&files.certificate, &files.key].map(|file| std::fs::metadata(file).ok().and_then(stamp))
}

/// Reports a key that the group or others can read.
fn warn_if_others_can_read(key: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let Ok(metadata) = std::fs::metadata(key) else { return };
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            let (path, mode) = (key.display(), format!("{mode:04o}"));
            tracing::warn!(%path, mode, "TLS key can be read by others; set its mode to 0600");
        }
    }
    #[cfg(not(unix))]
    let _ = key;
}

fn acceptor(tls: &Tls) -> Result<TlsAcceptor> {
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
