//! TLS of the TCP listeners.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::test_daemon::{TestDaemon, exchange};
use crate::tls::{TlsFiles, TlsSetupError, read};

fn certify(directory: &Path) -> (PathBuf, PathBuf) {
    let (certificate, key) = (directory.join("leaf.pem"), directory.join("leaf.key"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=box", "-addext"])
        .args(["subjectAltName=DNS:box.example", "-addext", "basicConstraints=critical,CA:FALSE", "-out"])
        .arg(&certificate)
        .arg("-keyout")
        .arg(&key)
        .output()
        .expect("openssl is installed");
    assert!(made.status.success(), "{made:?}");
    fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("it is ours");
    (certificate, key)
}

#[tokio::test]
async fn a_certified_name_is_served_over_tls() {
    let scratch = tempfile::tempdir().expect("there is room");
    let (certificate, key) = certify(scratch.path());
    let daemon = TestDaemon::with(|settings| {
        settings.listen = vec!["0.0.0.0:0".to_owned()];
        settings.tls_cert = Some(certificate.clone());
        settings.tls_key = Some(key);
    })
    .await;
    let port = daemon.address().port();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&certificate).expect("it was made")).expect("it is one");
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("they are known")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    for (host, status) in [("box.example", 200), ("127.0.0.1", 200), ("evil.example", 421), ("0.0.0.0", 421)] {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("it listens");
        let name = ServerName::try_from("box.example").expect("a name");
        let stream = connector.connect(name, stream).await.expect("it is certified");
        let host = format!("Host: {host}:{port}");
        assert_eq!(exchange(stream, "GET", "/alive", &[&host], None).await.status, status, "{host}");
    }
    let plain = TcpStream::connect(("127.0.0.1", port)).await.expect("it listens");
    let answer = exchange(plain, "GET", "/alive", &[&format!("Host: box.example:{port}")], None).await;
    assert_eq!(answer.status, 0, "nothing is served without TLS");
}

#[test]
fn an_open_key_is_refused() {
    let scratch = tempfile::tempdir().expect("there is room");
    let (certificate, key) = certify(scratch.path());
    let files = TlsFiles { certificate: certificate.clone(), key: key.clone() };
    assert_eq!(read(&files).map(|tls| tls.names).expect("it is whole"), ["box.example"]);
    for mode in [0o640, 0o604] {
        fs::set_permissions(&key, Permissions::from_mode(mode)).expect("it is ours");
        assert!(matches!(read(&files).map(|_| ()), Err(TlsSetupError::OpenKey(..))));
    }
    let swapped = TlsFiles { certificate, key: scratch.path().join("none") };
    assert!(matches!(read(&swapped).map(|_| ()), Err(TlsSetupError::Io(..))));
}
