//! The bodies of the sidecar's control socket.
//!
//! Pure. The sidecar answers with [`SidecarState`] unless a path says otherwise, or with [`ControlFailure`].
//! docs/guide/sidecar.md lists the requests and their refusals.

mod conversation;
mod hold;

pub use conversation::{
    Anchor, CONTENT_MAX, INJECT_BODY_MAX, INJECT_PATH, INJECTED_BYTES_MAX, INJECTED_MAX, INJECTED_PATH, INTERRUPT_PATH,
    InjectMessages, InjectedMessage, InjectedMessages, InjectionStatus, Interrupt, KEPT_BYTES_MAX, KEPT_MAX,
    MessageType, PENDING_MAX, PendingMessage, TOO_MANY_MESSAGES,
};
pub use hold::{
    DecideHold, HELD_MAX, HELD_PATH, HOLD_MAX_S, HeldCall, HoldCause, HoldDecision, LAST_ATTEMPT, PAUSE_PATH, SetPause,
    UNKNOWN_HOLD,
};
use serde::{Deserialize, Serialize};

/// Defines the parser of each request. It is not inlined, and is in this crate, which is compiled for size: requests
/// are few.
macro_rules! read_from_json {
    ($($request:ident)*) => {$(
        impl $request {
            /// Reads the body of a request.
            ///
            /// # Errors
            /// Errors of `serde_json`: the text is not JSON, or has other members.
            #[inline(never)]
            pub fn from_json(body: &[u8]) -> serde_json::Result<Self> {
                serde_json::from_slice(body)
            }
        }
    )*};
}

read_from_json! { RaiseCaps SetClock SetPause DecideHold InjectMessages Interrupt }

/// Path of the state, for `GET`.
pub const STATE_PATH: &str = "/state";
/// Path of the caps, for `POST` with [`RaiseCaps`].
pub const CAPS_PATH: &str = "/caps";
/// Path of the deadline's clock, for `POST` with [`SetClock`].
pub const CLOCK_PATH: &str = "/clock";

/// Maximum length of the body of a request in bytes, except for messages ([`INJECT_BODY_MAX`]).
pub const BODY_MAX: usize = 64 << 10;

/// Maximum total time for which the clock of the deadline can be stopped, in seconds.
pub const STOPPED_MAX_S: u64 = 24 * 3600;

/// Code of a refusal for a value that is below the value in force.
pub const NOT_RAISED: &str = "not_raised";
/// Code of a refusal for a limit that the run does not have: any value would lower it.
pub const NOT_LIMITED: &str = "not_limited";
/// Code of a refusal for a clock that was stopped for the maximum time.
pub const STOPPED_TOO_LONG: &str = "stopped_too_long";
/// Code of a refusal for a member that is missing, unknown, or has another type or range.
pub const INVALID_MEMBER: &str = "invalid_member";

/// State of a running sidecar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SidecarState {
    /// Caps in force.
    pub caps: CapsInForce,
    /// Amounts that count against the caps.
    pub used: UsedAmounts,
    /// Number of calls that are under way.
    pub open_calls: u64,
    /// Number of requests that wait for a decision of a person now.
    pub held_calls: u64,
    /// True if the run is paused: no new call passes.
    #[serde(default)]
    pub paused: bool,
    /// Deadline of the run; null without one.
    pub deadline: Option<DeadlineState>,
    /// True if the sidecar is ending, and refuses new calls.
    pub draining: bool,
}

/// Caps in force; null is unlimited.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CapsInForce {
    /// Calls of the run.
    pub max_calls: Option<u64>,
    /// Dollars of the run, as a decimal.
    pub max_cost_usd: Option<String>,
    /// Tokens of the run, input and output.
    pub max_tokens: Option<u64>,
}

/// Amounts that count against the caps.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UsedAmounts {
    /// Calls, with those under way.
    pub calls: u64,
    /// Dollars of ended calls, as a decimal.
    pub cost_usd: String,
    /// Dollars that are reserved for calls under way, as a decimal.
    pub reserved_cost_usd: String,
    /// Tokens that are reserved for calls under way.
    pub reserved_tokens: u64,
    /// Tokens of ended calls.
    pub tokens: u64,
}

/// Deadline of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadlineState {
    /// Seconds from the start of the sidecar to the end of the run, without the time for which the clock was stopped.
    pub deadline_s: u64,
    /// Seconds that are left.
    pub left_s: u64,
    /// True while the clock is stopped.
    pub stopped: bool,
    /// Seconds for which the clock was stopped.
    pub stopped_s: u64,
}

/// Request to raise caps. Values are absolute; one that is left out stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RaiseCaps {
    /// Person or program that asks.
    pub by: String,
    /// Reason of the change.
    pub reason: String,
    /// Calls of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<u64>,
    /// Tokens of the run, input and output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Dollars of the run, as a decimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<String>,
    /// Seconds from the start of the sidecar to the end of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_s: Option<u64>,
}

/// Request to stop or restart the clock of the deadline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetClock {
    /// True to stop the clock, false to restart it.
    pub stopped: bool,
    /// Person or program that asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Reason of the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Answer to a request that is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlFailure {
    /// Code and message of the refusal.
    pub error: ControlFault,
}

/// Fault of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlFault {
    /// A stable word, such as [`NOT_RAISED`].
    pub code: String,
    /// Message with the fault and the fix.
    pub message: String,
}
