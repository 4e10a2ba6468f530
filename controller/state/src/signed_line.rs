//! Common parts of the signed logs of the state directory: the bytes of a line, and its faults.
//!
//! Pure.

use serde::Serialize;

/// Fault of a line with another version.
pub(crate) const OTHER_VERSION: &str = "it is of another version; use the newer sluice";
/// Fault of a line that is not the canonical form of its content.
pub(crate) const NOT_CANONICAL: &str = "it is not written as sluice writes it";
/// Fault of a line whose number or hash does not continue the log.
pub(crate) const NOT_NEXT: &str = "it does not follow the line before: lines are missing or were altered";
/// Fault of a line that names an unknown key.
pub(crate) const UNKNOWN_KEY: &str = "it is signed by a key that this host does not know";
/// Fault of a line whose signature is not valid.
pub(crate) const ALTERED: &str = "its signature is not that of its key: it was altered";

/// Returns the bytes of a line: JSON and a newline.
pub(crate) fn bytes(line: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(line).expect("plain data");
    bytes.push(b'\n');
    bytes
}
