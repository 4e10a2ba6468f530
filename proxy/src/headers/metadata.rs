//! The identity of a run, and the JSON that LiteLLM stores with each call.
//!
//! Pure.

use serde_json::{Map, Value};
use sluice_contract::{Account, RunId};

/// Names that the sidecar sets and `--metadata` may not take.
pub(super) const RESERVED: [&str; 4] = ["run_id", "attempt", "graph_id", "sluice_call_id"];

/// Identity that every call of this run has.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The run.
    pub run_id: RunId,
    /// Number of the run's start.
    pub attempt: u32,
    /// Account that pays.
    pub account: Account,
    /// Graph that the run belongs to.
    pub graph_id: String,
    /// Members that the operator wants on every spend row.
    pub metadata: Map<String, Value>,
}

/// Reason why the metadata cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// A name that the sidecar sets.
    #[error("'{0}' is set by the sidecar itself; choose another name")]
    Reserved(&'static str),
    /// The metadata is over the limit of headers.
    #[error("it is {0} bytes as JSON; headers hold at most 8192")]
    TooLong(usize),
    /// A value that a header cannot carry.
    #[error("'{0}' must be printable ASCII, without spaces at its ends")]
    NotAHeader(&'static str),
    /// The graph id is not valid.
    #[error("a graph id is 1 to 255 characters of visible ASCII")]
    GraphId,
}

/// Returns JSON in ASCII: LiteLLM reads headers as latin-1, and would garble UTF-8.
#[must_use]
pub fn ascii_json(value: &Value) -> String {
    let mut out = String::new();
    for c in value.to_string().chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out
}

pub(super) fn metadata_around_call_id(identity: &Identity) -> Result<(String, String), MetadataError> {
    let ours = serde_json::json!({
        "run_id": identity.run_id.as_str(),
        "attempt": identity.attempt,
        "graph_id": identity.graph_id,
    });
    let ours = ascii_json(&ours);
    let extra = ascii_json(&Value::Object(identity.metadata.clone()));
    if extra.len() > 8192 {
        return Err(MetadataError::TooLong(extra.len()));
    }
    let open = format!("{},\"sluice_call_id\":\"", ours.trim_end_matches('}'));
    let rest = if identity.metadata.is_empty() { "\"}".to_owned() } else { format!("\",{}", &extra[1..]) };
    Ok((open, rest))
}
