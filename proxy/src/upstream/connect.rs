//! A byte stream to the upstream, over TCP, TLS or a unix socket.
//!
//! Names resolve in this process (hickory): a static glibc binary cannot load NSS modules, and
//! `getaddrinfo` would want a pool of threads.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hickory_resolver::TokioResolver;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::address::{Address, Scheme};

/// Knows how to reach the upstream.
pub struct Connector {
    address: Address,
    resolver: Option<TokioResolver>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// What has to be right before the first connection.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// `/etc/resolv.conf`.
    #[error("cannot read the system's resolver configuration")]
    Resolver(#[source] hickory_resolver::net::NetError),
    /// `--ca`.
    #[error("cannot read certificates")]
    Certificates(#[source] rustls::pki_types::pem::Error),
    /// No root to trust.
    #[error("no CA certificates found; install ca-certificates or give --ca FILE")]
    NoRoots,
    /// A host that no certificate can name.
    #[error("the host is no name that a certificate can hold")]
    ServerName,
    /// The TLS library.
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Connector {
    /// Reads what it will need while files can still be read: roots, resolver configuration.
    ///
    /// # Errors
    /// [`SetupError`]
    pub fn new(address: Address, ca: Option<&Path>) -> Result<Self, SetupError> {
        let tls = match address.scheme {
            Scheme::Https => Some(tls(&address, ca)?),
            Scheme::Http | Scheme::Unix(_) => None,
        };
        let resolver = if address.is_name() { Some(resolver()?) } else { None };
        Ok(Self { address, resolver, tls })
    }

    /// The address it connects to.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Connects. A name is looked up each time, so a moved upstream is found again.
    ///
    /// # Errors
    /// The last address's.
    pub async fn connect(&self) -> io::Result<Stream> {
        if let Scheme::Unix(path) = &self.address.scheme {
            return UnixStream::connect(path).await.map(Stream::Unix);
        }
        let tcp = self.tcp().await?;
        // Requests and answers are written whole; nothing is gained by waiting for more.
        tcp.set_nodelay(true)?;
        match &self.tls {
            None => Ok(Stream::Tcp(tcp)),
            Some((tls, name)) => tls.connect(name.clone(), tcp).await.map(|stream| Stream::Tls(Box::new(stream))),
        }
    }

    async fn tcp(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for ip in self.resolve().await? {
            match TcpStream::connect(SocketAddr::new(ip, self.address.port)).await {
                Ok(tcp) => return Ok(tcp),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn resolve(&self) -> io::Result<Vec<IpAddr>> {
        match &self.resolver {
            None => self.address.host.parse().map(|ip| vec![ip]).map_err(io::Error::other),
            Some(resolver) => resolver
                .lookup_ip(self.address.host.as_str())
                .await
                .map(|found| found.iter().collect())
                .map_err(io::Error::other),
        }
    }
}

fn resolver() -> Result<TokioResolver, SetupError> {
    TokioResolver::builder_tokio().and_then(hickory_resolver::ResolverBuilder::build).map_err(SetupError::Resolver)
}

fn tls(address: &Address, ca: Option<&Path>) -> Result<(TlsConnector, ServerName<'static>), SetupError> {
    let mut roots = RootCertStore::empty();
    let certificates = match ca {
        Some(path) => {
            CertificateDer::pem_file_iter(path).and_then(Iterator::collect).map_err(SetupError::Certificates)?
        }
        None => rustls_native_certs::load_native_certs().certs,
    };
    roots.add_parsable_certificates(certificates);
    if roots.is_empty() {
        return Err(SetupError::NoRoots);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(SetupError::Tls)?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from(address.host.clone()).map_err(|_| SetupError::ServerName)?;
    Ok((TlsConnector::from(Arc::new(config)), name))
}

/// A connected stream.
#[derive(Debug)]
#[allow(missing_docs, reason = "the variants are their names")]
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

macro_rules! each {
    ($self:ident, $stream:ident => $do:expr) => {
        match $self.get_mut() {
            Stream::Tcp($stream) => $do,
            Stream::Unix($stream) => $do,
            Stream::Tls($stream) => $do,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, stream => Pin::new(stream).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, stream => Pin::new(stream).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}
