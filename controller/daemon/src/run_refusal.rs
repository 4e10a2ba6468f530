//! Reasons why an attempt cannot begin, and whether another one could.
//!
//! Pure.

use sluice_contract::text::error_chain;

/// Reason that an attempt cannot begin.
#[derive(Debug)]
pub(crate) enum RunRefusal {
    /// Reason for the owner of the run. Another attempt could not begin either.
    Owner(String),
    /// Reason for the operator. Another attempt may begin.
    Host(String),
    /// Reason for the operator. No other attempt could begin either.
    Final(String),
}

impl RunRefusal {
    /// Returns the refusal for an error of the host.
    pub(crate) fn host<E: std::error::Error>(error: E) -> Self {
        Self::Host(error_chain(&error))
    }
}
