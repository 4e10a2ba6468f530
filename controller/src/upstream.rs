//! Whether somebody listens where calls are to go.
//!
//! A run asks no more than that: whether the key is good shows at the first call, and a question over HTTP would be a
//! call that the audit log has to tell from the agent's. `sluice preflight` asks it, through a sidecar of its own.

use std::io;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

const WITHIN: Duration = Duration::from_secs(5);

/// Why calls would go nowhere.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The address is none.
    #[error("'{0}' is no upstream; write http://HOST:PORT, https://HOST or unix:/PATH")]
    Address(String),
    /// Nobody listens.
    #[error("nobody answers at the upstream {address}; start it, or name another with --upstream")]
    Unreachable {
        /// Where.
        address: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Connects, and hangs up.
///
/// # Errors
/// [`UpstreamError`].
pub async fn reach(url: &str) -> Result<(), UpstreamError> {
    let wrong = || UpstreamError::Address(url.to_owned());
    let connected = async {
        if let Some(path) = url.strip_prefix("unix:") {
            return Ok(UnixStream::connect(path).await.map(drop));
        }
        let (host, port) = address(url).ok_or_else(wrong)?;
        Ok(TcpStream::connect((host, port)).await.map(drop))
    };
    let connected = match timeout(WITHIN, connected).await {
        Ok(connected) => connected?,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("not within {} s", WITHIN.as_secs()))),
    };
    connected.map_err(|source| UpstreamError::Unreachable { address: url.to_owned(), source })
}

/// Host and port of a URL, without the brackets of an IPv6 address.
fn address(url: &str) -> Option<(&str, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let default = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let authority = rest.split('/').next().filter(|authority| !authority.is_empty() && !authority.contains('@'))?;
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        return Some((host, port.strip_prefix(':').map_or(Some(default), |port| port.parse().ok())?));
    }
    match authority.rsplit_once(':') {
        Some((host, port)) => Some((host, port.parse().ok()?)),
        None => Some((authority, default)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_urls() {
        let rows = [
            ("http://127.0.0.1:4000", Some(("127.0.0.1", 4000))),
            ("https://llm.example", Some(("llm.example", 443))),
            ("http://[::1]:4000/", Some(("::1", 4000))),
            ("http://[::1]", Some(("::1", 80))),
            ("http://me:pw@host", None),
            ("http://", None),
            ("ftp://host", None),
            ("host:4000", None),
            ("http://host:x", None),
        ];
        for (url, expected) in rows {
            assert_eq!(address(url), expected, "{url}");
        }
    }

    #[tokio::test]
    async fn a_closed_port_is_told_with_its_address() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        reach(&url).await.expect("somebody listens");
        drop(listener);
        let error = reach(&url).await.expect_err("nobody listens any more").to_string();
        assert!(error.contains(&url) && error.contains("--upstream"), "{error}");
    }
}
