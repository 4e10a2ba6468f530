//! Connects to an upstream: resolves its name, dials, and negotiates TLS.
//!
//! Names resolve in this process (hickory): a static glibc binary cannot load NSS modules, and
//! `getaddrinfo` would want a pool of threads.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use hickory_resolver::net::NetError;
use hickory_resolver::{ResolverBuilder, TokioResolver};
use rustls::CertificateError::{BadSignature, UnknownIssuer};
use rustls::pki_types::ServerName;
use sluice_contract::record::ConnectFailure;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use crate::address::{Address, Scheme};
use crate::reach::Reach;
use crate::stream::Stream;
use crate::tls::{self, TlsError};

/// An address with everything that a connection to it needs: resolver, roots, server name.
pub struct Connector {
    address: Address,
    names: Names,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    reach: Reach,
}

/// Source of the IP addresses of the host.
enum Names {
    /// The host is an IP address, or a unix socket.
    Literal,
    /// The name servers and the hosts file of the system.
    System(Box<TokioResolver>),
    /// One answer for each look-up.
    #[cfg(test)]
    Scripted(std::sync::Mutex<std::collections::VecDeque<Vec<IpAddr>>>),
}

/// Reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name has no address, or cannot be looked up.
    #[error("cannot find the address of its name")]
    Dns(#[source] io::Error),
    /// The name has an address that no connection may go to; see [`Reach`].
    #[error("{0} is not an address of the public internet")]
    NotPublic(IpAddr),
    /// The host or its socket refused, or cannot be reached.
    #[error(transparent)]
    Transport(#[from] io::Error),
    /// The TLS handshake failed.
    #[error("the TLS handshake failed")]
    Tls(#[source] io::Error),
    /// The time is over.
    #[error("no connection within {0:?}")]
    Timeout(Duration),
}

impl ConnectError {
    /// Returns the word for the failure.
    #[must_use]
    pub fn failure(&self) -> ConnectFailure {
        match self {
            Self::Dns(_) => ConnectFailure::Dns,
            Self::Tls(_) => ConnectFailure::Tls,
            Self::NotPublic(_) => ConnectFailure::Other,
            Self::Timeout(_) => ConnectFailure::Timeout,
            Self::Transport(error) => match error.kind() {
                io::ErrorKind::ConnectionRefused => ConnectFailure::Refused,
                io::ErrorKind::TimedOut => ConnectFailure::Timeout,
                _ => ConnectFailure::Other,
            },
        }
    }

    /// Returns whether the certificate of the host is not signed by an authority that is trusted.
    #[must_use]
    pub fn is_unknown_authority(&self) -> bool {
        let Self::Tls(error) = self else { return false };
        let Some(cause) = error.get_ref() else { return false };
        let cause = cause.downcast_ref::<rustls::Error>();
        // An authority may have the name of a trusted one, but not its key.
        matches!(cause, Some(rustls::Error::InvalidCertificate(UnknownIssuer | BadSignature)))
    }
}

impl From<ConnectError> for io::Error {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Transport(error) => error,
            ConnectError::Timeout(_) => Self::new(io::ErrorKind::TimedOut, error),
            ConnectError::Dns(_) | ConnectError::Tls(_) | ConnectError::NotPublic(_) => Self::other(error),
        }
    }
}

/// Reason why no connection can be attempted.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// `/etc/resolv.conf` or `/etc/hosts` cannot be read.
    #[error("cannot read the system's resolver configuration")]
    Resolver(#[source] NetError),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No certificate can name this host.
    #[error("the host is not a name that a certificate can hold")]
    ServerName,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Connector {
    /// Reads the files that a connection needs: roots and the resolver's configuration. `ca` is a PEM file of roots
    /// to trust in place of the system's.
    ///
    /// # Errors
    /// [`SetupError`]
    pub fn new(address: Address, ca: Option<&Path>) -> Result<Self, SetupError> {
        let tls = match address.scheme {
            Scheme::Https => {
                let client = tls::client(ca)?;
                let name = ServerName::try_from(address.host.clone()).map_err(|_| SetupError::ServerName)?;
                Some((client, name))
            }
            Scheme::Http | Scheme::Unix(_) => None,
        };
        Ok(Self { names: Names::of(&address)?, address, tls, reach: Reach::Any })
    }

    /// Limits the IP addresses that connections may go to.
    #[must_use]
    pub fn within(self, reach: Reach) -> Self {
        Self { reach, ..self }
    }

    /// Returns the address that it connects to.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Connects, and negotiates TLS where the address asks for it. The name is looked up once: the connection goes to
    /// an IP address that was checked.
    ///
    /// # Errors
    /// [`ConnectError`]: the error of the last IP address, or of TLS; after `limit`, [`ConnectError::Dns`] if no name
    /// server has answered, or else [`ConnectError::Timeout`].
    pub async fn connect(&self, limit: Duration) -> Result<Stream, ConnectError> {
        let deadline = Instant::now() + limit;
        if let Scheme::Unix(path) = &self.address.scheme {
            let connected = timeout_at(deadline, UnixStream::connect(path)).await;
            return Ok(Stream::Unix(connected.map_err(|_| ConnectError::Timeout(limit))??));
        }
        let late = |_| ConnectError::Dns(io::Error::new(io::ErrorKind::TimedOut, "no name server answered in time"));
        let ips = timeout_at(deadline, self.resolve()).await.map_err(late)?.map_err(ConnectError::Dns)?;
        if let Some(refused) = self.reach.refused(&ips) {
            return Err(ConnectError::NotPublic(refused));
        }
        timeout_at(deadline, self.connect_to(&ips)).await.unwrap_or(Err(ConnectError::Timeout(limit)))
    }

    /// Connects at the level of TCP or of the unix socket only: shows whether a program listens there.
    ///
    /// # Errors
    /// The error of the last IP address; [`io::ErrorKind::TimedOut`] if no IP address answers within `limit`.
    pub async fn probe(address: &Address, limit: Duration) -> io::Result<()> {
        let names = Names::of(address).map_err(io::Error::other)?;
        let plain = Self { address: address.clone(), names, tls: None, reach: Reach::Any };
        Ok(plain.connect(limit).await.map(drop)?)
    }

    async fn connect_to(&self, ips: &[IpAddr]) -> Result<Stream, ConnectError> {
        let tcp = self.tcp(ips).await?;
        // Requests and answers are written whole; nothing is gained by waiting for more.
        tcp.set_nodelay(true)?;
        match &self.tls {
            None => Ok(Stream::Tcp(tcp)),
            Some((tls, name)) => {
                let stream = tls.connect(name.clone(), tcp).await.map_err(ConnectError::Tls)?;
                Ok(Stream::Tls(Box::new(stream)))
            }
        }
    }

    /// Tries the IP addresses in their order.
    async fn tcp(&self, ips: &[IpAddr]) -> Result<TcpStream, ConnectError> {
        let none = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let mut last = ConnectError::Dns(none);
        for ip in ips {
            match TcpStream::connect(SocketAddr::new(*ip, self.address.port)).await {
                Ok(tcp) => return Ok(tcp),
                Err(error) => last = ConnectError::Transport(error),
            }
        }
        Err(last)
    }

    /// Looks the name up for each connection, so that an upstream that has moved is found again.
    async fn resolve(&self) -> io::Result<Vec<IpAddr>> {
        match &self.names {
            #[cfg(test)]
            Names::Scripted(answers) => {
                Ok(answers.lock().expect("no test panics with it").pop_front().unwrap_or_default())
            }
            Names::Literal => self.address.host.parse().map(|ip| vec![ip]).map_err(io::Error::other),
            Names::System(resolver) => resolver
                .lookup_ip(self.address.host.as_str())
                .await
                .map(|found| found.iter().collect())
                .map_err(io::Error::other),
        }
    }
}

impl Names {
    /// Returns the source for an address. The configuration of the system is read now.
    fn of(address: &Address) -> Result<Self, SetupError> {
        if !address.is_name() {
            return Ok(Self::Literal);
        }
        let resolver = TokioResolver::builder_tokio().and_then(ResolverBuilder::build);
        resolver.map(|resolver| Self::System(Box::new(resolver))).map_err(SetupError::Resolver)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    fn listener() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let port = listener.local_addr().expect("it is bound").port();
        (listener, port)
    }

    fn address(text: &str) -> Address {
        text.parse().expect(text)
    }

    #[tokio::test]
    async fn names_of_the_hosts_file_are_connected() {
        let (listener, port) = listener();
        for host in ["localhost", "127.0.0.1"] {
            let connector = Connector::new(address(&format!("http://{host}:{port}")), None).expect("a connector");

            let stream = connector.connect(LIMIT).await.expect(host);

            assert!(matches!(stream, Stream::Tcp(_)), "{stream:?}");
        }
        drop(listener);
        let error = Connector::probe(&address(&format!("http://localhost:{port}")), LIMIT).await;
        assert_eq!(error.map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionRefused));
    }

    #[tokio::test]
    async fn a_silent_tls_server_ends_the_connection_in_time() {
        let (_listener, port) = listener();
        let address = address(&format!("https://127.0.0.1:{port}"));
        Connector::probe(&address, LIMIT).await.expect("it listens");
        let connector = Connector::new(address, None).expect("the system has roots");
        tokio::time::pause();

        let error = connector.connect(LIMIT).await.expect_err("it never answers");

        assert_eq!((error.failure(), error.to_string().as_str()), (ConnectFailure::Timeout, "no connection within 5s"));
    }

    fn scripted(port: u16, answers: &[&[&str]], reach: Reach) -> Connector {
        let answer = |ips: &&[&str]| ips.iter().map(|ip| ip.parse().expect(ip)).collect();
        let names = Names::Scripted(std::sync::Mutex::new(answers.iter().map(answer).collect()));
        Connector { address: address(&format!("http://rebinding.example:{port}")), names, tls: None, reach }
    }

    #[tokio::test]
    async fn a_name_is_looked_up_once_for_a_connection() {
        let (_listener, port) = listener();
        // The second answer would lead to another address than the one that was checked.
        let connector = scripted(port, &[&["127.0.0.1"], &["127.0.0.2"]], Reach::Any);

        let Ok(Stream::Tcp(stream)) = connector.connect(LIMIT).await else { panic!("it listens") };

        assert_eq!(stream.peer_addr().expect("it is connected").ip().to_string(), "127.0.0.1");
        let Names::Scripted(left) = &connector.names else { unreachable!("it is scripted") };
        assert_eq!(left.lock().expect("nothing panics").len(), 1);
    }

    #[tokio::test]
    async fn hosts_that_are_not_public_are_not_connected() {
        let (listener, port) = listener();
        listener.set_nonblocking(true).expect("it is a socket");
        for answer in [&["127.0.0.1"][..], &["8.8.8.8", "127.0.0.1"], &["::ffff:127.0.0.1"], &["::1"]] {
            let refused = scripted(port, &[answer], Reach::Public).connect(LIMIT).await;
            assert!(matches!(refused, Err(ConnectError::NotPublic(_))), "{answer:?}");
        }
        for host in ["localhost", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254"] {
            let connector = Connector::new(address(&format!("http://{host}:{port}")), None).expect("a connector");
            let refused = connector.within(Reach::Public).connect(LIMIT).await;
            assert!(matches!(refused, Err(ConnectError::NotPublic(_))), "{host}: {refused:?}");
        }
        assert_eq!(listener.accept().map(drop).map_err(|error| error.kind()), Err(io::ErrorKind::WouldBlock));
    }

    #[test]
    fn a_file_without_certificates_is_refused() {
        let path = std::env::temp_dir().join(format!("sluice-upstream-{}.pem", std::process::id()));
        let refused = |path: &Path| Connector::new(address("https://h"), Some(path)).expect_err("no roots");
        assert!(matches!(refused(&path), SetupError::Tls(TlsError::File(_))));
        let mut file = std::fs::File::create(&path).expect("a file");
        assert!(matches!(refused(&path), SetupError::Tls(TlsError::NoRoots)));
        file.write_all(b"-----BEGIN CERTIFICATE-----\n%\n-----END CERTIFICATE-----\n").expect("it is written");
        assert!(matches!(refused(&path), SetupError::Tls(TlsError::Certificates(_))));
        std::fs::remove_file(path).expect("it is ours");
    }
}
