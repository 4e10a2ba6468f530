//! The record of a repaired file: `recovered`.
//!
//! Pure.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::encode::{WriteJson, write_members};

records! {
    /// A restart found that the end of the file was torn, or calls that were open when its writer died.
    Recovered<'a> = "recovered" {
        attempt: u32,
        /// Number of bytes of a torn last line that were cut off and kept aside.
        bytes: u64,
        kind: Cow<'a, str>,
        /// Offset at which the file was cut: the end of its last complete line.
        offset: u64,
        /// The ids of the calls without an outcome, in the order of their intents: none will follow.
        open_calls: Vec<Cow<'a, str>>,
        prev: Cow<'a, str>,
        run_id: Cow<'a, str>,
        seq: u64,
        /// SHA-256 of the bytes that were cut off, 64 hex digits.
        sha256: Cow<'a, str>,
        ts: Cow<'a, str>,
        v: u32,
    }
}
