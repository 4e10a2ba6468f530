//! A secret key, which is never displayed.

use std::{fmt, io};

use http::HeaderValue;
use sluice_contract::upstream_key::{self, KeyFault};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use zeroize::Zeroizing;

/// A key. Its `Debug` output hides the value, and its memory is zeroed after use.
#[derive(Clone)]
pub struct ApiKey(Zeroizing<String>);

impl ApiKey {
    /// Makes a key of a text without the white space around it; `None` if no other text is left.
    #[must_use]
    pub fn new(text: String) -> Option<Self> {
        let text = Zeroizing::new(text);
        let key = text.trim();
        (!key.is_empty()).then(|| Self(Zeroizing::new(key.to_owned())))
    }

    /// Checks that a sidecar takes the key.
    ///
    /// # Errors
    /// The [`KeyFault`] that the sidecar would report.
    pub fn check(&self) -> Result<(), KeyFault> {
        upstream_key::check(self.0.as_bytes())
    }

    /// Returns the value of an `authorization` header, marked as sensitive; none if a header cannot contain the key.
    #[must_use]
    pub fn bearer(&self) -> Option<HeaderValue> {
        let text = Zeroizing::new(format!("Bearer {}", self.0.as_str()));
        let mut value = HeaderValue::from_str(&text).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Returns a text in which the key is replaced.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        text.replace(self.0.as_str(), "(key)")
    }

    /// Writes the key to a sidecar's pipe and closes it.
    ///
    /// # Errors
    /// Errors of the pipe.
    pub async fn write_to(&self, pipe: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        pipe.write_all(self.0.as_bytes()).await?;
        pipe.shutdown().await
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_trimmed_and_redacted() {
        let key = ApiKey::new(" sk-secret\n".into()).expect("there is one");
        assert_eq!(key.0.as_str(), "sk-secret");
        assert!(!format!("{key:?}").contains("secret"));
        assert_eq!(key.redact("Bearer sk-secret, sk-secret"), "Bearer (key), (key)");
        assert!(ApiKey::new(" \n".into()).is_none());
    }

    #[test]
    fn a_key_that_the_sidecar_refuses_is_refused() {
        for (text, expected) in
            [("abc\n", Err(KeyFault::Length(3))), ("sk a b c", Err(KeyFault::Alphabet(2))), ("sk-secret\n", Ok(()))]
        {
            assert_eq!(ApiKey::new(text.into()).expect(text).check(), expected);
        }
    }
}
