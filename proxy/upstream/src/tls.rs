//! The TLS client: trusted roots and configuration.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

/// Reason why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file of `--ca` cannot be read.
    #[error("cannot read the file of certificates")]
    File(#[source] io::Error),
    /// The file of `--ca` is not valid PEM.
    #[error("cannot read certificates")]
    Certificates(#[source] pem::Error),
    /// No root certificate was found.
    #[error("no CA certificates found; install ca-certificates or give --ca FILE")]
    NoRoots,
    /// The TLS library refuses its configuration.
    #[error("cannot set up TLS")]
    Library(#[source] rustls::Error),
}

/// Returns a client that trusts the certificates of `ca`, or without it the roots of the system: those that
/// `SSL_CERT_FILE` and `SSL_CERT_DIR` name, or the distribution's.
pub(crate) fn client(ca: Option<&Path>) -> Result<TlsConnector, TlsError> {
    match ca {
        Some(path) => {
            let certificates: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
            trusting(certificates.map_err(|error| match error {
                pem::Error::Io(error) => TlsError::File(error),
                error => TlsError::Certificates(error),
            })?)
        }
        None => system(),
    }
}

/// Returns the client that trusts the system's roots. They are read once: reading takes milliseconds.
fn system() -> Result<TlsConnector, TlsError> {
    static CLIENT: Mutex<Option<TlsConnector>> = Mutex::new(None);
    let mut client = CLIENT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(client) = &*client {
        return Ok(client.clone());
    }
    let read = trusting(rustls_native_certs::load_native_certs().certs)?;
    Ok(client.insert(read).clone())
}

fn trusting(certificates: Vec<CertificateDer<'static>>) -> Result<TlsConnector, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates);
    if roots.is_empty() {
        return Err(TlsError::NoRoots);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(TlsError::Library)?.with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
