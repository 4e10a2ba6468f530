//! Records of a start: `open` and `epoch`.
//!
//! Pure.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::ByteCount;
use crate::encode::{WriteJson, write_members};

records! {
    /// The sidecar started.
    Open<'a> = "open" {
        attempt: u32,
        /// Account that pays for the run.
        billing_account_id: Cow<'a, str>,
        /// Kernel boot in which the sidecar runs: a pid has a meaning only within it.
        boot_id: Cow<'a, str>,
        /// Commit that the sidecar was built from, or `unknown`.
        build: Cow<'a, str>,
        /// Graph (agent) in whose name the run calls.
        graph_id: Cow<'a, str>,
        kind: Cow<'a, str>,
        /// Limits of the run.
        limits: RunLimits,
        /// Process id of the sidecar.
        pid: u32,
        /// Digest of the policy in force, `sha256:` and 64 hex digits.
        policy: Cow<'a, str>,
        prev: Cow<'a, str>,
        /// Version of the sidecar.
        proxy_version: Cow<'a, str>,
        run_id: Cow<'a, str>,
        seq: u64,
        /// `call` or `off`: whether a line is on disk, or only in the kernel, when its call goes on.
        sync: Cow<'a, str>,
        ts: Cow<'a, str>,
        /// Origin only: scheme, host and port.
        upstream: Cow<'a, str>,
        v: u32,
    }

    /// The sidecar was started again for the same attempt.
    Epoch<'a> = "epoch" {
        attempt: u32,
        /// Kernel boot in which the sidecar runs: a pid has a meaning only within it.
        boot_id: Cow<'a, str>,
        /// Commit that the sidecar was built from, or `unknown`.
        build: Cow<'a, str>,
        kind: Cow<'a, str>,
        /// Process id of the sidecar.
        pid: u32,
        /// As in `open`: what is in force from here on, as are `sync` and `upstream`.
        policy: Cow<'a, str>,
        prev: Cow<'a, str>,
        run_id: Cow<'a, str>,
        seq: u64,
        /// As in `open`.
        sync: Cow<'a, str>,
        ts: Cow<'a, str>,
        /// As in `open`.
        upstream: Cow<'a, str>,
        v: u32,
    }
}

/// The limits that the run was started with; null is unlimited.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named like the flags")]
pub struct RunLimits {
    /// Seconds until the sidecar ends the run.
    pub deadline_s: Option<u64>,
    /// Bytes of a request body.
    pub max_body: u64,
    /// Calls of the run.
    pub max_calls: Option<u64>,
    /// Calls at once.
    pub max_concurrency: u64,
    /// Dollars of the run, as a decimal.
    pub max_cost_usd: Option<String>,
    /// Left out if there is no limit, and in the files of older sidecars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory: Option<ByteCount>,
    /// Tokens of the run, input and output.
    pub max_tokens: Option<u64>,
    /// Calls per second.
    pub rate_per_s: Option<u64>,
}

impl WriteJson for RunLimits {
    fn write(&self, line: &mut Vec<u8>) {
        write_members!(self, line, {
            deadline_s, max_body, max_calls, max_concurrency, max_cost_usd, max_memory, max_tokens, rate_per_s,
        });
    }
}
