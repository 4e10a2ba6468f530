//! Lines of the control log.
//!
//! Pure.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_contract::time::from_unix_micros;
use sluice_contract::{Chain, Hash, PrivateKey, PublicKey, canon};

use crate::signed_line::{self, ALTERED, NOT_CANONICAL, NOT_NEXT, OTHER_VERSION, UNKNOWN_KEY};

/// Operation of a person or a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControlEntry {
    /// Principal: `token:ID`, `uid:N`, `session:ID`, or `daemon`.
    pub principal: String,
    /// Role of the principal.
    pub role: String,
    /// Channel on which the request came: `admin_socket`, `bearer`, `session`, `command`, `daemon`.
    pub way: String,
    /// Address of the client.
    pub source: Option<String>,
    /// Name of the operation, such as `budget.set`.
    pub operation: String,
    /// Object that it changes.
    pub object: Option<String>,
    /// Owner of the object.
    pub owner: Option<String>,
    /// SHA-256 of the request's body.
    pub request: Option<Hash>,
    /// Values before the operation. Numbers must be integers.
    pub before: Option<Value>,
    /// Values after the operation. Numbers must be integers.
    pub after: Option<Value>,
    /// Reason that someone stated.
    pub reason: Option<String>,
    /// `accepted` before the effect; a word of failure in a second line, whose object is the number of the first.
    pub result: String,
}

/// A line as JSON, with sorted keys as in audit files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "as in `ControlEntry`")]
pub struct ControlLine {
    pub after: Option<Value>,
    pub before: Option<Value>,
    /// Key that signed the line.
    pub key_id: String,
    pub object: Option<String>,
    pub operation: String,
    pub owner: Option<String>,
    /// Hash of the line before.
    pub prev: String,
    pub principal: String,
    pub reason: Option<String>,
    pub request: Option<String>,
    pub result: String,
    pub role: String,
    /// Number of the line, from 0.
    pub seq: u64,
    pub signature: String,
    pub source: Option<String>,
    /// Time in UTC.
    pub ts: String,
    /// Version of the format.
    pub v: u32,
    pub way: String,
}

/// A line that is not valid at its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct ControlLogFault {
    /// Number of the line, from 1.
    pub line: u64,
    /// Description of the fault.
    pub reason: &'static str,
}

/// Version of the lines.
const VERSION: u32 = 1;

/// Returns the next line.
pub(super) fn signed(entry: ControlEntry, now_us: i64, chain: Chain, key: &PrivateKey) -> Vec<u8> {
    let mut line = ControlLine {
        after: entry.after,
        before: entry.before,
        key_id: key.public().id(),
        object: entry.object,
        operation: entry.operation,
        owner: entry.owner,
        prev: chain.prev.to_string(),
        principal: entry.principal,
        reason: entry.reason,
        request: entry.request.map(|hash| hash.to_string()),
        result: entry.result,
        role: entry.role,
        seq: chain.seq,
        signature: String::new(),
        source: entry.source,
        ts: humantime::format_rfc3339_micros(from_unix_micros(now_us)).to_string(),
        v: VERSION,
        way: entry.way,
    };
    line.signature = key.sign_control(Hash::of(&signed_line::bytes(&line)));
    signed_line::bytes(&line)
}

/// Returns the position that a line states for itself; `None` for a text that is not a line.
pub(super) fn position(text: &[u8]) -> Option<Chain> {
    let line: ControlLine = serde_json::from_slice(text.strip_suffix(b"\n").unwrap_or(text)).ok()?;
    Some(Chain { seq: line.seq, prev: line.prev.parse().ok()? })
}

/// Parses and verifies the line that follows `chain`.
pub(super) fn verify(text: &[u8], chain: Chain, keys: &[PublicKey]) -> Result<ControlLine, ControlLogFault> {
    let fault = |reason| ControlLogFault { line: chain.seq + 1, reason };
    let bare = text.strip_suffix(b"\n").unwrap_or(text);
    canon::members(bare).map_err(|_| fault(NOT_CANONICAL))?;
    let mut line: ControlLine =
        serde_json::from_slice(bare).map_err(|_| fault("it is not a record of the control log"))?;
    if line.v != VERSION {
        return Err(fault(OTHER_VERSION));
    }
    if signed_line::bytes(&line) != text {
        return Err(fault(NOT_CANONICAL));
    }
    if line.seq != chain.seq || line.prev != chain.prev.to_string() {
        return Err(fault(NOT_NEXT));
    }
    let signature = std::mem::take(&mut line.signature);
    let key = keys.iter().find(|key| key.id() == line.key_id);
    let key = key.ok_or_else(|| fault(UNKNOWN_KEY))?;
    if !key.verifies_control(Hash::of(&signed_line::bytes(&line)), &signature) {
        return Err(fault(ALTERED));
    }
    line.signature = signature;
    Ok(line)
}
