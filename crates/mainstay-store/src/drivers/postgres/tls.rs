//! TLS to the server: asked for in the URL, and then always verified.
//!
//! `sslmode=require` here is what libpq calls `verify-full`: an encrypted line to nobody knows whom protects against
//! nobody who can redirect it. `sslrootcert=FILE` names the authority of a server whose certificate is not public.

use crate::{Error, Result};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;

/// What a URL says about TLS.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The URL without what tokio-postgres does not know.
    pub(super) url: String,
    pub(super) is_required: bool,
    pub(super) authority: Option<String>,
}

/// Takes what is about TLS out of a URL.
pub(super) fn read(url: &str) -> std::result::Result<Wanted, String> {
    let Some((base, query)) = url.split_once('?') else {
        return Ok(Wanted { url: url.to_owned(), ..Wanted::default() });
    };
    let mut wanted = Wanted::default();
    let mut rest = Vec::new();
    for option in query.split('&') {
        match option.split_once('=') {
            Some(("sslmode", "disable" | "prefer")) => {}
            Some(("sslmode", "require" | "verify-ca" | "verify-full")) => wanted.is_required = true,
            Some(("sslmode", other)) => {
                return Err(format!(
                    "has sslmode={other}; it is one of disable, prefer, require, verify-full"
                ));
            }
            Some(("sslrootcert", path)) => wanted.authority = Some(path.replace("%2F", "/")),
            _ => rest.push(option),
        }
    }
    let separator = if rest.is_empty() { "" } else { "?" };
    wanted.url = format!("{base}{separator}{}", rest.join("&"));
    Ok(wanted)
}

/// Makes the connector for it.
pub(super) fn connector(wanted: &Wanted) -> Result<MakeRustlsConnect> {
    let roots = if wanted.is_required { roots(wanted.authority.as_deref())? } else { RootCertStore::empty() };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = builder.map_err(|error| failed("TLS", error.to_string()))?;
    Ok(MakeRustlsConnect::new(config.with_root_certificates(roots).with_no_client_auth()))
}

fn roots(authority: Option<&str>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let Some(path) = authority else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return if roots.is_empty() {
            Err(failed(
                "the machine's certificates",
                "there are none; name the authority with sslrootcert".to_owned(),
            ))
        } else {
            Ok(roots)
        };
    };
    let certificates =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    for certificate in certificates.map_err(|error| failed(path, error.to_string()))? {
        roots.add(certificate).map_err(|error| failed(path, error.to_string()))?;
    }
    if roots.is_empty() { Err(failed(path, "it holds no certificate".to_owned())) } else { Ok(roots) }
}

fn failed(what: &str, reason: String) -> Error {
    Error::Open { what: what.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_out_what_is_about_tls_and_nothing_else() {
        let plain = read("postgres://u@h/d").unwrap();
        assert_eq!((plain.url.as_str(), plain.is_required), ("postgres://u@h/d", false));
        let asked =
            read("postgres://u@h/d?sslmode=verify-full&application_name=x&sslrootcert=%2Fca.pem").unwrap();
        assert_eq!(asked.url, "postgres://u@h/d?application_name=x");
        assert!(asked.is_required);
        assert_eq!(asked.authority.as_deref(), Some("/ca.pem"));
        assert_eq!(read("postgres://u@h/d?sslmode=require").unwrap().url, "postgres://u@h/d");
        assert!(!read("postgres://u@h/d?sslmode=disable").unwrap().is_required);
        assert!(read("postgres://u@h/d?sslmode=allways").unwrap_err().contains("sslmode=allways"));
    }

    #[test]
    fn an_authority_that_cannot_be_read_is_named() {
        let wanted =
            Wanted { is_required: true, authority: Some("/nowhere/ca.pem".to_owned()), ..Wanted::default() };
        let error = connector(&wanted).err().unwrap();
        assert!(error.to_string().contains("/nowhere/ca.pem"), "{error}");
    }
}
