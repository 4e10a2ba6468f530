//! An upstream as it is named in settings.
//!
//! Pure.

use std::path::PathBuf;

/// An upstream: its address, as text, and the certificates to trust there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// Address; see [`crate::Address`].
    pub url: String,
    /// File with the certificates to trust, in place of the system's.
    pub ca: Option<PathBuf>,
}

impl Upstream {
    /// Returns an upstream where the system's certificates are trusted.
    #[must_use]
    pub fn at(url: impl Into<String>) -> Self {
        Self { url: url.into(), ca: None }
    }
}
