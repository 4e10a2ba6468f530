//! The address of a webhook.
//!
//! Pure.

use std::fmt;

use http::Uri;
use http::uri::PathAndQuery;
use sluice_upstream::Address;

/// The address of a webhook. Its path may be a credential, so it is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookTarget {
    address: Address,
    path: PathAndQuery,
}

/// Reason why a text is not the address of a webhook. It repeats nothing of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Another scheme, or no host.
    #[error("url is https://HOST[:PORT][/PATH]")]
    Scheme,
    /// A user and a password would end in logs.
    #[error("url has no user and no password")]
    Credentials,
    /// The part after `#` is never sent.
    #[error("url has no fragment")]
    Fragment,
}

impl WebhookTarget {
    /// Reads an address.
    ///
    /// # Errors
    /// [`TargetError`]
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        if text.contains('#') {
            return Err(TargetError::Fragment);
        }
        let uri: Uri = text.parse().map_err(|_| TargetError::Scheme)?;
        let authority = uri.authority().filter(|_| uri.scheme_str() == Some("https")).ok_or(TargetError::Scheme)?;
        if authority.as_str().contains('@') {
            return Err(TargetError::Credentials);
        }
        let address = format!("https://{authority}").parse().map_err(|_| TargetError::Scheme)?;
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        Ok(Self { address, path })
    }

    /// Returns the host and its port.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the request target.
    pub(super) fn path(&self) -> Uri {
        Uri::from(self.path.clone())
    }
}

impl fmt::Display for WebhookTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}", self.address.authority)
    }
}

impl fmt::Debug for WebhookTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_its_path_and_hides_it() {
        let target = WebhookTarget::parse("https://hooks.example:8443/v1/T0/secret?x=1").expect("it is right");
        assert_eq!(target.path().to_string(), "/v1/T0/secret?x=1");
        assert_eq!(
            (target.to_string(), format!("{target:?}")),
            ("https://hooks.example:8443".into(), target.to_string())
        );
        assert_eq!((target.address().host.as_str(), target.address().port), ("hooks.example", 8443));
        assert_eq!(WebhookTarget::parse("https://[2001:db8::1]").expect("it is right").path().to_string(), "/");
    }

    #[test]
    fn other_addresses_are_refused() {
        for (text, expected) in [
            ("http://h/", TargetError::Scheme),
            ("unix:/run/x", TargetError::Scheme),
            ("h/path", TargetError::Scheme),
            ("https://", TargetError::Scheme),
            ("https://h:0/", TargetError::Scheme),
            ("https://h:99999/", TargetError::Scheme),
            ("https://u:p@h/", TargetError::Credentials),
            ("https://h/#x", TargetError::Fragment),
        ] {
            assert_eq!(WebhookTarget::parse(text), Err(expected), "{text}");
        }
    }
}
