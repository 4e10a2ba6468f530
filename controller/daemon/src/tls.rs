//! The TLS of the daemon's listeners.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use zeroize::Zeroizing;

/// The files of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and its chain of issuers, as PEM.
    pub certificate: PathBuf,
    /// Private key, as PEM.
    pub key: PathBuf,
}

/// Reason that TLS cannot be offered.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "their messages say it")]
pub enum TlsSetupError {
    #[error("cannot read {}", .0.display())]
    Io(PathBuf, #[source] io::Error),
    #[error("other users can read the key {path} (mode {1:04o}); chmod 600 it", path = .0.display())]
    OpenKey(PathBuf, u32),
    #[error("{} holds no certificate in PEM form", .0.display())]
    NoCertificate(PathBuf),
    #[error("{} holds no private key in PEM form", .0.display())]
    NoKey(PathBuf),
    #[error("the key {} does not fit the certificate", .0.display())]
    Unfit(PathBuf, #[source] rustls::Error),
}

/// The TLS of listeners.
#[derive(Clone)]
pub struct Tls {
    /// Accepts connections.
    pub acceptor: TlsAcceptor,
    /// Names in the certificate, except names with a wildcard.
    pub names: Vec<String>,
}

/// Reads both files.
///
/// # Errors
/// [`TlsSetupError`]
pub fn read(files: &TlsFiles) -> Result<Tls, TlsSetupError> {
    let TlsFiles { certificate, key } = files;
    let chain = CertificateDer::pem_slice_iter(
        &std::fs::read(certificate).map_err(|e| TlsSetupError::Io(certificate.clone(), e))?,
    )
    .collect::<Result<Vec<_>, _>>()
    .ok()
    .filter(|chain| !chain.is_empty())
    .ok_or_else(|| TlsSetupError::NoCertificate(certificate.clone()))?;
    let private = PrivateKeyDer::from_pem_slice(&read_private(key)?).map_err(|_| TlsSetupError::NoKey(key.clone()))?;
    let names = names(&chain[0]);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private));
    let mut config = config.map_err(|error| TlsSetupError::Unfit(key.clone(), error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Tls { acceptor: TlsAcceptor::from(Arc::new(config)), names })
}

fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let parsed = webpki::EndEntityCert::try_from(certificate);
    let names = parsed.map(|parsed| parsed.valid_dns_names().map(str::to_owned).collect::<Vec<_>>());
    names.unwrap_or_default().into_iter().filter(|name| !name.contains('*')).collect()
}

/// Reads a file that only its owner may read.
fn read_private(path: &Path) -> Result<Zeroizing<Vec<u8>>, TlsSetupError> {
    let failed = |error| TlsSetupError::Io(path.to_owned(), error);
    let mut file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(TlsSetupError::OpenKey(path.to_owned(), mode));
    }
    let mut content = Zeroizing::new(Vec::new());
    file.read_to_end(&mut content).map_err(failed)?;
    Ok(content)
}
