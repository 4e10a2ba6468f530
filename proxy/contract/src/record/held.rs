//! The records of a call that waits for a person: `held` and `released`.
//!
//! Pure.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{OptionalText, ReleaseDecision};
use crate::encode::{WriteJson, write_members};

records! {
    /// A request waits for a person. The record is durable before the wait begins. Each has one `released`.
    Held<'a> = "held" {
        /// Absolute value of the cap with which this request passes, as a decimal; left out for a pause.
        #[serde(skip_serializing_if = "Option::is_none")]
        asked: Option<OptionalText<'a>>,
        attempt: u32,
        /// Cause of the wait: `max_calls`, `max_tokens`, `max_cost_usd` or `paused`.
        cap: Cow<'a, str>,
        /// Id of the hold. A retry of the same request has the same one.
        hold_id: Cow<'a, str>,
        kind: Cow<'a, str>,
        /// Longest time of the wait in seconds, rounded up.
        max_wait_s: u64,
        prev: Cow<'a, str>,
        run_id: Cow<'a, str>,
        seq: u64,
        ts: Cow<'a, str>,
        v: u32,
    }

    /// The wait of one request has ended.
    Released<'a> = "released" {
        attempt: u32,
        /// Person or program that ended it; `sidecar` or `client` where nobody decided.
        by: Cow<'a, str>,
        /// End of the wait.
        decision: ReleaseDecision,
        /// Id of the hold.
        hold_id: Cow<'a, str>,
        kind: Cow<'a, str>,
        prev: Cow<'a, str>,
        run_id: Cow<'a, str>,
        seq: u64,
        ts: Cow<'a, str>,
        v: u32,
        /// Milliseconds since its `held`.
        waited_ms: u64,
    }
}
