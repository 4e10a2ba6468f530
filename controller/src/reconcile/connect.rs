//! A byte stream to the upstream, over TCP, TLS or a unix socket.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::upstream::address;

const WITHIN: Duration = Duration::from_secs(10);

/// Both directions of a connection.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Knows the way.
pub(super) struct Connect {
    shown: String,
    authority: String,
    prefix: String,
    place: Place,
}

enum Place {
    Unix(PathBuf),
    Tcp { host: String, port: u16, tls: Option<(TlsConnector, ServerName<'static>)> },
}

/// Why there is no way.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address is none.
    #[error("'{0}' is no upstream; write http://HOST:PORT, https://HOST or unix:/PATH")]
    Address(String),
    /// No root to trust.
    #[error("no CA certificates found; install ca-certificates")]
    NoRoots,
    /// The TLS library.
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
    /// Nobody listens, or not in time.
    #[error("nobody answers at the upstream {address}")]
    Unreachable {
        /// Where.
        address: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl ConnectError {
    pub(super) fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}

impl Connect {
    pub(super) fn to(url: &str) -> Result<Self, ConnectError> {
        let wrong = || ConnectError::Address(url.to_owned());
        if let Some(path) = url.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return Ok(Self {
                shown: url.to_owned(),
                authority: "localhost".to_owned(),
                prefix: String::new(),
                place: Place::Unix(path.into()),
            });
        }
        let (host, port) = address(url).ok_or_else(wrong)?;
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let visible = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'?' && byte != b'#');
        if !visible(authority) || !visible(path) {
            return Err(wrong());
        }
        let path = path.trim_end_matches('/');
        let prefix = if path.is_empty() { String::new() } else { format!("/{path}") };
        let tls = if scheme == "https" {
            let name = ServerName::try_from(host.to_owned()).map_err(|_| wrong())?;
            Some((tls()?, name))
        } else {
            None
        };
        let place = Place::Tcp { host: host.to_owned(), port, tls };
        Ok(Self { shown: url.to_owned(), authority: authority.to_owned(), prefix, place })
    }

    /// The address, as it was given; it holds no credentials.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// The value of the `host` header.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    /// What stands before every path.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) async fn connect(&self) -> Result<Box<dyn Stream>, ConnectError> {
        let connected = timeout(WITHIN, self.stream()).await;
        let late = |_| Err(io::Error::new(io::ErrorKind::TimedOut, format!("not within {} s", WITHIN.as_secs())));
        connected
            .unwrap_or_else(late)
            .map_err(|source| ConnectError::Unreachable { address: self.shown.clone(), source })
    }

    async fn stream(&self) -> io::Result<Box<dyn Stream>> {
        match &self.place {
            Place::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
            Place::Tcp { host, port, tls } => {
                let tcp = TcpStream::connect((host.as_str(), *port)).await?;
                Ok(match tls {
                    None => Box::new(tcp),
                    Some((tls, name)) => Box::new(tls.connect(name.clone(), tcp).await?),
                })
            }
        }
    }
}

fn tls() -> Result<TlsConnector, ConnectError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(ConnectError::NoRoots);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(ConnectError::Tls)?;
    Ok(TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_sidecar() {
        let rows = [
            ("http://127.0.0.1:4000", Some(("127.0.0.1:4000", ""))),
            ("http://127.0.0.1:4000/", Some(("127.0.0.1:4000", ""))),
            ("http://llm.example/llm/", Some(("llm.example", "/llm"))),
            ("unix:/run/up.sock", Some(("localhost", ""))),
            ("http://host/a?b=c", None),
            ("http://host/a b", None),
            ("http://me:pw@host", None),
            ("ftp://host", None),
        ];
        for (url, want) in rows {
            let connect = Connect::to(url).ok();
            assert_eq!(connect.as_ref().map(|it| (it.authority(), it.prefix())), want, "{url}");
        }
    }
}
