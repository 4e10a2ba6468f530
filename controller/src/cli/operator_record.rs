//! Lines of the control log about what an operator does at the command line.

use std::path::Path;

use sluice_state::control_log::{ControlEntry, ControlLog};
use sluice_state::keys::Keys;
use sluice_state::layout::Layout;
use sluice_state::operator;

use super::error::CommandError;

/// Opens the control log of a state directory.
pub(super) fn control_log(state: &Path) -> Result<ControlLog, CommandError> {
    let failed = |error: &dyn std::error::Error| CommandError::failed(error);
    let layout = Layout::open(state).map_err(|error| failed(&error))?;
    let keys = Keys::open(state).map_err(|error| failed(&error))?;
    ControlLog::open(&layout, &keys).map_err(|error| failed(&error))
}

/// Records a change before it takes effect. Returns the number of its line.
pub(super) fn record(log: &ControlLog, entry: ControlEntry) -> Result<u64, CommandError> {
    let entry = ControlEntry {
        principal: format!("user:{}", operator::name()),
        role: "admin".to_owned(),
        way: "command".to_owned(),
        result: "accepted".to_owned(),
        ..entry
    };
    log.append(entry).map_err(|error| CommandError::failed(&error))
}
