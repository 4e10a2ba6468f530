//! The record of a change to a running sidecar: `control`.
//!
//! Pure.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{INTEGER_MAX, OptionalText};
use crate::encode::{WriteJson, write_members};

records! {
    /// The operator changed something of the running sidecar. The record is written before the change takes effect.
    Control<'a> = "control" {
        attempt: u32,
        /// Person or program that asked for the change; left out if the request named none.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<OptionalText<'a>>,
        /// Values before the change; only those that it changes.
        from: ControlValues<'a>,
        kind: Cow<'a, str>,
        prev: Cow<'a, str>,
        /// Reason of the change; left out if the request named none.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<OptionalText<'a>>,
        run_id: Cow<'a, str>,
        seq: u64,
        /// Values after the change.
        to: ControlValues<'a>,
        ts: Cow<'a, str>,
        v: u32,
        /// `caps` for raised caps, `clock` for a deadline that is stopped or goes on, `inject` for messages to the
        /// agent, `interrupt` for calls that are ended, `pause` for a run that is paused or goes on, `hold` for a
        /// decision on a held call.
        what: Cow<'a, str>,
    }
}

/// Values that the operator can change; those that a record does not concern are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ControlValues<'a> {
    /// Seconds from the start of the sidecar to the end of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_s: Option<ControlCount>,
    /// Decision on a held call, `deny` or `later`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<OptionalText<'a>>,
    /// Id of the hold that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_id: Option<OptionalText<'a>>,
    /// Calls of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<ControlCount>,
    /// Dollars of the run, as a decimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<OptionalText<'a>>,
    /// Tokens of the run, input and output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<ControlCount>,
    /// Messages that wait for the next call of the agent: `from` has those that are withdrawn, `to` those that are new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<MessageDigests<'a>>,
    /// Number of calls that are under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_calls: Option<ControlCount>,
    /// True if the run is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// True if the clock of the deadline is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<bool>,
}

impl WriteJson for ControlValues<'_> {
    fn write(&self, line: &mut Vec<u8>) {
        write_members!(self, line, {
            deadline_s, decision, hold_id, max_calls, max_cost_usd, max_tokens, messages, open_calls, paused, stopped
        });
    }
}

/// Messages by their ids, in a member that is left out where there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageDigests<'a>(pub Vec<MessageDigest<'a>>);

impl WriteJson for MessageDigests<'_> {
    const LEFT_OUT: bool = true;

    fn write(&self, line: &mut Vec<u8>) {
        self.0.write(line);
    }
}

/// A message, without its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageDigest<'a> {
    /// Id of the message.
    pub message_id: Cow<'a, str>,
    /// SHA-256 of its text, in hex.
    pub sha256: Cow<'a, str>,
}

impl WriteJson for MessageDigest<'_> {
    fn write(&self, line: &mut Vec<u8>) {
        write_members!(self, line, { message_id, sha256 });
    }
}

/// A number, in a member that is left out where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ControlCount(pub u64);

impl WriteJson for ControlCount {
    const LEFT_OUT: bool = true;

    fn write(&self, line: &mut Vec<u8>) {
        self.0.min(INTEGER_MAX).write(line);
    }
}
