//! One question over a connection of its own, to `http://`, `https://` or `unix:`.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Uri;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// Where LiteLLM is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    how: How,
    /// The value of the `host` header.
    pub(super) authority: String,
    /// What stands before every path, without a final slash.
    pub(super) prefix: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum How {
    Tcp { host: String, port: u16 },
    Tls { host: String, port: u16 },
    Unix(PathBuf),
}

/// Why there was no answer.
#[derive(Debug)]
pub(super) enum Lost {
    /// Nothing of the question went out.
    Before(io::Error),
    /// Some of it may have.
    Underway(io::Error),
    /// There is more of the answer than was wanted.
    TooLong,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Place {
    /// What the operator wrote; nothing if it is no address, or holds a password.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            let how = How::Unix(path.starts_with('/').then(|| path.into())?);
            return Some(Self { how, authority: "localhost".to_owned(), prefix: String::new() });
        }
        let uri: Uri = text.parse().ok()?;
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let names_port = authority.as_str().rsplit(']').next().is_some_and(|rest| rest.contains(':'));
        if host.is_empty() || uri.query().is_some() || (names_port && authority.port_u16().is_none()) {
            return None;
        }
        let port = authority.port_u16();
        let how = match uri.scheme_str()? {
            "http" => How::Tcp { host, port: port.unwrap_or(80) },
            "https" => How::Tls { host, port: port.unwrap_or(443) },
            _ => return None,
        };
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Some(Self { how, authority: authority.as_str().to_owned(), prefix })
    }

    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        match &self.how {
            How::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
            How::Tcp { host, port } => Ok(Box::new(TcpStream::connect((host.as_str(), *port)).await?)),
            How::Tls { host, port } => {
                let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
                let tcp = TcpStream::connect((host.as_str(), *port)).await?;
                Ok(Box::new(tls()?.connect(name, tcp).await?))
            }
        }
    }

    /// Asks, and reads the whole answer if it is not longer than this.
    pub(super) async fn ask(&self, question: Request<String>, most: usize) -> Result<Answer, Lost> {
        let late = |_| Err(io::Error::new(io::ErrorKind::TimedOut, format!("not within {CONNECT_WITHIN:?}")));
        let stream = timeout(CONNECT_WITHIN, self.connect()).await.unwrap_or_else(late).map_err(Lost::Before)?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| Lost::Before(io::Error::other(error)))?;
        let exchange = async {
            let response = sender.send_request(question).await.map_err(broken)?;
            let (head, body) = Response::into_parts(response);
            Ok((head.status.as_u16(), read(body, most).await?))
        };
        tokio::pin!(exchange);
        tokio::select! {
            biased;
            answer = &mut exchange => answer,
            // The connection may end with the answer in hand.
            ended = connection => match (exchange.await, ended) {
                (Err(Lost::Underway(_)), Err(error)) => Err(broken(error)),
                (answer, _) => answer,
            },
        }
    }
}

/// A status and a body.
pub(super) type Answer = (u16, Zeroizing<Vec<u8>>);

async fn read(body: Incoming, most: usize) -> Result<Zeroizing<Vec<u8>>, Lost> {
    let mut body = body;
    let mut bytes = Zeroizing::new(Vec::new());
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(data) = frame.map_err(broken)?.into_data() {
            if bytes.len() + data.len() > most {
                return Err(Lost::TooLong);
            }
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes)
}

fn broken(error: hyper::Error) -> Lost {
    Lost::Underway(io::Error::other(error))
}

/// The system's roots, or those of `SSL_CERT_FILE`, as the sidecars have it; read once, since that takes milliseconds.
fn tls() -> io::Result<TlsConnector> {
    static READ: Mutex<Option<TlsConnector>> = Mutex::new(None);
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if read.is_none() {
        *read = Some(with_roots()?);
    }
    Ok(read.clone().expect("it was just read"))
}

fn with_roots() -> io::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(io::Error::other("no CA certificates found; install ca-certificates"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
