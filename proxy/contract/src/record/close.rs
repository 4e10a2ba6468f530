//! The record of an orderly end: `close`.
//!
//! Pure.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::Usage;
use crate::encode::{WriteJson, write_members};

records! {
    /// The orderly end of a file.
    Close<'a> = "close" {
        attempt: u32,
        /// Number of calls.
        calls: u64,
        /// The certificate of the key that signs, if verifiers do not trust that key directly.
        #[serde(skip_serializing_if = "Option::is_none")]
        certificate: Option<Certificate<'a>>,
        /// The sum of what is known, each call rounded to nano-USD.
        cost_usd: Cow<'a, str>,
        /// SHA-256 of this line without its members `head` and `signature`, and without its newline: with `prev`
        /// in it, it covers the whole file.
        head: Cow<'a, str>,
        /// Id of the key that signed; null when the sidecar had no key.
        key_id: Option<Cow<'a, str>>,
        kind: Cow<'a, str>,
        prev: Cow<'a, str>,
        /// Reason of the end, such as `sigterm`, `deadline` or `parent_ended`.
        reason: Cow<'a, str>,
        /// Requests that were not forwarded: those of the lines, and those that came when no more were written.
        refused: u64,
        /// Requests to the controller since the last start of the sidecar; left out without a relay.
        #[serde(skip_serializing_if = "Option::is_none")]
        relay: Option<RelayCounts>,
        run_id: Cow<'a, str>,
        seq: u64,
        /// Ed25519 over the head, 128 hex digits; null when the sidecar had no key.
        signature: Option<Cow<'a, str>>,
        ts: Cow<'a, str>,
        /// Number of calls without an outcome, or whose cost is not known, and not known to be zero.
        unknown: u64,
        /// Sum of the tokens of all calls.
        usage: Usage,
        v: u32,
    }
}

/// Requests of the sandbox to the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RelayCounts {
    /// Requests that were not forwarded, for their rate, their number at once, their query or their body.
    pub refused: u64,
    /// Requests that were forwarded.
    pub requests: u64,
}

impl WriteJson for RelayCounts {
    const LEFT_OUT: bool = true;

    fn write(&self, line: &mut Vec<u8>) {
        write_members!(self, line, { refused, requests });
    }
}

/// The statement of a trusted key that another key may sign the audit file of this run and attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate<'a> {
    /// Id of the trusted key.
    pub key_id: Cow<'a, str>,
    /// The certified key, 64 hex digits; the `key_id` of `close` is its id.
    pub public_key: Cow<'a, str>,
    /// Ed25519 signature of the trusted key over the statement, 128 hex digits.
    pub signature: Cow<'a, str>,
}

impl WriteJson for Certificate<'_> {
    const LEFT_OUT: bool = true;

    fn write(&self, line: &mut Vec<u8>) {
        write_members!(self, line, { key_id, public_key, signature });
    }
}
