//! Reasons why an attempt cannot begin, and whether another one could.
//!
//! Pure.

use sluice_contract::text::error_chain;

/// Reason that an attempt cannot begin.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// For the owner of the run. Another attempt could not begin either.
    Owner(String),
    /// For the operator.
    Host(String),
}

/// Another attempt after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    /// According to the failure's word.
    ByCode,
    /// None: it would fail for the same reason.
    Never,
}

impl Refusal {
    /// Returns the refusal for an error of the host.
    pub(crate) fn host<E: std::error::Error>(error: E) -> Self {
        Self::Host(error_chain(&error))
    }
}
