//! Lines of the control log about what an operator does at the command line.
//!
//! A line is on disk before its operation takes effect. An operation that fails afterwards has a second line.

use std::path::Path;

use sluice_state::control_log::{ControlEntry, ControlLog};
use sluice_state::keys::Keys;
use sluice_state::layout::Layout;
use sluice_state::operator;

use super::error::CommandError;
use super::output::say;

/// Result of a line that is written before its operation takes effect.
const ACCEPTED: &str = "accepted";
/// Result of a line about an operation that did not take effect.
const FAILED: &str = "failed";

/// Opens the control log of a state directory.
pub(super) fn control_log(state: &Path) -> Result<ControlLog, CommandError> {
    let failed = |error: &dyn std::error::Error| CommandError::failed(error);
    let layout = Layout::open(state).map_err(|error| failed(&error))?;
    let keys = Keys::open(state).map_err(|error| failed(&error))?;
    ControlLog::open(&layout, &keys).map_err(|error| failed(&error))
}

/// An operation that is recorded, and has not taken effect.
#[must_use]
pub(super) struct RecordedOperation {
    log: ControlLog,
    operation: String,
    seq: u64,
}

/// Records an operation on a state directory before it takes effect.
pub(super) fn begin(state: &Path, entry: ControlEntry) -> Result<RecordedOperation, CommandError> {
    let (log, operation) = (control_log(state)?, entry.operation.clone());
    let seq = record(&log, entry)?;
    Ok(RecordedOperation { log, operation, seq })
}

impl RecordedOperation {
    /// Returns the number of its line.
    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    /// Returns the result of the operation. If it failed, a line says so first.
    pub(super) fn end<T>(self, result: Result<T, CommandError>) -> Result<T, CommandError> {
        if result.is_err() {
            let entry = ControlEntry {
                operation: self.operation,
                object: Some(self.seq.to_string()),
                ..ControlEntry::default()
            };
            // The error of the operation is returned, not the error of its second line: a line about an operation
            // without effect does no harm.
            if let Err(error) = append(&self.log, entry, FAILED) {
                say(&format!("the control log does not have the failure: {}", error.message));
            }
        }
        result
    }
}

/// Records a change before it takes effect. Returns the number of its line.
pub(super) fn record(log: &ControlLog, entry: ControlEntry) -> Result<u64, CommandError> {
    append(log, entry, ACCEPTED)
}

fn append(log: &ControlLog, entry: ControlEntry, result: &str) -> Result<u64, CommandError> {
    let entry = ControlEntry {
        principal: format!("user:{}", operator::name()),
        role: "admin".to_owned(),
        way: "command".to_owned(),
        result: result.to_owned(),
        ..entry
    };
    log.append(entry).map_err(|error| CommandError::failed(&error))
}
