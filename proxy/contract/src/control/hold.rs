//! Calls that wait for the decision of a person.
//!
//! Pure.

use serde::{Deserialize, Serialize};

/// Path of the calls that wait, for `GET`, which answers with a list of [`HeldCall`]; and, followed by `/` and a
/// `hold_id`, for `POST` with [`DecideHold`].
pub const HELD_PATH: &str = "/held";
/// Path of the pause, for `POST` with [`SetPause`].
pub const PAUSE_PATH: &str = "/pause";

/// Maximum number of requests of a run that wait at once.
pub const HELD_MAX: usize = 8;
/// Longest time in seconds for which a request can wait: clients give up after 300.
pub const HOLD_MAX_S: u64 = 290;

/// Code of a refusal for a hold that is unknown, or has ended.
pub const UNKNOWN_HOLD: &str = "unknown_hold";
/// Code of a refusal of the decision `later`: the client would not try again.
pub const LAST_ATTEMPT: &str = "last_attempt";

/// A call that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldCall {
    /// Id of the hold. A retry of the same request has the same one.
    pub hold_id: String,
    /// Cause of the wait.
    pub cause: HoldCause,
    /// Value of the cap with which this call and those that wait before it would pass; absolute, as a decimal. Left
    /// out for a pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// Model that the call asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Requests of this hold that wait now: none while the client waits to retry.
    pub waiting: u64,
    /// Requests of this hold so far, with those that got a 503.
    pub attempts: u64,
    /// Milliseconds since the first of these requests.
    pub waited_ms: u64,
}

/// Cause for which a call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldCause {
    /// The number of calls is at its cap.
    MaxCalls,
    /// The number of tokens is at its cap.
    MaxTokens,
    /// The cost is at its cap.
    MaxCostUsd,
    /// The run is paused.
    Paused,
}

impl HoldCause {
    /// Returns the word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MaxCalls => "max_calls",
            Self::MaxTokens => "max_tokens",
            Self::MaxCostUsd => "max_cost_usd",
            Self::Paused => "paused",
        }
    }
}

/// Decision on a call that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecideHold {
    /// Decision.
    pub decision: HoldDecision,
    /// Person or program that decides.
    pub by: String,
    /// Reason.
    pub reason: String,
}

/// Decision on a waiting call. The call continues by itself once a raised cap has room for it, or the pause ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldDecision {
    /// The call is refused for good.
    Deny,
    /// The client gets the answer to retry: the call continues to wait with its next request.
    Later,
}

impl HoldDecision {
    /// Returns the word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Later => "later",
        }
    }
}

/// Request to let no new call through, or to let calls through again. Calls under way go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetPause {
    /// True to pause.
    pub paused: bool,
    /// Person or program that asks.
    pub by: String,
    /// Reason.
    pub reason: String,
}
