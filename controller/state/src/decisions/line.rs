//! Lines of the log of decisions.

use serde::{Deserialize, Serialize};
use sluice_contract::{Hash, PrivateKey, PublicKey};

use crate::operator;
use crate::signed_line::{self, ALTERED, NOT_CANONICAL, OTHER_VERSION, UNKNOWN_KEY};
use crate::store::now_us;

/// A decision of the operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Decision {
    /// The cost of a call will never be known: its reservation is released.
    Void {
        /// Name of the receipt.
        receipt: String,
        /// Reason.
        reason: String,
    },
    /// An audit file was imported.
    Import {
        /// `RUN.ATTEMPT`.
        run: String,
        /// Number of lines.
        lines: u64,
        /// Hash of the last line.
        head: String,
        /// Key that signed the file; without one, the operator trusts exactly these lines.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signed_by: Option<String>,
    },
    /// Audit files were removed.
    Prune {
        /// The runs of the files.
        runs: Vec<PrunedRun>,
    },
}

/// A run whose audit file was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrunedRun {
    /// `RUN.ATTEMPT`.
    pub run: String,
    /// Account that paid.
    pub account: String,
    /// Number of lines of the file.
    pub lines: u64,
    /// Hash of its last line; null for a file without lines.
    pub head: Option<String>,
    /// Size of the file.
    pub bytes: u64,
    /// Number of its receipts in the ledger.
    pub receipts: u64,
    /// Time of the last booking of the run, in microseconds since 1970.
    pub last_us: i64,
}

/// A line, with sorted keys as in audit files.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DecisionLine {
    pub(super) decision: Decision,
    key_id: String,
    pub(super) made_by: String,
    pub(super) made_us: i64,
    signature: String,
    v: u32,
}

/// Version of the lines.
const VERSION: u32 = 1;

/// Returns the line of a decision that this user makes now.
pub(super) fn signed(decision: Decision, key: &PrivateKey) -> Vec<u8> {
    let (key_id, made_by) = (key.public().id(), operator::name());
    let mut line = DecisionLine { decision, key_id, made_by, made_us: now_us(), signature: String::new(), v: VERSION };
    line.signature = key.sign_decision(Hash::of(&signed_line::bytes(&line)));
    signed_line::bytes(&line)
}

/// Parses and verifies a line.
pub(super) fn verify(text: &[u8], keys: &[PublicKey]) -> Result<DecisionLine, &'static str> {
    let mut line: DecisionLine = serde_json::from_slice(text).map_err(|_| "it is not a record of a decision")?;
    if line.v != VERSION {
        return Err(OTHER_VERSION);
    }
    if signed_line::bytes(&line) != text {
        return Err(NOT_CANONICAL);
    }
    let signature = std::mem::take(&mut line.signature);
    let key = keys.iter().find(|key| key.id() == line.key_id).ok_or(UNKNOWN_KEY)?;
    if !key.verifies_decision(Hash::of(&signed_line::bytes(&line)), &signature) {
        return Err(ALTERED);
    }
    Ok(line)
}
