//! The daemon that receives the requests: its address, the CA certificates to trust, and a token.

use std::path::{Path, PathBuf};

use sluice_upstream::{Address, AddressError, Scheme};

use crate::token::ApiToken;

/// A daemon, and the credential for it.
#[derive(Debug, Clone)]
pub struct Server {
    pub(crate) address: Address,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) token: Option<ApiToken>,
    /// Name for messages.
    pub(crate) name: String,
}

/// An address that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The text is not an address, or contains credentials, which are not repeated.
    #[error("'{0}' is not a server; write http://HOST:PORT, https://HOST or unix:/PATH, without credentials")]
    Address(String, #[source] AddressError),
    /// A token would cross a network in the clear.
    #[error("{0} has no TLS, and others could read the token on its way; use https://, or a loopback address")]
    Unencrypted(String),
}

impl Server {
    /// Returns the server of an address. `ca` is a PEM file of certificates to trust in place of the system's.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn new(url: &str, ca: Option<PathBuf>, token: Option<ApiToken>) -> Result<Self, ServerError> {
        let name = sluice_upstream::redact(url);
        let address: Address = url.parse().map_err(|error| ServerError::Address(name.clone(), error))?;
        if address.scheme == Scheme::Http && token.is_some() && !address.is_local() {
            return Err(ServerError::Unencrypted(name));
        }
        Ok(Self { address, ca, token, name })
    }

    /// Returns the server at a unix socket. Root needs no token there.
    ///
    /// # Errors
    /// [`ServerError::Address`] for a path that is not absolute, or too long for a socket.
    pub fn at_socket(path: &Path) -> Result<Self, ServerError> {
        Self::new(&format!("unix:{}", path.display()), None, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_never_crosses_a_network_in_the_clear() {
        let token = || ApiToken::new("slu_x").ok();
        for (url, is_taken) in [
            ("http://127.0.0.1:8787", true),
            ("http://[::1]:8787", true),
            ("http://localhost:8787", true),
            ("https://sluice.example.org", true),
            ("unix:/run/sluice/api.sock", true),
            ("http://10.0.0.1:8787", false),
            ("http://localhost.example.org", false),
        ] {
            assert_eq!(Server::new(url, None, token()).is_ok(), is_taken, "{url}");
            assert!(Server::new(url, None, None).is_ok(), "{url}");
        }
        let error = Server::new("http://user:secret@host", None, None).expect_err("it has credentials");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
