//! The address of an upstream: `http://HOST[:PORT]`, `https://HOST[:PORT]` or `unix:/PATH`; HTTP may have a path.
//!
//! The path of a request has its own `/v1` if it needs one. So a final `/v1` of the path, which SDKs want in a base
//! URL, is not part of the address.
//!
//! Pure.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use http::uri::{InvalidUri, PathAndQuery, Uri};
use sluice_contract::ready::SOCKET_PATH_MAX;

/// Transport of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scheme {
    /// TCP in the clear.
    Http,
    /// TLS over TCP.
    Https,
    /// A unix socket, in the clear.
    Unix(PathBuf),
}

/// Address of an upstream, as the operator gave it. It never holds credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Transport.
    pub scheme: Scheme,
    /// Name or IP address, without brackets; `localhost` for a unix socket.
    pub host: String,
    /// TCP port; 0 for a unix socket.
    pub port: u16,
    /// Value of the `host` header.
    pub authority: String,
    /// Path before every request's path, without a final slash.
    prefix: String,
}

/// Reason why a text is not an address. It repeats nothing of the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Another scheme, or none.
    #[error("want http://HOST:PORT, https://HOST or unix:/PATH")]
    Scheme,
    /// A user and a password would end in logs.
    #[error("it holds credentials; give the key by --key-file")]
    Credentials,
    /// A query or a fragment would be lost.
    #[error("it may have a path and nothing after it")]
    Query,
    /// The path of the unix socket is relative, or too long for the kernel.
    #[error("a unix socket's path is absolute and at most {SOCKET_PATH_MAX} bytes")]
    UnixPath,
}

/// Returns an address for messages. A text that is not an address loses all that may be a credential: what precedes
/// the last `@`, and what follows a `?` or `#`.
#[must_use]
pub fn redact(text: &str) -> String {
    if text.parse::<Address>().is_ok() {
        return text.to_owned();
    }
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|b| b.is_ascii_alphanumeric()) => (format!("{scheme}://"), rest),
        _ => (String::new(), text),
    };
    let rest = match rest.rsplit_once('@') {
        Some((_, host)) => format!("(redacted)@{host}"),
        None => rest.to_owned(),
    };
    match rest.find(['?', '#']) {
        Some(end) => format!("{scheme}{}(redacted)", &rest[..=end]),
        None => format!("{scheme}{rest}"),
    }
}

/// Returns true for `localhost`, and a loopback address without brackets.
#[must_use]
pub fn is_local_host(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if !path.starts_with('/') || path.len() > SOCKET_PATH_MAX {
                return Err(AddressError::UnixPath);
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
            return Err(AddressError::Query);
        }
        let uri: Uri = text.parse().map_err(|_| AddressError::Scheme)?;
        let (scheme, default_port) = match uri.scheme_str() {
            Some("http") => (Scheme::Http, 80),
            Some("https") => (Scheme::Https, 443),
            _ => return Err(AddressError::Scheme),
        };
        let authority = uri.authority().ok_or(AddressError::Scheme)?;
        if authority.as_str().contains('@') {
            return Err(AddressError::Credentials);
        }
        if uri.query().is_some() {
            return Err(AddressError::Query);
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let names_port = authority.as_str().rsplit(']').next().is_some_and(|rest| rest.contains(':'));
        if host.is_empty() || (names_port && authority.port_u16().is_none_or(|port| port == 0)) {
            return Err(AddressError::Scheme);
        }
        Ok(Self {
            scheme,
            host,
            port: authority.port_u16().unwrap_or(default_port),
            authority: authority.as_str().to_owned(),
            prefix: prefix(uri.path()).to_owned(),
        })
    }
}

/// Returns the path before every request's path: without final slashes, and without a final `/v1`.
fn prefix(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    path.strip_suffix("/v1").map_or(path, |path| path.trim_end_matches('/'))
}

impl Address {
    /// Returns true if the host is a name, which has to be resolved.
    #[must_use]
    pub fn is_name(&self) -> bool {
        !matches!(self.scheme, Scheme::Unix(_)) && self.host.parse::<IpAddr>().is_err()
    }

    /// Returns true if what is sent to it does not leave this host: a unix socket, `localhost`, or a loopback address.
    #[must_use]
    pub fn is_local(&self) -> bool {
        is_local_host(&self.host)
    }

    /// Returns the request target for a fixed path.
    #[must_use]
    pub fn target(&self, path: &'static str) -> Uri {
        if self.prefix.is_empty() { Uri::from(PathAndQuery::from_static(path)) } else { self.target_of(path) }
    }

    /// Returns the request target for a path made for one request, of bytes that a path may have.
    ///
    /// # Panics
    /// If the path has other bytes.
    #[must_use]
    pub fn target_of(&self, path: &str) -> Uri {
        self.try_target(path).expect("both halves were parsed before")
    }

    /// Returns the request target for a path, which may have a query.
    ///
    /// # Errors
    /// A byte of the path that no target may have.
    pub fn try_target(&self, path: &str) -> Result<Uri, InvalidUri> {
        PathAndQuery::try_from(format!("{}{path}", self.prefix)).map(Uri::from)
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

    /// Every rule of the grammar, for both programs.
    #[test]
    fn addresses_are_read_and_paths_kept() {
        for (text, origin, host, port, target) in [
            ("http://127.0.0.1:4000", "http://127.0.0.1:4000", "127.0.0.1", 4000, "/v1/models"),
            ("http://litellm:4000/", "http://litellm:4000", "litellm", 4000, "/v1/models"),
            ("http://litellm", "http://litellm", "litellm", 80, "/v1/models"),
            ("HTTP://LiteLLM:1", "http://LiteLLM:1", "LiteLLM", 1, "/v1/models"),
            ("https://api.x/proxy/", "https://api.x", "api.x", 443, "/proxy/v1/models"),
            ("http://litellm:4000/v1", "http://litellm:4000", "litellm", 4000, "/v1/models"),
            ("http://litellm:4000/v1/", "http://litellm:4000", "litellm", 4000, "/v1/models"),
            ("https://api.x/proxy/v1", "https://api.x", "api.x", 443, "/proxy/v1/models"),
            ("https://api.x/v10", "https://api.x", "api.x", 443, "/v10/v1/models"),
            ("https://api.x/av1", "https://api.x", "api.x", 443, "/av1/v1/models"),
            ("https://api.x/a@b", "https://api.x", "api.x", 443, "/a@b/v1/models"),
            ("http://[::1]:80", "http://[::1]:80", "::1", 80, "/v1/models"),
            ("http://[::1]", "http://[::1]", "::1", 80, "/v1/models"),
            ("unix:/run/x.sock", "unix:/run/x.sock", "localhost", 0, "/v1/models"),
            ("unix:///run/a@b.sock", "unix:/run/a@b.sock", "localhost", 0, "/v1/models"),
        ] {
            let address: Address = text.parse().expect(text);
            assert_eq!((address.to_string().as_str(), address.host.as_str(), address.port), (origin, host, port));
            assert_eq!(address.target("/v1/models").to_string(), target);
            assert_eq!(address.try_target("/v1/models?a=b").expect("a path").to_string(), format!("{target}?a=b"));
            assert_eq!(redact(text), text);
        }
    }

    #[test]
    fn other_texts_are_refused_with_a_reason() {
        let long = format!("unix:/{}", "x".repeat(SOCKET_PATH_MAX));
        for (text, why) in [
            ("", AddressError::Scheme),
            ("litellm:4000", AddressError::Scheme),
            ("ftp://x", AddressError::Scheme),
            ("http://", AddressError::Scheme),
            ("http://:4000", AddressError::Scheme),
            ("http://x:", AddressError::Scheme),
            ("http://x:0", AddressError::Scheme),
            ("http://x:y", AddressError::Scheme),
            ("http://x:99999", AddressError::Scheme),
            ("http://u:p@x", AddressError::Credentials),
            ("http://x/?a=b", AddressError::Query),
            ("http://x/#a", AddressError::Query),
            ("unix:relative", AddressError::UnixPath),
            (&long, AddressError::UnixPath),
        ] {
            assert_eq!(text.parse::<Address>(), Err(why), "{text}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        for text in [
            "http://u:pw-secret@h", "http://pw-secret@h:1/x", "http://u:pw-secret@more-secret@h",
            "http://u:pw-secret/more-secret@h", "http://u:pw-secret?more-secret@h",
            "http://u:pw-secret://more-secret@h", "ftp://u:pw-secret@h", "u:pw-secret@h", "u:pw-secret://@h",
            "unix:pw-secret@h", "http:/u:pw-secret@h", "http://h/?key=pw-secret", "http://h/#pw-secret",
            "http://u@h/?a=pw-secret@b",
        ] {
            let error = text.parse::<Address>().expect_err(text);
            let shown = format!("{} {error} {error:?}", redact(text));
            assert!(!shown.contains("secret"), "{text}: {shown}");
            assert!(shown.contains('h') && shown.contains("(redacted)"), "{text}: {shown}");
        }
        assert_eq!(redact("http://u:pw@h:1/x"), "http://(redacted)@h:1/x");
        assert_eq!(redact("ftp://somewhere"), "ftp://somewhere");
    }
}
