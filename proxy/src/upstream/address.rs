//! Where the upstream is: `http://`, `https://` or `unix:`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use http::uri::{PathAndQuery, Uri};

/// How to speak to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scheme {
    /// TCP in the clear.
    Http,
    /// TLS over TCP.
    Https,
    /// A unix socket, in the clear.
    Unix(PathBuf),
}

/// The upstream's address, as the operator gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// How.
    pub scheme: Scheme,
    /// A name or an IP address, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The value of the `host` header.
    pub authority: String,
    /// What stands before every path, without a final slash.
    prefix: String,
}

/// It is no such address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAnAddress {
    /// Another scheme, or none.
    #[error("want http://HOST:PORT, https://HOST or unix:/PATH")]
    Scheme,
    /// A user and a password would end in logs.
    #[error("it holds credentials; give the key by --key-file or stdin")]
    Credentials,
    /// A query or a fragment would be lost.
    #[error("it may have a path and nothing after it")]
    Query,
    /// A unix path that no kernel takes.
    #[error("a unix socket's path is absolute and at most 107 bytes")]
    UnixPath,
}

impl FromStr for Address {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if !path.starts_with('/') || path.len() > 107 {
                return Err(NotAnAddress::UnixPath);
            }
            let localhost = "localhost".to_owned();
            return Ok(Self {
                scheme: Scheme::Unix(path.into()),
                host: localhost.clone(),
                port: 0,
                authority: localhost,
                prefix: String::new(),
            });
        }
        if text.contains('#') {
            return Err(NotAnAddress::Query);
        }
        let uri: Uri = text.parse().map_err(|_| NotAnAddress::Scheme)?;
        let (scheme, default_port) = match uri.scheme_str() {
            Some("http") => (Scheme::Http, 80),
            Some("https") => (Scheme::Https, 443),
            _ => return Err(NotAnAddress::Scheme),
        };
        let authority = uri.authority().ok_or(NotAnAddress::Scheme)?;
        if authority.as_str().contains('@') {
            return Err(NotAnAddress::Credentials);
        }
        if uri.query().is_some() {
            return Err(NotAnAddress::Query);
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let names_port = authority.as_str().rsplit(']').next().is_some_and(|rest| rest.contains(':'));
        if host.is_empty() || (names_port && authority.port_u16().is_none_or(|port| port == 0)) {
            return Err(NotAnAddress::Scheme);
        }
        Ok(Self {
            scheme,
            host,
            port: authority.port_u16().unwrap_or(default_port),
            authority: authority.as_str().to_owned(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

impl Address {
    /// Whether the host is a name that has to be resolved.
    #[must_use]
    pub fn is_name(&self) -> bool {
        !matches!(self.scheme, Scheme::Unix(_)) && self.host.parse::<IpAddr>().is_err()
    }

    /// The request target for a path of ours.
    #[must_use]
    pub fn target(&self, path: &'static str) -> Uri {
        if self.prefix.is_empty() { Uri::from(PathAndQuery::from_static(path)) } else { self.target_of(path) }
    }

    /// The target of a path that was made for one request, of bytes that a path may have.
    #[must_use]
    pub fn target_of(&self, path: &str) -> Uri {
        Uri::from(PathAndQuery::try_from(format!("{}{path}", self.prefix)).expect("both halves were parsed before"))
    }
}

/// The origin, without the path: what the audit log may show.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scheme {
            Scheme::Http => write!(f, "http://{}", self.authority),
            Scheme::Https => write!(f, "https://{}", self.authority),
            Scheme::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_their_paths_kept() {
        for (text, origin, host, port, target) in [
            ("http://127.0.0.1:4000", "http://127.0.0.1:4000", "127.0.0.1", 4000, "/v1/models"),
            ("http://litellm:4000/", "http://litellm:4000", "litellm", 4000, "/v1/models"),
            ("https://api.x/proxy/", "https://api.x", "api.x", 443, "/proxy/v1/models"),
            ("http://[::1]:80", "http://[::1]:80", "::1", 80, "/v1/models"),
            ("unix:/run/x.sock", "unix:/run/x.sock", "localhost", 0, "/v1/models"),
        ] {
            let address: Address = text.parse().expect(text);
            assert_eq!((address.to_string().as_str(), address.host.as_str(), address.port), (origin, host, port));
            assert_eq!(address.target("/v1/models").to_string(), target);
        }
    }

    #[test]
    fn what_is_no_address_says_why() {
        for (text, why) in [
            ("litellm:4000", NotAnAddress::Scheme),
            ("ftp://x", NotAnAddress::Scheme),
            ("http://", NotAnAddress::Scheme),
            ("http://x:99999", NotAnAddress::Scheme),
            ("http://u:p@x", NotAnAddress::Credentials),
            ("http://x/?a=b", NotAnAddress::Query),
            ("http://x/#a", NotAnAddress::Query),
            ("unix:relative", NotAnAddress::UnixPath),
        ] {
            assert_eq!(text.parse::<Address>(), Err(why), "{text}");
        }
    }
}
