//! Names of the call that a row bills.
//!
//! Pure.

use super::CACHE_HIT;

/// Text that LiteLLM writes between the id of a call and the number of an earlier attempt.
const ATTEMPT: &str = "-attempt-";

/// Names of the call that a row bills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowNames<'a> {
    /// Name of the row; empty for a row without a name.
    pub request_id: &'a str,
    /// The sidecar's id of the call.
    pub sluice_call_id: Option<&'a str>,
    /// LiteLLM's id of the call.
    pub litellm_call_id: Option<&'a str>,
    /// Set if the call failed.
    pub is_failure: bool,
}

impl<'a> RowNames<'a> {
    /// Returns the id of the call if the row bills an earlier attempt at it. LiteLLM names such rows `CALL-attempt-N`, logs
    /// them as failed, and writes the sidecar's id of the call on some of them only.
    #[must_use]
    pub fn retried_call(self) -> Option<&'a str> {
        let name = self.litellm_call_id.unwrap_or(self.request_id);
        let (call, number) = name.rsplit_once(ATTEMPT)?;
        let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        (self.is_failure && is_number).then_some(call)
    }

    /// Returns the id of the call: the sidecar's, else LiteLLM's.
    #[must_use]
    pub fn call_id(self) -> Option<&'a str> {
        self.sluice_call_id.or_else(|| self.retried_call()).or(self.litellm_call_id)
    }

    /// Returns the first part of the name of the row, which may be the id of the answer as the client saw it.
    #[must_use]
    pub fn response_id(self) -> &'a str {
        self.request_id.split(CACHE_HIT).next().unwrap_or_default()
    }
}
